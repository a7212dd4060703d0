"""Classes by path/to/file.py:Class: a name goes in, the class comes out.

What always holds: a file is run once per process, under a module name that is the same in every process; one that fails
is forgotten. While it runs, it can import what lies in its folder. Algorithms, environments and distribution policies
of one's own are found here, and `sources` with `provide` takes them to processes that cannot read the files.
"""

import importlib
import importlib.abc
import importlib.util
import linecache
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from msrl.errors import Span, UsageError
from msrl.tracebacks import author_span, shown_path

T = TypeVar("T")
USER = "msrl_user_"  # modules made from the user's files, which no other process can import
Source = tuple[str, str, str]  # module, file, text

_beside: dict[str, Path] = {}  # modules that a user's file imported from its own folder → that folder


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
    qualified = f"{USER}{file.stem}_{zlib.crc32(str(file).encode()):08x}"
    if qualified in sys.modules:
        return sys.modules[qualified]
    spec = importlib.util.spec_from_file_location(qualified, file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[qualified] = importlib.util.module_from_spec(spec)
    try:
        with _folder_on_path(file.parent):
            spec.loader.exec_module(module)
    except BaseException as problem:
        del sys.modules[qualified]
        if isinstance(problem, (Exception, SystemExit)):
            raise _cannot_load(name, file, problem) from problem
        raise
    return module


@contextmanager
def _folder_on_path(folder: Path) -> Iterator[None]:
    """Imports find what lies in the folder, as they do for a script. What another user's folder has of the same name is
    forgotten first, or `import helper` would give this file the helper of that one."""
    for name in [name for name, other in _beside.items() if other != folder]:
        sys.modules.pop(name, None)
        del _beside[name]
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and not name.startswith(USER) and Path(file).is_relative_to(folder):
                _beside[name] = folder


def _cannot_load(name: str, file: Path, problem: BaseException) -> UsageError:
    """The error for a file of the user's that fails while it is loaded, with the line that is to blame."""
    instead = ""
    match problem:
        case SyntaxError(filename=str(where), lineno=int(line)):
            text = (problem.text or linecache.getline(where, line)).rstrip()
            shown = text.lstrip()
            column = max(1, (problem.offset or 1) - (len(text) - len(shown)))
            span: Span | None = Span(shown_path(where), line, column, 1, shown)
            why = problem.msg
        case SystemExit():
            span, why = author_span(problem), "It ends the process while it is being loaded."
            instead = 'Put what only a script does under `if __name__ == "__main__":`.'
        case ModuleNotFoundError():
            span, why = author_span(problem), f"{problem}."
            instead = f"Install it, or put it beside {shown_path(str(file))}, where it is found."
        case ImportError() if "relative import" in str(problem):
            span, why = author_span(problem), "The file is loaded by itself, and not as a part of a package."
            instead = "Name what lies beside it directly: `import helper` in place of `from . import helper`."
        case _:
            span, why = author_span(problem), str(problem).strip().split("\n\n")[0]
    return UsageError(f"{name} cannot be loaded: {type(problem).__name__}.", span=span, why=why, instead=instead)


def sources(mentioned: Callable[[str], bool]) -> tuple[Source, ...]:
    """The user's files whose module is mentioned, and what they imported from their folders, as text."""
    named = {name: module for name, module in sys.modules.items() if name.startswith(USER) and mentioned(name)}
    folders = {Path(str(module.__file__)).parent for module in named.values()}
    beside = {name: sys.modules[name] for name, folder in _beside.items() if folder in folders and name in sys.modules}
    return tuple((name, str(module.__file__), Path(str(module.__file__)).read_text(encoding="utf-8"))
                 for name, module in sorted({**named, **beside}.items()) if str(module.__file__).endswith(".py"))


def provide(files: Iterable[Source]) -> None:
    """Loads the user's files from their texts: they need not be on this machine."""
    files = [each for each in files if each[0] not in sys.modules]
    if not files:
        return
    sys.meta_path.insert(0, _Provided(files))
    for _, file, text in files:
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    for name, _, _ in files:
        if name.startswith(USER):
            importlib.import_module(name)


class _Provided(importlib.abc.MetaPathFinder, importlib.abc.ExecutionLoader):
    """Imports modules from texts."""

    def __init__(self, files: Iterable[Source]):
        self.files = {name: (file, text) for name, file, text in files}

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname in self.files:
            return importlib.util.spec_from_loader(fullname, self)
        if any(name.startswith(f"{fullname}.") for name in self.files):  # a folder without __init__.py
            return ModuleSpec(fullname, None, is_package=True)
        return None

    def get_source(self, fullname: str) -> str:
        return self.files[fullname][1]

    def get_filename(self, fullname: str) -> str:
        return self.files[fullname][0]

    def is_package(self, fullname: str) -> bool:
        return Path(self.files[fullname][0]).name == "__init__.py"


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
