"""Classes by path/to/file.py:Class: a name goes in, the class comes out.

What always holds: a file is run once per process, under a module name that is the same in every process; one that fails
is forgotten. Algorithms and distribution policies of one's own are found here.
"""

import importlib.util
import sys
import zlib
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from msrl.errors import UsageError

T = TypeVar("T")


def in_file(name: str) -> bool:
    """Does the name say a file, with or without its class?"""
    return name.endswith(".py") or file_in(name) is not None


def file_in(name: str) -> str | None:
    """The path in path/to/file.py:Class; None if the name has another form. Whatever executes a file, or asks whether
    it may be executed, finds it here: two readings of one name would be a way around the question."""
    path = name.rpartition(":")[0]
    return path if path.endswith(".py") else None


def from_file(name: str, base: type[T], form: str) -> type[T]:
    """The subclass of `base` that path/to/file.py:Class names. `form` is the sentence that says how to write one."""
    path = file_in(name)
    if path is None:
        raise UsageError(f"{name} does not say which {base.__name__} it is.", instead=form)
    return subclass_in(module_of(path, name, form), name.removeprefix(f"{path}:"), name, base, form)


def module_of(path: str, name: str, form: str) -> ModuleType:
    file = Path(path).resolve()
    if not file.is_file():
        raise UsageError(f"{name}: there is no file {path}.", instead=form)
    # Registered under a name that is the same in every process, so that source and pickles find the module again.
    qualified = f"msrl_user_{file.stem}_{zlib.crc32(str(file).encode()):08x}"
    if qualified in sys.modules:
        return sys.modules[qualified]
    spec = importlib.util.spec_from_file_location(qualified, file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[qualified] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[qualified]
        raise
    return module


def subclass_in(module: ModuleType, attribute: str, name: str, base: type[T], form: str) -> type[T]:
    """`module.attribute`, if it is a subclass of `base` and not `base` itself."""
    kind = base.__name__
    found = {each: value for each, value in vars(module).items()
             if isinstance(value, type) and issubclass(value, base) and value is not base}
    if attribute in found:
        return found[attribute]
    raise UsageError(
        f"{name}: {attribute} is not a {kind}." if attribute in vars(module) else f"{name}: no class {attribute!r}.",
        why=f"The file has {', '.join(found)}." if found else f"The file has no subclass of {kind}.",
        instead=form)
