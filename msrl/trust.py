"""What a run folder names, and whether it may be used: a name out of a folder goes in, the same name comes out, or an
error that says what the user can do.

A folder is data, whoever made it. It may name what comes with MSRL and what Gymnasium, EnvPool, PettingZoo and MPE2
have in their own tables: these are lists, and what is not on them is refused. Whatever else is code (a file, a module)
is executed only if the user has named it on this machine, or names it now with a flag. Nothing is connected to because
a folder says so.
"""

import dataclasses
import importlib.util
import os
import shlex
import site
import sysconfig
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msrl import envs, loading
from msrl.algorithms import ALGORITHMS
from msrl.api import Config, Trainer
from msrl.deployment import Deployment
from msrl.distribution import DISTRIBUTIONS
from msrl.errors import UsageError
from msrl.feasibility import fitted

DOCS = "docs/security.md"
PACKAGES = ("mpe2", "pettingzoo")  # whose modules may be named with pettingzoo:


def is_listed_env(said: str) -> bool:
    """An environment of a table, or of a package that is on our list and was installed: a folder of that name in the
    working directory is another thing."""
    module = envs.module_in(said)
    if module is None:
        return envs.is_listed(said)
    package = module.partition(".")[0]
    return said.startswith("pettingzoo:") and package in PACKAGES and is_installed(package)


LISTED: dict[str, Callable[[str], bool]] = {
    "algorithm": ALGORITHMS.__contains__, "distribution": DISTRIBUTIONS.__contains__, "env": is_listed_env}


def resolve(kind: str, said: str, given: Any, command: str) -> Any:
    """What a folder says is its `kind` (a key of LISTED), or what the user says now instead. `command` is the user's,
    to which a flag may be added."""
    if given is not None:
        remember(*([given] if isinstance(given, str) else []))  # an object is the user's own
        return given
    if LISTED[kind](said) or known(said):
        return said
    file, flag = loading.file_in(said), f"{command} --{kind} {shlex.quote(said)}"
    if file is None and (kind != "env" or envs.module_in(said) is None):
        raise UsageError(f"The run's {kind} is {said!r}.", why="MSRL has none that is called so.",
                         instead=f"Say which one it is: {command} --{kind} NAME", docs=DOCS)
    what = f"a file, {said}" if file is not None else f"in a module of its own, {said}"
    raise UsageError(f"The run's {kind} is {what}.",
                     why="You have not named it on this machine, and what only a folder names is not executed.",
                     instead=f"If you trust it: {flag}", docs=DOCS)


def resolve_deployment(file: Path, given: Deployment | None, flags: Mapping[str, Any], command: str) -> Deployment:
    """The deployment of a folder, or the one that is `given` instead, with the fields that are flags of the user's."""
    if given is not None:
        return given.replace(**flags)
    said = Deployment.from_file(file)
    if "distribution" not in flags:
        resolve("distribution", said.distribution, None, command)
    deployment = fitted(said, flags)
    if deployment.backend == "ray" and deployment.address is not None and "address" not in flags:
        raise UsageError(
            f"The run was made on a Ray cluster, {deployment.address}.",
            why="It is the folder that says so, and nothing is connected to because a folder says so.",
            instead=f"If you trust it: {command} --address {shlex.quote(deployment.address)}\n"
                    f"To go on here instead: {command} --backend threads",
            docs=DOCS)
    return deployment


def needs_flag(kind: str, said: str) -> bool:
    """Is it something that whoever has not named it before must name?"""
    return not LISTED[kind](said)


# -- settings ----------------------------------------------------------------------------------------------------------


def read_settings(cls: type[Trainer], said: Mapping[str, Any], where: Path) -> Config:
    """The algorithm's configuration out of what a folder says: its own fields and no others, each of its kind."""
    defaults = {each.name: each.default for each in dataclasses.fields(cls.Config)}
    problem = next((f"There is no {name!r} now" for name in said if name not in defaults), None) or \
        next((f"{name} is {value!r} there" for name, value in said.items() if not _alike(value, defaults[name])), None)
    try:
        if problem is None:
            return cls.Config(**{name: as_tuples(value) for name, value in said.items()})
    except (TypeError, ValueError, ArithmeticError) as error:
        problem = str(error)
    raise UsageError(f"{where} was made with other settings than {cls.__name__} has now.", why=f"{problem}.",
                     instead="Use the version of the algorithm that the run was made with.")


def _alike(value: Any, default: Any) -> bool:
    """Can the value be one of a field that has this default?"""
    match default:
        case bool():
            return isinstance(value, bool)
        case int():
            return isinstance(value, int) and not isinstance(value, bool)
        case float():
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case str():
            return isinstance(value, str)
        case tuple():
            return isinstance(value, list) and all(_alike(each, default[0]) for each in value if default)
    return True


def as_tuples(value: Any) -> Any:
    """JSON has lists only, and settings are hashable."""
    return tuple(as_tuples(each) for each in value) if isinstance(value, list) else value


# -- what the user has named -------------------------------------------------------------------------------------------


def place() -> Path:
    """Where the names are kept."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    cache = os.environ.get("MSRL_CACHE_DIR", "off")
    return (Path(home) / "msrl" if cache == "off" else Path(cache).expanduser()) / "named-files"


def code_of(said: str) -> Path | None:
    """The file with the code that a name stands for: of path/to/file.py:Class that file, of an environment in a module
    the file of its outermost package, as it is found from here. None if it names no code, or none that there is."""
    file = loading.file_in(said)
    if file is not None:
        return Path(file).absolute()
    module = envs.module_in(said)
    return _origin(module.partition(".")[0]) if module else None


def _origin(package: str) -> Path | None:
    """Where a package is, without importing it."""
    with suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(package) if package.isidentifier() else None
        places = [spec.origin, *(spec.submodule_search_locations or ())] if spec else []
        return next((Path(each).absolute() for each in places if each), None)
    return None


def is_installed(package: str) -> bool:
    """Is it where packages are installed, and not merely somewhere on the path?"""
    found = _origin(package)
    homes = {*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()}
    return found is None or any(found.is_relative_to(home) for home in homes if Path(home).name.endswith("-packages"))


def remember(*said: str) -> None:
    """The user has named these. That they cannot be written down is no reason to stop."""
    new = [str(file) for each in said if (file := code_of(each)) and not known(each) and str(file).isprintable()]
    with suppress(OSError):
        if new:
            place().parent.mkdir(parents=True, exist_ok=True)
            with place().open("a", encoding="utf-8") as names:
                names.write("".join(f"{name}\n" for name in new))


def known(said: str) -> bool:
    file = code_of(said)
    with suppress(OSError, UnicodeDecodeError):
        return file is not None and str(file) in place().read_text(encoding="utf-8").splitlines()
    return False
