"""Trainer: an algorithm's parts and the plain loop that ties them together."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from msrl.api.agent import Agent
from msrl.api.buffer import Buffer
from msrl.api.component import Component
from msrl.api.env import Env, EnvSpec
from msrl.api.interaction import Interaction
from msrl.api.ranges import Count, check_values


@dataclass(frozen=True)
class Config:
    """What every algorithm's configuration has. Subclasses add their own fields, each with its default.

    A field whose type says what values it takes (`Count`, `Portion`, ... of msrl.api) is checked whenever a
    configuration is made; `check` is for what several fields must agree on.
    """

    total_steps: Count = 300_000
    """Environment steps to train for."""
    num_envs: Count = 8
    """Environments that step side by side."""
    shards: Count = 1
    """Parts the environments are divided into: the unit of replication. Part of the algorithm, as each has its own
    random streams and statistics."""
    learner_shards: Count = 1
    """Learners, each with its part of the shards, of every batch and of a replay; their gradients are averaged. Part
    of the algorithm, as it changes the result."""
    agent_shards: Count = 1
    """Parts the agents are divided into, each with networks and a learner of its own. Part of the algorithm, as it
    changes the result."""

    def __post_init__(self) -> None:
        check_values(self)
        self.check()

    def check(self) -> None:
        """Raises a UsageError if fields do not fit together. Each is known to have a value of its range."""


class Trainer(ABC):
    """Subclass, name a Config, build the parts, write the loop."""

    Config: ClassVar[type[Config]]

    def __init__(self, config: Config, spec: EnvSpec):
        self.config = config
        self.spec = spec

    @property
    def team(self) -> int:
        """How many agents one actor and one learner have to do with: those of an agent shard."""
        return len(self.spec.agents) // self.config.agent_shards

    @abstractmethod
    def agent(self) -> Agent:
        """The actor and the learner, made for `self.spec`."""

    def buffers(self) -> Mapping[str, Buffer]:
        """The stores that the loop inserts into and samples from, by name. One alone is the default."""
        return {}

    def components(self) -> Mapping[str, Component]:
        """Components of one's own, called by `msrl.call(name, method, ...)`."""
        return {}

    @staticmethod
    def wrap(env: Env, config: Config) -> Env:
        """The environment with the wrappers that the configuration asks for."""
        return env

    @abstractmethod
    def train(self, msrl: Interaction) -> None:
        """The loop."""
