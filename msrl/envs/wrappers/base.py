"""Wrappers: an environment around an environment, over JAX arrays and NumPy arrays alike.

A subclass overrides hooks that are pure functions of its own state: `start`, `on_reset`, `on_action`, `on_step`. Its
state lies in `Wrapped.own`, per shard, beside that of the environment inside. It always holds that `reset` starts new
episodes without forgetting what was learnt.
"""

from abc import abstractmethod
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from msrl.api.env import Env, Step
from msrl.envs.contract import check_pair


@struct.dataclass
class Wrapped:
    """A wrapper's state."""

    inner: Any  # the state of the environment inside
    own: Any  # the wrapper's own; None if it needs none


class Wrapper(Env):
    def __init__(self, env: Env):
        self.env = env
        self.spec = env.spec
        self.traceable = env.traceable
        plain = type(self).step is Wrapper.step
        self.draws, self.called_back = env.draws or not plain, env.called_back and plain

    @property
    def xp(self) -> ModuleType:
        """The array module that the environment speaks."""
        return jnp if self.traceable else np

    def start(self, num_envs: int) -> Any:
        """The own state before the first reset."""
        return None

    def on_reset(self, own: Any, obs: Any) -> tuple[Any, Any]:
        return own, obs

    def on_action(self, action: Any) -> Any:
        return action

    def on_step(self, own: Any, step: Step) -> tuple[Any, Step]:
        return own, step

    @abstractmethod
    def rewrap(self, env: Env) -> Env:
        """The same wrapper around another environment."""

    def init(self, key: jax.Array, num_envs: int) -> Wrapped:
        return Wrapped(self.env.init(key, num_envs), self.start(num_envs))

    def reset(self, state: Wrapped, key: jax.Array) -> tuple[Wrapped, Any]:
        inner, obs = check_pair(self.env.reset(state.inner, key), self.env, "reset")
        own, obs = self.on_reset(state.own, obs)
        return Wrapped(inner, own), obs

    def step(self, state: Wrapped, action: Any, key: jax.Array) -> tuple[Wrapped, Step]:
        action = action if self.traceable else np.asarray(action)
        inner, step = check_pair(self.env.step(state.inner, self.on_action(action), key), self.env, "step")
        own, step = self.on_step(state.own, step)
        return Wrapped(inner, own), step

    def obs_shape(self, num_envs: int) -> Any:
        """That of the environment inside, which may be a tree; a wrapper that changes observations changes the spec."""
        same = self.spec.observation is self.env.spec.observation
        return self.env.obs_shape(num_envs) if same else super().obs_shape(num_envs)

    def step_shape(self, num_envs: int) -> Step:
        obs = self.obs_shape(num_envs)
        return self.env.step_shape(num_envs).replace(obs=obs, final_obs=obs)

    def frozen(self, states: Sequence[Wrapped]) -> Env:
        return self.rewrap(self.env.frozen([state.inner for state in states]))

    def trouble(self, faults: Sequence[tuple[str, int]]) -> None:
        self.env.trouble(faults)

    def close(self) -> None:
        self.env.close()


def per_env(flag: Any, like: Any) -> Any:
    """(B,) reshaped to (B, 1, ...), so that it broadcasts against `like`."""
    return flag.reshape(flag.shape + (1,) * (like.ndim - 1))
