"""Files of the user's whose code may be executed: those that were named in a command or a call, here and by this user.

A run folder says which trainer, environment and distribution it was made with. Where that is a file, its code is
executed only if the user has named that file before, or does so now: a folder that came from elsewhere runs nothing.
"""

import os
from contextlib import suppress
from pathlib import Path

from msrl.errors import UsageError


def place() -> Path:
    """Where the names are kept."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    cache = os.environ.get("MSRL_CACHE_DIR", "off")
    return (Path(home) / "msrl" if cache == "off" else Path(cache).expanduser()) / "named-files"


def file_of(said: str) -> Path | None:
    """The file in path/to/file.py:Class; None if it names no file."""
    path = said.rpartition(":")[0]
    return Path(path).absolute() if path.endswith(".py") else None


def remember(*said: str) -> None:
    """The user has named these. That they cannot be written down is no reason to stop."""
    new = [str(file) for each in said if (file := file_of(each)) and not known(each)]
    with suppress(OSError):
        if new:
            place().parent.mkdir(parents=True, exist_ok=True)
            with place().open("a", encoding="utf-8") as names:
                names.write("".join(f"{name}\n" for name in new))


def known(said: str) -> bool:
    with suppress(OSError, UnicodeDecodeError):
        return str(file_of(said)) in place().read_text(encoding="utf-8").splitlines()
    return False


def trusted(said: str, given: str | None, flag: str, command: str) -> str:
    """What a folder says, or what the user says now instead."""
    if given is not None:
        return given
    if file_of(said) and not known(said):
        raise UsageError(f"The run's {flag} is a file, {said}.",
                         why="You have not named it on this machine, and what only a folder names is not executed.",
                         instead=f"If you trust it: {command} --{flag} {said}")
    return said
