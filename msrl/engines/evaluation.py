"""Plays a policy: the first episode of each of so many environments, none counted twice and none cut short.

Taking the first episode of each, rather than the first so many to end, keeps short episodes from crowding out long
ones.

It is played in pieces, between which whoever waits for it hears how far it is, and may leave. The bits do not depend on
where it is cut.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from msrl.api import Actor, Env
from msrl.engines.ahead import Ahead
from msrl.engines.xla import RUN_ONCE

LONGEST = 100_000  # steps, for environments that state no limit
STREAM = 0x7E57  # folded into the root key, which training draws from too
PIECE_SECONDS = 0.1  # of playing without a word, about
Watch = Callable[[int], bool]  # is told how many episodes have ended; True to go on


class Abandoned(Exception):
    """Nobody waits for the evaluation any more."""


@struct.dataclass
class Episodes:
    returns: Any  # (E,) float32; the mean over agents where there are several
    lengths: Any  # (E,) int32
    unfinished: Any  # (E,) bool: stopped by LONGEST


class Evaluator:
    """Plays an actor in environments that come from `Env.frozen` of one and the same: what they have learnt is in their
    state, so that one compiled program plays them all. The weights of several agent shards are stacked."""

    def __init__(self, actor: Actor, agent_shards: int = 1):
        self.actor, self.agent_shards = actor, agent_shards
        self._play: Any = None  # on the host, what chooses actions; else (number of episodes, its two programs)

    def choose(self, weights: Any, key: jax.Array, obs: Any) -> Any:
        """The actions of all agents."""
        count = self.agent_shards
        if count == 1:
            return self.actor.exploit(weights, key, obs).action

        def apart(x: Any) -> Any:  # (B, N, ...) → (B, G, N / G, ...)
            return x.reshape(x.shape[0], count, x.shape[1] // count, *x.shape[2:])

        all_ = "obs" in self.actor.sees_all
        each = jax.vmap(lambda *given: self.actor.exploit(*given).action, (0, 0, None if all_ else 1), 1)
        actions = each(weights, jax.random.split(key, count), obs if all_ else jax.tree.map(apart, obs))
        return jax.tree.map(lambda x: x.reshape(x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:]), actions)

    def prepare(self, env: Env, weights: Any, episodes: int) -> None:
        """Lets it be compiled in the background, from the shapes of the weights."""
        if env.traceable:
            shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), weights)
            for program in self._programs(env, shapes, episodes):
                program.begin()

    def __call__(self, env: Env, weights: Any, root: jax.Array, episodes: int,
                 watch: Watch = lambda ended: True) -> Episodes:
        if not env.traceable:
            return self._on_host(env, weights, root, episodes, watch)
        play, begin = (program.result() for program in self._programs(env, weights, episodes))
        # What the environment has learnt is a constant here, so that this is compiled anew for each.
        init, reset, playing = _keys(root)
        carry = begin(jax.jit(lambda key: env.init(key, episodes), compiler_options=RUN_ONCE)(init), reset)
        limit, at, piece = env.spec.max_episode_steps or LONGEST, 0, 16
        while at < limit:
            began, at = time.perf_counter(), min(at + piece, limit)
            carry = play(weights, carry, playing, np.int32(at))
            going = int(np.sum(np.asarray(carry[3][2])))
            if not going:
                break
            if not watch(episodes - going):
                raise Abandoned
            piece *= 2 if time.perf_counter() - began < PIECE_SECONDS else 1
        return jax.tree.map(np.asarray, Episodes(*carry[3]))

    def _programs(self, env: Env, weights: Any, episodes: int) -> tuple[Ahead, Ahead]:
        """What plays on, up to so many steps, and what it begins with. Traced once for each number of episodes in
        turn."""
        if self._play is not None and self._play[0] == episodes:
            return self._play[1]
        key = jax.random.key(0)
        state = jax.eval_shape(lambda key: env.init(key, episodes), key)

        def begin(state: Any, reset: jax.Array) -> tuple:
            return jnp.int32(0), *env.reset(state, reset), _zeros(episodes, jnp)

        def play(weights: Any, carry: tuple, playing: jax.Array, until: Any) -> tuple:
            def going(carry: tuple) -> Any:
                return carry[3][2].any() & (carry[0] < until)

            def body(carry: tuple) -> tuple:
                at, state, obs, totals = carry
                act, step = jax.random.split(jax.random.fold_in(playing, at))
                state, out = env.step(state, self.choose(weights, act, obs), step)
                return at + 1, state, out.obs, _count(env, jnp, totals, out)

            return jax.lax.while_loop(going, body, carry)

        first = Ahead(jax.jit(begin), state, key)
        self._play = episodes, (Ahead(jax.jit(play), weights, first.returns, key, np.int32(0)), first)
        return self._play[1]

    def _on_host(self, env: Env, weights: Any, root: jax.Array, episodes: int, watch: Watch) -> Episodes:
        if self._play is None:
            self._play = jax.jit(self.choose)
        begin, reset, play = jax.random.split(jax.random.fold_in(root, STREAM), 3)
        keys = jax.jit(lambda at: jax.random.split(jax.random.fold_in(play, at)))
        state, obs = env.reset(env.init(begin, episodes), reset)
        totals, told = _zeros(episodes, np), time.perf_counter()
        for at in range(env.spec.max_episode_steps or LONGEST):
            act, step = keys(np.int32(at))
            state, out = env.step(state, np.asarray(self._play(weights, act, obs)), step)
            obs, totals = out.obs, _count(env, np, totals, out)
            going = int(totals[2].sum())
            if not going:
                break
            if time.perf_counter() - told > PIECE_SECONDS:
                told = time.perf_counter()
                if not watch(episodes - going):
                    raise Abandoned
        return Episodes(*totals)


@jax.jit
def _keys(root: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """To make the environments, to reset them, and to play. A program of its own: where keys are derived in the program
    that draws with them, XLA derives them for every number anew, which takes seconds to compile."""
    begin, play = jax.random.split(jax.random.fold_in(root, STREAM))
    return *jax.random.split(begin), play


def _zeros(episodes: int, xp: Any) -> tuple:
    return xp.zeros(episodes, "float32"), xp.zeros(episodes, "int32"), xp.ones(episodes, bool)


def _count(env: Env, xp: Any, totals: tuple, step: Any) -> tuple:
    """Adds a step to the episodes that are still running."""
    returns, lengths, running = totals
    reward = step.reward.mean(-1) if env.spec.agents else step.reward
    return xp.where(running, returns + reward, returns), lengths + running, running & ~step.done


def evaluate(env: Env, actor: Actor, weights: Any, root: jax.Array, episodes: int) -> Episodes:
    """Plays once. `env` comes from `Env.frozen`: it learns nothing here."""
    return Evaluator(actor)(env, weights, root, episodes)
