"""Strict mode's surroundings: what must be equal between two processes for their results to have equal bits.

XLA divides a long sum among its threads and chooses its kernels by the instruction set, so the number of threads and
the instruction set are pinned, before JAX starts its backend (importing JAX does not start it). `record` is what a run
folder keeps of it.
"""

import os
import platform
import shlex
from typing import Any

import jax
import jaxlib
from jax._src import xla_bridge  # there is no public way to ask whether the backend runs without starting it

from msrl.errors import UsageError

VARIABLES = {"PJRT_NPROC": "1"}  # threads of the CPU client
FLAGS = {"--xla_gpu_deterministic_ops": "true"}
if platform.machine().lower() in ("x86_64", "amd64"):
    FLAGS["--xla_cpu_max_isa"] = "AVX2"  # all that x86-64 machines of the last decade share


def pin() -> None:
    """Makes strict mode's settings those of this process."""
    wrong = _wrong()
    started = xla_bridge.backends_are_initialized()
    if started and (wrong or _missing()):
        raise UsageError(
            "Strict mode cannot begin in this process.",
            why="JAX already runs with other settings, and the number of threads and the instruction set are fixed "
                "once it has started.",
            instead=f"Start the process anew with: {_line()}")
    if wrong:
        raise UsageError(
            f"Strict mode cannot keep {' '.join(f'{name}={value}' for name, value in wrong.items())}.",
            why="Results have equal bits only under equal settings.",
            instead=f"Unset it, or set: {_line()}")
    os.environ.update(VARIABLES)
    os.environ["XLA_FLAGS"] = " ".join([*_given(), *(f"{name}={FLAGS[name]}" for name in FLAGS if name in _missing())])


def pinned() -> bool:
    """Does this process run under strict mode's settings (or will, once JAX starts)?"""
    return not _wrong() and not _missing()


def record() -> dict[str, Any]:
    """What the bits of a result depend on, apart from the run's own configuration."""
    return {
        "pinned": pinned(),
        "PJRT_NPROC": os.environ.get("PJRT_NPROC"),
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
        "machine": platform.machine(),
        "platform": jax.default_backend(),
        "jaxlib": jaxlib.__version__,
    }


def _given() -> list[str]:
    return shlex.split(os.environ.get("XLA_FLAGS", ""))


def _wrong() -> dict[str, str]:
    """Settings that someone chose otherwise."""
    flags = dict(flag.partition("=")[::2] for flag in _given())
    wrong = {name: flags[name] for name, value in FLAGS.items() if name in flags and flags[name] != value}
    return wrong | {name: os.environ[name] for name, value in VARIABLES.items() if os.environ.get(name, value) != value}


def _missing() -> set[str]:
    given = {flag.partition("=")[0] for flag in _given()}
    on_cpu = xla_bridge.backends_are_initialized() and jax.default_backend() == "cpu"  # GPUs' flags are then no matter
    return ({name for name in FLAGS if name not in given and not (on_cpu and name.startswith("--xla_gpu"))}
            | {name for name in VARIABLES if name not in os.environ})


def _line() -> str:
    flags = " ".join(f"{name}={value}" for name, value in FLAGS.items())
    return " ".join([*(f"{name}={value}" for name, value in VARIABLES.items()), f'XLA_FLAGS="{flags}"'])
