"""What each op does, for one shard: component methods behind one uniform signature.

In: a trainer, its environment and configuration. Out: for every (component, method) an `Op` whose `run` takes
(key, resources, arguments, fields) and returns (value, resources written). An op knows whether it runs once per shard
of the environments and on which dimension of its arrays the shards lie. Random keys depend on
(seed, component and method, shard, how often the method was called), and on nothing else.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from msrl.api import Agent, Buffer, Component, Config, Env, Record, Trainer
from msrl.errors import TypeCheckError, UsageError


@dataclass(frozen=True)
class Op:
    run: Callable[[jax.Array, tuple, tuple, dict], tuple[Any, tuple]]
    traceable: bool
    keyed: bool = True  # its last resource is a counter
    sharded: bool = False  # runs once per shard of the environments
    out_dim: int = 0  # the dimension of its value on which the shards lie
    states: int = 1  # how many of the resources it reads are per-shard states (weights are shared)


@dataclass(frozen=True)
class World:
    """A trainer's components, made for one environment and configuration, with all of its shards or a run of them."""

    trainer: Trainer
    env: Env
    agent: Agent
    buffers: Mapping[str, Buffer]
    own: Mapping[str, Component]
    first_shard: int = 0
    shards: int = 1

    @property
    def config(self) -> Config:
        return self.trainer.config

    @property
    def envs_per_shard(self) -> int:
        return self.config.num_envs // self.config.shards

    @property
    def num_envs(self) -> int:
        """The environments of this world's shards."""
        return self.envs_per_shard * self.shards

    def cut(self, whole: Any, dim: int) -> Any:
        """This world's part of a value that has an entry for every environment; anything else as it is."""
        total, first = self.config.num_envs, self.first_shard * self.envs_per_shard
        if self.num_envs == total:
            return whole

        def leaf(x: Any) -> Any:
            divided = getattr(x, "ndim", 0) > dim and x.shape[dim] == total
            return x[(slice(None),) * dim + (slice(first, first + self.num_envs),)] if divided else x

        return jax.tree.map(leaf, whole)

    def part(self, shards: range) -> "World":
        """The same components with some of the shards only."""
        return replace(self, first_shard=shards.start, shards=len(shards))

    def traceable(self, component: str) -> bool:
        match component:
            case "env":
                return self.env.traceable
            case "actor" | "learner" | "metrics":
                return True
        return (self.buffers.get(component) or self.own[component]).traceable

    def sharded(self, component: str) -> bool:
        """Does the component keep one state per shard?"""
        return component == "env" or (component in self.buffers and self.buffers[component].home == "actor")


def make_world(trainer: Trainer, env: Env) -> World:
    config = trainer.config
    if config.shards < 1 or config.num_envs % config.shards:
        raise UsageError(
            f"{config.num_envs} environments cannot be divided into {config.shards} shards.",
            why="All shards have the same number of environments, so that they run the same program.",
            instead=f"Use --shards with a divisor of {config.num_envs}, or change --num-envs.")
    buffers = {name: buffer.for_env(env.traceable) for name, buffer in trainer.buffers().items()}
    own = dict(trainer.components())
    reserved = {"env", "actor", "learner", "metrics", "weights"}
    for name in (*buffers, *own):
        if name in reserved or (name in buffers and name in own) or not name.isidentifier():
            raise UsageError(f"A component cannot be called {name!r}.",
                             why=f"Names are identifiers, each used once; {', '.join(sorted(reserved))} are taken.",
                             instead="Give it another name in `buffers()` or `components()`.")
    return World(trainer, env, trainer.agent(), buffers, own, shards=config.shards)


def make_op(world: World, component: str, method: str) -> Op:
    """The op for one method of a component."""
    env, actor, learner = world.env, world.agent.actor, world.agent.learner

    match component, method:
        case "env", "init":
            return Op(lambda key, s, a, k: (None, (env.init(key, world.envs_per_shard),)), env.traceable, False, True)
        case "env", "reset":
            def reset(key, states, args, fields):
                state, obs = env.reset(states[0], key)
                return obs, (state,)
            return Op(reset, env.traceable, sharded=True)
        case "env", "step":
            def step(key, states, args, fields):
                state, out = env.step(states[0], args[0], key)
                return out, (state,)
            return Op(step, env.traceable, sharded=True)
        case "actor", "act":
            return Op(lambda key, s, a, k: (actor.act(s[0], key, *a), ()), True, sharded=True, states=0)
        case "learner", "init":
            def begin(key, states, args, fields):
                state = learner.init(key)
                return None, (state, learner.weights(state))
            return Op(begin, True, keyed=False)
        case "learner", "learn":
            def learn(key, states, args, fields):
                state, out = learner.learn(states[0], key, *args)
                return out, (state, learner.weights(state))
            return Op(learn, True)
    if component in world.buffers:
        return _buffer_op(world.buffers[component], method)
    return _own_op(world.own[component], method)


def _buffer_op(buffer: Buffer, method: str) -> Op:
    traceable, sharded = buffer.traceable, buffer.home == "actor"
    match method:
        case "insert":
            return Op(lambda key, s, a, fields: (None, (buffer.insert(s[0], Record(**fields)),)), traceable,
                      keyed=False, sharded=sharded)
        case "sample":
            def sample(key, states, args, fields):
                state, batch = buffer.sample(states[0], key)
                return batch, (state,)
            return Op(sample, traceable, sharded=sharded, out_dim=1 if sharded else 0)
    return _own_op(buffer, method, sharded)


def _own_op(component: Any, method: str, sharded: bool = False) -> Op:
    if method == "init":
        return Op(lambda key, s, a, k: (None, (component.init(key),)), component.traceable, keyed=False)
    function = getattr(component, method, None)
    if not callable(function):
        raise TypeCheckError(f"{type(component).__name__} has no method `{method}`.",
                             why="`msrl.call` names a method of the component.", instead="Define it, or name another.")

    def call(key, states, args, fields):
        state, out = function(states[0], key, *args)
        return out, (state,)
    return Op(call, component.traceable, sharded=sharded)


def alone(op: Op, component: str, method: str) -> Callable[..., tuple[Any, tuple]]:
    """The op for one shard: (root key, shard, call number, states, arguments, fields) → (value, states)."""
    key = jax.jit(lambda root, shard, count: call_key(op_key(root, component, method), shard, count))

    def run(root, shard, count, states, args, fields):
        return op.run(key(root, shard, count), states, args, fields)

    # States are linear (only the newest is ever read), so those an op replaces can be given away; weights cannot.
    return jax.jit(run, donate_argnums=(3,) if op.states else ()) if op.traceable else run


def fuse(op: Op, shards: int, num_envs: int) -> Callable[[jax.Array, tuple, tuple, dict], tuple[Any, tuple]]:
    """The op on whole values, all shards at once. States of a sharded op have a leading shard dimension if there are
    several shards; `keys` is then one key per shard. Jitted, so that it is traced once however often it is used."""
    if not op.sharded or shards == 1:
        return jax.jit(op.run)

    def run(keys, states, args, fields):
        def fold(x):  # (B, ...) → (S, B / S, ...)
            return x.reshape(shards, num_envs // shards, *x.shape[1:]) if divided(x, num_envs) else x

        def unfold(x):  # (..., S, B / S, ...) → (..., B, ...)
            if x.shape[op.out_dim + 1:op.out_dim + 2] != (num_envs // shards,):
                raise TypeCheckError(
                    "A part of its value has no row per environment.",
                    why=f"There are {shards} shards of the environments, and their values are joined row by row; "
                        f"this part is {x.dtype}{list(x.shape[:op.out_dim] + x.shape[op.out_dim + 1:])} in each.",
                    instead="Give it one entry per environment, or leave it out.")
            return x.reshape(*x.shape[:op.out_dim], num_envs, *x.shape[op.out_dim + 2:])

        axes = jax.tree.map(lambda x: 0 if divided(x, num_envs) else None, (args, fields))
        args, fields = jax.tree.map(fold, (args, fields))
        mapped = jax.vmap(op.run, in_axes=(0, 0 if op.states else None, *axes), out_axes=(op.out_dim, 0))
        out, written = mapped(keys, states, args, fields)
        return jax.tree.map(unfold, out), written

    return jax.jit(run)


def op_keys(base: jax.Array, op: Op, world: World) -> jax.Array:
    """The keys of the world's shards (one key if there is one shard), before the call's number is folded in."""
    if not op.sharded:
        return jax.random.fold_in(base, 0)
    if world.shards == 1:
        return jax.random.fold_in(base, world.first_shard)
    return jax.vmap(jax.random.fold_in, (None, 0))(base, world.first_shard + jnp.arange(world.shards))


def op_key(root: jax.Array, component: str, method: str) -> jax.Array:
    """The random key that all calls of a method start from."""
    return jax.random.fold_in(root, zlib.crc32(f"{component}.{method}".encode()))


def call_key(base: jax.Array, shard: Any, count: Any) -> jax.Array:
    return jax.random.fold_in(jax.random.fold_in(base, shard), count)


def strong(value: Any) -> Any:
    """Python numbers as 32-bit scalars, so that an op sees the same type whoever calls it."""

    def leaf(x: Any) -> Any:
        match x:
            case bool():
                return np.bool_(x)
            case int():
                return np.int32(x)
            case float():
                return np.float32(x)
        if getattr(x, "weak_type", False):
            return jax.ShapeDtypeStruct(x.shape, x.dtype) if isinstance(x, jax.ShapeDtypeStruct) else x.astype(x.dtype)
        return x

    return jax.tree.map(leaf, value)


def divided(leaf: Any, num_envs: int) -> bool:
    """Has an argument of a sharded op one row per environment? If not, every shard is given the whole of it."""
    return getattr(leaf, "ndim", 0) >= 1 and leaf.shape[0] == num_envs


def split(tree: Any, shard: int, shards: int, num_envs: int) -> Any:
    """One shard's part of an argument."""
    size = num_envs // shards

    def leaf(x: Any) -> Any:
        return x[shard * size:(shard + 1) * size] if divided(x, num_envs) else x

    return jax.tree.map(leaf, tree) if shards > 1 else tree


def join(parts: list[Any], dim: int) -> Any:
    """The shards' values as one, in shard order."""
    if len(parts) == 1:
        return parts[0]

    def leaf(*xs: Any) -> Any:
        return (np if isinstance(xs[0], np.ndarray) else jnp).concatenate(xs, axis=dim)

    return jax.tree.map(leaf, *parts)
