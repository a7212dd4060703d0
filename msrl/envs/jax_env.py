"""Environments written in JAX: an author writes one environment, this base class makes a batch of it.

In: `reset_one`, `observe` and `step_one`, pure functions of one environment's state, and a `spec`. Out: an `Env` whose
methods trace, with the time limit of `spec.max_episode_steps` and reset within the step that ends an episode.

What always holds:
- The state's tree, shapes and dtypes are those of `init` for ever, and nothing in it or in a Step is weakly typed, so
  that it can be carried through a compiled loop.
- An end is terminated or truncated, never both: a terminal state reached in the last permitted step is terminal.
- Randomness comes from the key alone; no two environments of a batch share a stream.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from msrl.api.env import Env, Step
from msrl.errors import EnvError


@struct.dataclass
class JaxEnvState:
    inner: Any  # the environment's own state, every leaf (B, ...)
    steps: jax.Array  # (B,) int32: steps taken in the running episode


class JaxEnv(Env):
    """A batch of environments of which the author has written one. Subclasses set `spec`."""

    @abstractmethod
    def reset_one(self, key: jax.Array) -> Any:
        """The state at the start of an episode."""

    @abstractmethod
    def observe(self, state: Any) -> jax.Array:
        """What is seen of a state: (*shape,) or (N, *shape)."""

    @abstractmethod
    def step_one(self, state: Any, action: jax.Array, key: jax.Array) -> tuple[Any, jax.Array, jax.Array]:
        """(state, reward, terminated) after an action. The time limit is not its business."""

    def reset_batch(self, key: jax.Array, num_envs: int) -> Any:
        """`num_envs` starting states. One draw for all of them is cheaper than a key for each, and resets are most
        of what a small environment costs: a subclass for which that is a line overrides this."""
        return jax.vmap(self.reset_one)(jax.random.split(key, num_envs))

    def init(self, key: jax.Array, num_envs: int) -> JaxEnvState:
        inner = _strong(self.reset_batch(key, num_envs))
        return JaxEnvState(inner=inner, steps=jnp.zeros(num_envs, jnp.int32))

    def reset(self, state: JaxEnvState, key: jax.Array) -> tuple[JaxEnvState, jax.Array]:
        state = self.init(key, state.steps.shape[0])
        return state, self._observe(state.inner)

    def step(self, state: JaxEnvState, action: jax.Array, key: jax.Array) -> tuple[JaxEnvState, Step]:
        num_envs = state.steps.shape[0]
        # The compiler drops these keys where step_one ignores its own, as deterministic dynamics do.
        keys = jax.random.split(jax.random.fold_in(key, 1), num_envs)
        inner, reward, terminated = jax.vmap(self.step_one)(state.inner, action, keys)
        inner = _strong(inner)
        self._check_form(state.inner, inner)
        final_obs = self._observe(inner)  # (B, *shape)
        steps = state.steps + 1
        terminated = terminated.astype(bool)
        limit = self.spec.max_episode_steps
        truncated = jnp.zeros_like(terminated) if limit is None else (steps >= limit) & ~terminated
        done = terminated | truncated
        begin = jax.random.fold_in(key, 0)  # XLA would compile it into each of the draws, again and again

        def restart():
            fresh = _strong(self.reset_batch(begin, num_envs))
            return _where(done, (fresh, self._observe(fresh)), (inner, final_obs))

        # Drawing B starting states costs more than most dynamics, and in most steps no episode ends. Where none does,
        # to restart changes nothing.
        inner, obs = _if(_anywhere(done), restart, lambda: (inner, final_obs))
        step = Step(
            obs=obs,
            reward=lax.convert_element_type(reward, jnp.float32),
            terminated=terminated,
            truncated=truncated,
            final_obs=final_obs,
        )
        return JaxEnvState(inner=inner, steps=jnp.where(done, 0, steps)), step

    def _observe(self, inner: Any) -> jax.Array:
        return _strong(jax.vmap(self.observe)(inner))

    def _check_form(self, before: Any, after: Any) -> None:
        if (was := _form(before)) != (now := _form(after)):
            raise EnvError(
                f"{type(self).__name__}.step_one changes the form of its state.",
                why=f"It was given {was} and returned {now}, and a loop can only carry a state whose form is fixed.",
                instead="Return the same structure, shapes and dtypes that reset_one makes.",
            )


@jax.custom_batching.custom_vmap
def _anywhere(flags: jax.Array) -> jax.Array:
    """Is one of them true, here or in another element of a batch? Of a condition that differs within a batch, JAX would
    compute both sides in every step."""
    return flags.any()


@_anywhere.def_vmap
def _anywhere_in_batch(size: int, batched: list[bool], flags: jax.Array) -> tuple[jax.Array, bool]:
    return _anywhere(flags), False


def _if(condition: jax.Array, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
    """lax.cond, which outside of a compiled program would compile its new-made branches afresh in every call."""
    if isinstance(condition, jax.core.Tracer):
        return lax.cond(condition, yes, no)
    return yes() if condition else no()


def _strong(tree: Any) -> Any:
    """The same values with their dtypes fixed: a Python scalar in an author's formula leaves a weak type behind,
    which another formula may promote."""
    return jax.tree.map(lambda x: lax.convert_element_type(x, x.dtype) if x.weak_type else x, tree)


def _where(mask: jax.Array, yes: Any, no: Any) -> Any:
    """Per environment: mask is (B,), the leaves are (B, ...)."""
    return jax.tree.map(lambda y, n: jnp.where(mask.reshape(-1, *[1] * (y.ndim - 1)), y, n), yes, no)


def _form(tree: Any) -> str:
    """Structure, shapes and dtypes, as text."""
    return str(jax.tree.map(lambda x: f"{x.dtype}{list(x.shape)}", tree))
