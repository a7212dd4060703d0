"""Files that are complete or absent, and JSON that every reader takes."""

import json
import math
import os
import shutil
from pathlib import Path
from typing import Any


def write(path: Path, content: bytes) -> None:
    """All of it or nothing, whatever happens."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_bytes(content)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def put(aside: Path, place: Path) -> None:
    """Moves a complete folder to its place; what was there goes when the new one is in its stead."""
    old = place.with_name(f".{place.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if place.exists():
        place.rename(old)
    aside.rename(place)
    shutil.rmtree(old, ignore_errors=True)


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
