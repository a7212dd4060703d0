"""The algorithms that come with MSRL, and the way to one's own.

In: a name of the table, or path/to/file.py:TrainerClass. Out: the Trainer class. What always holds: an algorithm is
imported when it is asked for, and not before.
"""

import difflib
import importlib
import importlib.util
import sys
import zlib
from pathlib import Path
from types import ModuleType

from msrl.api import Trainer
from msrl.errors import UsageError

ALGORITHMS: dict[str, tuple[str, str]] = {
    "a2c": ("msrl.algorithms.a2c:A2C", "advantage actor-critic, all environments together: any actions"),
    "a3c": ("msrl.algorithms.a3c:A3C", "advantage actor-critic with the short rollouts of the asynchronous one"),
    "dqn": ("msrl.algorithms.dqn:DQN", "deep Q-learning, double and duelling: choices, vectors or images"),
    "impala": ("msrl.algorithms.impala:IMPALA", "actor-critic that corrects for rollouts older than its policy"),
    "mappo": ("msrl.algorithms.mappo:MAPPO", "PPO for several agents: a shared policy and a critic that sees all"),
    "ppo": ("msrl.algorithms.ppo:PPO", "proximal policy optimisation: any actions, vectors or images"),
    "sac": ("msrl.algorithms.sac:SAC", "soft actor-critic: continuous actions within bounds"),
}
"""name: (module:class, what it is)."""

_FORM = "Write path/to/file.py:TrainerClass."


def load(name: str) -> type[Trainer]:
    """The Trainer class of a built-in algorithm, or of a file."""
    path, colon, attribute = name.rpartition(":")
    if colon and path.endswith(".py"):
        return _trainer(_module_of_file(path, name), attribute, name)
    if name.endswith(".py"):
        raise UsageError(f"{name} does not say which class to train.", instead=_FORM)
    if name not in ALGORITHMS:
        near = difflib.get_close_matches(name.lower(), ALGORITHMS, n=3, cutoff=0.5)
        raise UsageError(
            f"there is no algorithm {name!r}." + (f" Did you mean {' or '.join(near)}?" if near else ""),
            why=f"The algorithms are {', '.join(ALGORITHMS)}.",
            instead=f"For one of your own: {_FORM[0].lower()}{_FORM[1:]}",
        )
    module, _, attribute = ALGORITHMS[name][0].partition(":")
    return _trainer(importlib.import_module(module), attribute, name)


def _module_of_file(path: str, name: str) -> ModuleType:
    file = Path(path).resolve()
    if not file.is_file():
        raise UsageError(f"{name}: there is no file {path}.", instead=_FORM)
    # Registered under a name that is the same in every process, so that source and pickles find the module again.
    qualified = f"msrl_user_{file.stem}_{zlib.crc32(str(file).encode()):08x}"
    if qualified in sys.modules:
        return sys.modules[qualified]
    spec = importlib.util.spec_from_file_location(qualified, file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[qualified] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[qualified]
        raise
    return module


def _trainer(module: ModuleType, attribute: str, name: str) -> type[Trainer]:
    found = vars(module).get(attribute)
    if _is_trainer(found):
        return found
    trainers = [each for each, value in vars(module).items() if _is_trainer(value)]
    raise UsageError(
        f"{name}: {attribute} is not a Trainer." if attribute in vars(module) else f"{name}: no class {attribute!r}.",
        why=f"The file's trainers are {', '.join(trainers)}." if trainers else "The file has no subclass of Trainer.",
        instead=_FORM,
    )


def _is_trainer(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Trainer) and value is not Trainer
