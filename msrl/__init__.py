"""MSRL: reinforcement learning written once as a plain loop, compiled to fragments that run anywhere.

`msrl.train("ppo", env="CartPole-v1")` trains; `msrl.compile(...)` gives the program to run step by step;
`msrl.eager(...)` runs the loop as plain Python, for a debugger. Names are imported when first asked for, so that
`import msrl` (and `msrl --help`) does not wait for JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msrl.debugging import eager
    from msrl.deployment import Deployment
    from msrl.pipeline import Program, Update
    from msrl.training import Result, compile, resume, train

__version__ = "0.1.0"
__all__ = ["Deployment", "Program", "Result", "Update", "__version__", "compile", "eager", "resume", "train"]

_HOMES = {
    "Deployment": "msrl.deployment",
    "Program": "msrl.pipeline",
    "Result": "msrl.training",
    "Update": "msrl.pipeline",
    "compile": "msrl.training",
    "eager": "msrl.debugging",
    "resume": "msrl.training",
    "train": "msrl.training",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'msrl' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
