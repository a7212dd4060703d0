"""Files that are complete or absent, also after a crash of the machine, and JSON that every reader takes."""

import errno
import hashlib
import json
import math
import os
import shutil
import uuid
from pathlib import Path
from typing import Any


def write(path: Path, content: bytes) -> None:
    """All of it or nothing, whatever happens: once this returns, a crash of the machine leaves all of it."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        sync(path.parent)
    finally:
        aside.unlink(missing_ok=True)


def put(aside: Path, place: Path) -> None:
    """Moves a complete folder to its place; what was there goes when the new one is in its stead, on disk."""
    old = place.with_name(f".{place.name}.old")
    if old.exists() and not place.exists():
        old.rename(place)  # a crash came between the two renames below
    shutil.rmtree(old, ignore_errors=True)
    sync_tree(aside)
    if place.exists():
        place.rename(old)
    aside.rename(place)
    sync(place.parent)
    sync(place.parent.parent)  # which may have got the folder just now
    shutil.rmtree(old, ignore_errors=True)


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on disk: a rename counts only once its folder is."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems sync no folders
            raise
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """The same for all that is in a folder."""
    for inner, _, names in os.walk(folder, topdown=False):
        for name in names:
            sync(Path(inner) / name)
        sync(Path(inner))


def seal(value: Any) -> str:
    """A checksum of plain data, the same before and after it has been JSON."""
    return hashlib.sha256(json.dumps(json.loads(dumps(value)), sort_keys=True).encode()).hexdigest()


def dumps(value: Any, indent: int | None = None) -> str:
    """JSON, with null for the numbers that JSON does not have."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False, default=repr)


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {name: _finite(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_finite(inner) for inner in value]
    return value
