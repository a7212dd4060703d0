"""Plays a policy: the first episode of each of so many environments, none counted twice and none cut short.

Taking the first episode of each, rather than the first so many to end, keeps short episodes from crowding out long
ones.
"""

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from msrl.api import Actor, Env
from msrl.engines.xla import RUN_ONCE

LONGEST = 100_000  # steps, for environments that state no limit


@struct.dataclass
class Episodes:
    returns: Any  # (E,) float32; the mean over agents where there are several
    lengths: Any  # (E,) int32
    unfinished: Any  # (E,) bool: stopped by LONGEST


class Evaluator:
    """Plays an actor in environments that come from `Env.frozen` of one and the same: what they have learnt is in their
    state, so that one compiled program plays them all."""

    def __init__(self, actor: Actor):
        self.actor = actor
        self._play: Any = None
        self._preparing: threading.Thread | None = None

    def prepare(self, env: Env, weights: Any, episodes: int) -> None:
        """Compiles in the background, from the shapes of the weights."""
        if env.traceable and self._play is None and self._preparing is None:
            shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), weights)
            self._preparing = threading.Thread(target=self._compile, args=(env, shapes, episodes), daemon=True)
            self._preparing.start()

    def settle(self) -> None:
        """Waits for what is being prepared: a process must not end amid a compilation."""
        if self._preparing:
            self._preparing.join()
            self._preparing = None

    def __call__(self, env: Env, weights: Any, key: jax.Array, episodes: int) -> Episodes:
        if not env.traceable:
            return self._on_host(env, weights, key, episodes)
        self.settle()
        if self._play is None or self._play[0] != episodes:
            self._compile(env, weights, episodes)
        # What the environment has learnt is a constant here, so that this is compiled anew for each.
        state = jax.jit(lambda key: self._init(env, key, episodes), compiler_options=RUN_ONCE)(key)
        return jax.tree.map(np.asarray, self._play[1](weights, state, key))

    def _init(self, env: Env, key: jax.Array, episodes: int) -> Any:
        return env.init(_keys(key)[0], episodes)

    def _compile(self, env: Env, weights: Any, episodes: int) -> None:
        key = jax.random.key(0)
        state = jax.eval_shape(lambda key: self._init(env, key, episodes), key)
        limit = env.spec.max_episode_steps or LONGEST

        def play(weights: Any, state: Any, key: jax.Array) -> Episodes:
            _, reset, playing = _keys(key)

            def going(carry: tuple) -> Any:
                return carry[3][2].any() & (carry[0] < limit)

            def body(carry: tuple) -> tuple:
                at, state, obs, totals = carry
                act, step = jax.random.split(jax.random.fold_in(playing, at))
                state, out = env.step(state, self.actor.exploit(weights, act, obs).action, step)
                return at + 1, state, out.obs, _count(env, jnp, totals, out)

            start = jnp.int32(0), *env.reset(state, reset), _zeros(episodes, jnp)
            return Episodes(*jax.lax.while_loop(going, body, start)[3])

        self._play = episodes, jax.jit(play).lower(weights, state, key).compile()

    def _on_host(self, env: Env, weights: Any, key: jax.Array, episodes: int) -> Episodes:
        if self._play is None:
            self._play = jax.jit(lambda weights, key, obs: self.actor.exploit(weights, key, obs).action)
        begin, reset, play = jax.random.split(key, 3)
        keys = jax.jit(lambda at: jax.random.split(jax.random.fold_in(play, at)))
        state, obs = env.reset(env.init(begin, episodes), reset)
        totals = _zeros(episodes, np)
        for at in range(env.spec.max_episode_steps or LONGEST):
            act, step = keys(np.int32(at))
            state, out = env.step(state, np.asarray(self._play(weights, act, obs)), step)
            obs, totals = out.obs, _count(env, np, totals, out)
            if not totals[2].any():
                break
        return Episodes(*totals)


def _keys(key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """To make the environments, to reset them, and to play."""
    begin, play = jax.random.split(key)
    return *jax.random.split(begin), play


def _zeros(episodes: int, xp: Any) -> tuple:
    return xp.zeros(episodes, "float32"), xp.zeros(episodes, "int32"), xp.ones(episodes, bool)


def _count(env: Env, xp: Any, totals: tuple, step: Any) -> tuple:
    """Adds a step to the episodes that are still running."""
    returns, lengths, running = totals
    reward = step.reward.mean(-1) if env.spec.agents else step.reward
    return xp.where(running, returns + reward, returns), lengths + running, running & ~step.done


def evaluation_key(seed: int) -> jax.Array:
    """A stream apart from training's."""
    return jax.random.fold_in(jax.random.key(seed), 0x7E57)


def evaluate(env: Env, actor: Actor, weights: Any, key: jax.Array, episodes: int) -> Episodes:
    """Plays once. `env` comes from `Env.frozen`: it learns nothing here."""
    return Evaluator(actor)(env, weights, key, episodes)
