"""The environment protocol: a shard's batch of environments, as pure functions of an explicit state.

Every array has the batch dimension B first. With several agents (`spec.agents`) the agent dimension N comes second in
observations, actions and rewards; termination is an environment's, never an agent's.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from flax import struct

from msrl.api.spaces import Space
from msrl.errors import UsageError


@struct.dataclass
class Step:
    """What one step of B environments gives.

    An episode's end is either `terminated` (a terminal state: its value is 0) or `truncated` (a time limit: bootstrap
    from `final_obs`). Environments reset themselves: where an episode ended, `obs` is the first observation of the
    next one, and `final_obs` the true last one. Elsewhere the two are equal.
    """

    obs: Any  # (B, *shape) or (B, N, *shape): what to act on next
    reward: Any  # (B,) or (B, N), float32
    terminated: Any  # (B,) bool
    truncated: Any  # (B,) bool
    final_obs: Any  # like obs: what this very step led to

    @property
    def done(self) -> Any:
        """(B,) bool: the episode ended, one way or the other."""
        return self.terminated | self.truncated


@dataclass(frozen=True)
class EnvSpec:
    """What an algorithm may know of its environment."""

    id: str
    observation: Space  # of one agent
    action: Space  # of one agent
    agents: tuple[str, ...] = ()  # empty: one agent, and no agent dimension
    max_episode_steps: int | None = None

    def batch(self, space: Space, num_envs: int) -> tuple[int, ...]:
        """The shape of `num_envs` environments' worth of a space: (B, *shape) or (B, N, *shape)."""
        return (num_envs, *((len(self.agents),) if self.agents else ()), *space.shape)


class Env(ABC):
    """A batch of environments. Traceable ones are JAX functions; the others are Python objects on the host, whose
    state slot holds NumPy arrays and a handle, and whose methods take and return NumPy."""

    traceable: bool = True
    draws: bool = True  # does a step use its key? If not, none is made for it on the host
    called_back: bool = False  # on the host: may a compiled program call its step? That must then not use JAX itself
    spec: EnvSpec

    @abstractmethod
    def init(self, key: jax.Array, num_envs: int) -> Any:
        """The state of `num_envs` environments before their first reset; its tree never changes afterwards."""

    @abstractmethod
    def reset(self, state: Any, key: jax.Array) -> tuple[Any, Any]:
        """Starts a new episode everywhere: (state, obs)."""

    @abstractmethod
    def step(self, state: Any, action: Any, key: jax.Array) -> tuple[Any, Step]:
        """Steps every environment once and resets those whose episode ended: (state, Step)."""

    def frozen(self, states: Sequence[Any]) -> "Env":
        """An environment for evaluation: it has all that the shards' `states` have learnt (normalisers, say), learns
        nothing more, and gives the original rewards. Most environments learn nothing, and return themselves."""
        return self

    def trouble(self, faults: Sequence[tuple[str, int]]) -> None:
        """Lets steps go wrong on purpose, each once: ("raise" or "hang", number of the step from now on, from 1). Only
        what is replaced when it fails can survive that; all others refuse."""
        if faults:
            raise UsageError(
                f"--chaos {faults[0][0]}:env cannot befall {self.spec.id}.",
                why="Its steps are part of compiled programs, which do not raise or hang." if self.traceable else
                "It is a class of your own, and is not replaced when it fails.",
                instead="Use an environment of gymnasium:, envpool: or pettingzoo:, or nan:reward or nan:observation.",
                docs="docs/reliability.md#faults-on-purpose")

    def close(self) -> None:  # noqa: B027 (most hold nothing)
        """Frees what is held outside Python's memory."""

    def obs_shape(self, num_envs: int) -> jax.ShapeDtypeStruct:
        space = self.spec.observation
        return jax.ShapeDtypeStruct(self.spec.batch(space, num_envs), np.dtype(space.dtype))

    def step_shape(self, num_envs: int) -> Step:
        """A Step of shapes: what `step` returns, without stepping."""
        obs = self.obs_shape(num_envs)
        agents = (len(self.spec.agents),) if self.spec.agents else ()
        flag = jax.ShapeDtypeStruct((num_envs,), np.dtype(bool))
        reward = jax.ShapeDtypeStruct((num_envs, *agents), np.dtype("float32"))
        return Step(obs=obs, reward=reward, terminated=flag, truncated=flag, final_obs=obs)
