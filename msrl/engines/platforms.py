"""Starting JAX on the platform that was asked for, or a word on why it does not start."""

import os

import jax
from jax._src import xla_bridge  # there is no public way to ask whether the backend runs without starting it

from msrl.errors import UsageError


def start_jax() -> int:
    """Starts JAX's backend, if it does not run yet: how many devices this process has."""
    problem = platform_problem()
    if problem is not None:
        raise problem from problem.__cause__
    return jax.local_device_count()


def platform_problem() -> UsageError | None:
    """Why JAX cannot start here; None if it runs, or can."""
    if xla_bridge.backends_are_initialized():
        return None
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as problem:  # an assertion without words, where no plug-in has the platform
        asked = jax.config.jax_platforms or ""
        said = str(problem).partition(" (set JAX_PLATFORMS")[0].strip()
        found = UsageError(
            f"JAX cannot start the platform {asked!r}." if asked else "JAX cannot start.",
            why=said or f"No plug-in for {asked} is installed, or it found no device.",
            instead="Unset JAX_PLATFORMS, or set JAX_PLATFORMS=cpu." +
            (" For GPUs of NVIDIA, run: pip install 'jax[cuda12]'" if "cuda" in asked or "gpu" in asked else "")
            if asked and "JAX_PLATFORMS" in os.environ else "Set JAX_PLATFORMS=cpu.")
        found.__cause__ = problem
        return found
    return None
