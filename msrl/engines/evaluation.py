"""Plays a policy: the first episode of each of so many environments, none counted twice and none cut short.

Taking the first episode of each, rather than the first so many to end, keeps short episodes from crowding out long
ones.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from msrl.api import Actor, Env

LONGEST = 100_000  # steps, for environments that state no limit


@struct.dataclass
class Episodes:
    returns: Any  # (E,) float32; the mean over agents where there are several
    lengths: Any  # (E,) int32
    unfinished: Any  # (E,) bool: stopped by LONGEST


def evaluate(env: Env, actor: Actor, weights: Any, key: jax.Array, episodes: int) -> Episodes:
    """`env` comes from `Env.frozen`: it learns nothing here."""
    limit = env.spec.max_episode_steps or LONGEST
    if env.traceable:
        return jax.tree.map(np.asarray, jax.jit(_compiled, static_argnums=(0, 1, 4, 5))(
            _Same(env), _Same(actor), weights, key, episodes, limit))
    return _on_host(env, actor, weights, key, episodes, limit)


def _start(episodes: int, xp: Any) -> tuple:
    return xp.zeros(episodes, "float32"), xp.zeros(episodes, "int32"), xp.ones(episodes, bool)


def _count(env: Env, xp: Any, totals: tuple, step: Any) -> tuple:
    """Adds a step to the episodes that are still running."""
    returns, lengths, running = totals
    reward = step.reward.mean(-1) if env.spec.agents else step.reward
    return xp.where(running, returns + reward, returns), lengths + running, running & ~step.done


class _Same:
    """Stands for an object in JAX's cache, by identity."""

    def __init__(self, held: Any):
        self.held = held

    def __hash__(self) -> int:
        return id(self.held)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.held is self.held


def _compiled(env: _Same, actor: _Same, weights: Any, key: jax.Array, episodes: int, limit: int) -> Episodes:
    begin, reset, play = jax.random.split(key, 3)
    state, obs = env.held.reset(env.held.init(begin, episodes), reset)

    def going(carry: tuple) -> Any:
        return carry[3][2].any() & (carry[0] < limit)

    def body(carry: tuple) -> tuple:
        at, state, obs, totals = carry
        act, step = jax.random.split(jax.random.fold_in(play, at))
        action = actor.held.exploit(weights, act, obs).action
        state, out = env.held.step(state, action, step)
        return at + 1, state, out.obs, _count(env.held, jnp, totals, out)

    _, _, _, totals = jax.lax.while_loop(going, body, (jnp.int32(0), state, obs, _start(episodes, jnp)))
    return Episodes(*totals)


def _on_host(env: Env, actor: Actor, weights: Any, key: jax.Array, episodes: int, limit: int) -> Episodes:
    exploit = jax.jit(lambda weights, key, obs: actor.exploit(weights, key, obs).action)
    begin, reset, play = jax.random.split(key, 3)
    keys = jax.jit(lambda at: jax.random.split(jax.random.fold_in(play, at)))
    state, obs = env.reset(env.init(begin, episodes), reset)
    totals = _start(episodes, np)
    for at in range(limit):
        act, step = keys(np.int32(at))
        state, out = env.step(state, np.asarray(exploit(weights, act, obs)), step)
        obs, totals = out.obs, _count(env, np, totals, out)
        if not totals[2].any():
            break
    return Episodes(*totals)
