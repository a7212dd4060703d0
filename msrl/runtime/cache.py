"""JAX's persistent compilation cache, in the user's cache folder.

`enable` goes before the first compilation, and may be called again. MSRL_CACHE_DIR names another folder, and
MSRL_CACHE_DIR=off leaves JAX as it is. A folder that cannot be written is no reason to stop: then nothing is cached.
"""

import os
from pathlib import Path

import jax

MIN_SECONDS = 0.1  # what compiles faster is not worth a file


def folder(strict: bool = False) -> Path | None:
    """Where compiled programs are kept; None for nowhere. Strict mode has a place of its own, because the number of
    threads is compiled into a program and JAX does not tell such programs apart."""
    named = os.environ.get("MSRL_CACHE_DIR", "")
    if named == "off":
        return None
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "msrl"
    return (Path(named).expanduser() if named else base) / ("xla-strict" if strict else "xla")


def enable(strict: bool = False) -> Path | None:
    """Turns the cache on: the folder in use, or None."""
    place = folder(strict)
    if place is None:
        return None
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    if not os.access(place, os.W_OK):
        return None
    jax.config.update("jax_compilation_cache_dir", str(place))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", MIN_SECONDS)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return place
