"""JAX's persistent compilation cache, in the user's cache folder.

`enable` goes before the first compilation, and may be called again. MSRL_CACHE_DIR names another folder;
MSRL_CACHE_DIR=off leaves JAX as it is, and so does JAX's own JAX_COMPILATION_CACHE_DIR. A folder that cannot be written
is no reason to stop: then nothing is cached.
"""

import os
from pathlib import Path

import jax

MIN_SECONDS = 0.1  # what compiles faster is not worth a file


def folder() -> Path | None:
    """Where compiled programs are kept; None where that is not ours to say."""
    named = os.environ.get("MSRL_CACHE_DIR", "")
    if named == "off" or (not named and os.environ.get("JAX_COMPILATION_CACHE_DIR")):
        return None
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "msrl"
    return (Path(named).expanduser() if named else base) / "xla"


def enable() -> Path | None:
    """Turns the cache on: the folder in use, or None."""
    place = folder()
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
