"""The algorithms that come with MSRL, and the way to one's own.

In: a name of the table, or path/to/file.py:TrainerClass; settings by name. Out: the Trainer class; its configuration.
What always holds: an algorithm is imported when it is asked for, and not before.
"""

import dataclasses
import difflib
import importlib
from typing import Any

from msrl import loading
from msrl.api import Config, Trainer
from msrl.errors import UsageError
from msrl.synonyms import suggest

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
    if loading.in_file(name):
        return loading.from_file(name, Trainer, _FORM)
    if name not in ALGORITHMS:
        near = difflib.get_close_matches(name.lower(), ALGORITHMS, n=3, cutoff=0.5)
        raise UsageError(
            f"there is no algorithm {name!r}." + (f" Did you mean {' or '.join(near)}?" if near else ""),
            why=f"The algorithms are {', '.join(ALGORITHMS)}.",
            instead=f"For one of your own: {_FORM[0].lower()}{_FORM[1:]}",
        )
    module, _, attribute = ALGORITHMS[name][0].partition(":")
    return loading.subclass_in(importlib.import_module(module), attribute, name, Trainer, _FORM)


def configured(cls: type[Trainer], config: Config | None, fields: dict[str, Any]) -> Config:
    """The algorithm's configuration, or its default, with `fields` in place of what it has."""
    known = [field.name for field in dataclasses.fields(cls.Config)]
    for name in fields:
        if name not in known:
            near = " or ".join(suggest(name, known))
            raise UsageError(f"{cls.__name__} has no setting {name!r}.", why=f"It has {', '.join(known)}.",
                             instead=f"Did you mean {near}?" if near else "Use one of these.")
    return dataclasses.replace(config or cls.Config(), **fields)
