"""What each op does, for one shard: component methods behind one uniform signature.

In: a trainer, its environment and configuration. Out: for every (component, method) an `Op` whose `run` takes
(key, resources, arguments, fields) and returns (value, resources written). An op knows what it runs once for (each
shard of the environments, each learner, each shard of the agents) and on which dimension of its arrays these lie.
Random keys depend on (seed, component and method, shard, how often the method was called), and on nothing else.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from msrl.api import Agent, Buffer, Component, Config, Env, Record, Trainer
from msrl.api.agreement import DEVICES, LEARNERS, in_scope
from msrl.engines.agents import check_agent_shards
from msrl.errors import TypeCheckError, UsageError

Over = Literal["shard", "learner", "agent"]
Dims = tuple[int | None, ...]  # for each argument of a learner, the dimension on which it is divided


@dataclass(frozen=True)
class Op:
    run: Callable[[jax.Array, tuple, tuple, dict], tuple[Any, tuple]]
    traceable: bool
    keyed: bool = True  # its last resource is a counter
    over: Over | None = None  # runs once for each of these
    out_dim: int | None = 0  # the dimension of its value on which they lie; None if learners agree on it
    states: bool = True  # does each have a state of its own? (weights are shared)
    by_agent: bool = False  # runs once for each agent shard as well, each with weights and a learner of its own


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
    first_agent_shard: int = 0
    agent_shards: int = 1

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

    @property
    def agents_per_shard(self) -> int:
        return len(self.env.spec.agents) // self.config.agent_shards

    def span(self, over: Over | None) -> range:
        """The numbers of this world's shards or learners; of an op that runs once, 0."""
        match over:
            case "agent":
                return range(self.first_agent_shard, self.first_agent_shard + self.agent_shards)
            case "shard":
                return range(self.first_shard, self.first_shard + self.shards)
            case "learner":
                each = self.config.shards // self.config.learner_shards
                return range(self.first_shard // each, (self.first_shard + self.shards) // each)
        return range(1)

    def numbers(self, op: Op) -> list[int]:
        """By which the op's calls here are known, as are their random numbers: one for each shard of the environments
        and, within it, of the agents."""
        agents = self.span("agent") if op.by_agent else range(1)
        each = self.config.agent_shards if op.by_agent else 1
        return [number * each + agent for number in self.span(op.over) for agent in agents]

    def cut(self, whole: Any, dim: int, rows: bool = False) -> Any:
        """This world's part of a value that has an entry for every environment, or, if `rows`, for every row of what
        learners have sampled; anything else as it is. The rule is that of `divide`."""
        total = self.config.num_envs
        if self.num_envs == total:
            return whole
        spread = in_scope(DEVICES)

        def leaf(x: Any) -> Any:
            if getattr(x, "ndim", 0) <= dim or not (rows or x.shape[dim] == total):
                return x
            size, first = (x.shape[dim] * shards // self.config.shards for shards in (self.shards, self.first_shard))
            if spread:
                return jax.lax.dynamic_slice_in_dim(x, device() * size, size, dim)
            return x[(slice(None),) * dim + (slice(first, first + size),)]

        return jax.tree.map(leaf, whole)

    def part(self, shards: range) -> "World":
        """The same components with some of the shards only."""
        return replace(self, first_shard=shards.start, shards=len(shards))

    def part_of_agents(self, shards: range) -> "World":
        return replace(self, first_agent_shard=shards.start, agent_shards=len(shards))

    def traceable(self, component: str) -> bool:
        match component:
            case "env":
                return self.env.traceable
            case "actor" | "learner" | "metrics":
                return True
        return (self.buffers.get(component) or self.own[component]).traceable

    def over(self, component: str) -> Over | None:
        """What the component keeps one state for each of."""
        if component == "env" or (component in self.buffers and self.buffers[component].home == "actor"):
            return "shard"
        if component in ("learner", "weights") and self.config.agent_shards > 1:
            return "agent"
        return "learner" if component in self.buffers and self.config.learner_shards > 1 else None


def device() -> Any:
    """The number of the device that this is traced for, along a mesh; else 0."""
    return jax.lax.axis_index(DEVICES) if in_scope(DEVICES) else 0


def make_world(trainer: Trainer, env: Env) -> World:
    config = trainer.config
    if config.shards < 1 or config.num_envs % config.shards:
        raise UsageError(
            f"{config.num_envs} environments cannot be divided into {config.shards} shards.",
            why="All shards have the same number of environments, so that they run the same program.",
            instead=f"Use --shards with a divisor of {config.num_envs}, or change --num-envs.")
    if config.learner_shards < 1 or config.shards % config.learner_shards:
        raise UsageError(
            f"{config.shards} shards cannot be divided among {config.learner_shards} learner shards.",
            why="Each learner has the same number of the environments' shards.",
            instead=f"Use --learner-shards with a divisor of {config.shards}, or more --shards.")
    check_agent_shards(config, env)
    buffers = {name: buffer.for_env(env.traceable) for name, buffer in trainer.buffers().items()}
    buffers = {name: buffer.divide(config.learner_shards) if buffer.home == "learner" and config.learner_shards > 1
               else buffer for name, buffer in buffers.items()}
    own = dict(trainer.components())
    reserved = {"env", "actor", "learner", "metrics", "weights"}
    for name in (*buffers, *own):
        if name in reserved or (name in buffers and name in own) or not name.isidentifier():
            raise UsageError(f"A component cannot be called {name!r}.",
                             why=f"Names are identifiers, each used once; {', '.join(sorted(reserved))} are taken.",
                             instead="Give it another name in `buffers()` or `components()`.")
    return World(trainer, env, trainer.agent(), buffers, own, shards=config.shards, agent_shards=config.agent_shards)


def make_op(world: World, component: str, method: str) -> Op:
    """The op for one method of a component."""
    env, actor, learner = world.env, world.agent.actor, world.agent.learner
    by_agent = world.config.agent_shards > 1

    match component, method:
        case "env", "init":
            return Op(lambda key, s, a, k: (None, (env.init(key, world.envs_per_shard),)), env.traceable, keyed=False,
                      over="shard")
        case "env", "reset":
            def reset(key, states, args, fields):
                state, obs = env.reset(states[0], key)
                return obs, (state,)
            return Op(reset, env.traceable, over="shard")
        case "env", "step":
            def step(key, states, args, fields):
                state, out = env.step(states[0], args[0], key)
                return out, (state,)
            return Op(step, env.traceable, over="shard")
        case "actor", "act":
            return Op(lambda key, s, a, k: (actor.act(s[0], key, *a), ()), True, over="shard", states=False,
                      by_agent=by_agent)
        case "learner", "init":
            def begin(key, states, args, fields):
                state = learner.init(key)
                return None, (state, learner.weights(state))
            return Op(begin, True, keyed=False, by_agent=by_agent)
        case "learner", "learn":
            def learn(key, states, args, fields):
                state, out = learner.learn(states[0], key, *args)
                return out, (state, learner.weights(state))
            several = world.config.learner_shards > 1
            return Op(learn, True, over="learner" if several else None, out_dim=None, states=not several,
                      by_agent=by_agent)
    if component in world.buffers:
        return _buffer_op(world.buffers[component], method, world.over(component))
    return _own_op(world.own[component], method)


def _buffer_op(buffer: Buffer, method: str, over: Over | None) -> Op:
    match method:
        case "insert":
            return Op(lambda key, s, a, fields: (None, (buffer.insert(s[0], Record(**fields)),)), buffer.traceable,
                      keyed=False, over=over)
        case "sample":
            def sample(key, states, args, fields):
                state, batch = buffer.sample(states[0], key)
                return batch, (state,)
            return Op(sample, buffer.traceable, over=over, out_dim=1 if over == "shard" else 0)
    return _own_op(buffer, method, over)


def _own_op(component: Any, method: str, over: Over | None = None) -> Op:
    if method == "init":
        return Op(lambda key, s, a, k: (None, (component.init(key),)), component.traceable, keyed=False)
    function = getattr(component, method, None)
    if not callable(function):
        raise TypeCheckError(f"{type(component).__name__} has no method `{method}`.",
                             why="`msrl.call` names a method of the component.", instead="Define it, or name another.")

    def call(key, states, args, fields):
        state, out = function(states[0], key, *args)
        return out, (state,)
    return Op(call, component.traceable, over=over)


def alone(op: Op, component: str, method: str) -> Callable[..., tuple[Any, tuple]]:
    """The op for one shard: (root key, shard, call number, states, arguments, fields) → (value, states)."""
    key = jax.jit(lambda root, shard, count: call_key(op_key(root, component, method), shard, count))

    def run(root, shard, count, states, args, fields):
        return op.run(key(root, shard, count), states, args, fields)

    # States are linear (only the newest is ever read), so those an op replaces can be given away; weights cannot.
    return jax.jit(run, donate_argnums=(3,) if op.states else ()) if op.traceable else run


def fuse(op: Op, count: int, num_envs: int, dims: Dims) -> Callable[[jax.Array, tuple, tuple, dict], tuple[Any, tuple]]:
    """The op on whole values, all `count` shards or learners at once. Their states have a leading dimension if there
    are several; `keys` is then one key for each. Jitted, so that it is traced once however often it is used."""
    if count == 1 and op.out_dim is not None:
        return jax.jit(op.run)

    def run(keys, states, args, fields):
        if count == 1:
            out, written = op.run(keys, states, args, fields)
            return jax.tree.map(settle_devices, out) if op.over and in_scope(DEVICES) else out, written
        axes = divide(op, args, fields, num_envs, dims)
        args, fields = jax.tree.map(lambda x, dim: x if dim < 0 else x.reshape(
            *x.shape[:dim], count, x.shape[dim] // count, *x.shape[dim + 1:]), (args, fields), axes)
        axes = jax.tree.map(lambda dim: None if dim < 0 else dim, axes)
        mapped = jax.vmap(op.run, in_axes=(0, 0 if op.states else None, *axes),
                          out_axes=(op.out_dim or 0, 0 if op.out_dim is not None else None),
                          axis_name=LEARNERS if op.out_dim is None else None)
        if op.out_dim is not None:
            out, written = mapped(keys, states, args, fields)
            return jax.tree.map(unfold, out), written
        try:
            out, written = mapped(keys, states, args, fields)
        except ValueError as problem:
            if "out_axes" not in str(problem):
                raise
            raise TypeCheckError(
                "The learners do not agree on their state.",
                why=f"There are {count} learner shards, each with its part of the batch, and what one of them keeps "
                    "depends on its part.",
                instead="Change parameters by `self.apply_gradients(...)`; pass anything else that a batch goes into "
                        "through `self.agree(...)`, which takes the mean over all learners.") from problem
        out = jax.tree.map(settle, out)
        return jax.tree.map(settle_devices, out) if in_scope(DEVICES) else out, written

    def unfold(x):  # (..., S, B / S, ...) → (..., B, ...)
        at = op.out_dim
        if op.over == "shard" and x.shape[at + 1:at + 2] != (num_envs // count,):
            raise TypeCheckError(
                "A part of its value has no row per environment.",
                why=f"There are {count} shards of the environments, and their values are joined row by row; "
                    f"this part is {x.dtype}{list(x.shape[:at] + x.shape[at + 1:])} in each.",
                instead="Give it one entry per environment, or leave it out.")
        return x.reshape(*x.shape[:at], x.shape[at] * x.shape[at + 1], *x.shape[at + 2:])

    return jax.jit(run)


def settle(x: Any) -> Any:
    """What learners (leading dimension) return to the loop: the mean of numbers, all rows of arrays."""
    return x.mean(0).astype(x.dtype) if x.ndim == 1 else x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def settle_devices(x: Any) -> Any:
    """The same along a mesh."""
    return jax.lax.pmean(x, DEVICES).astype(x.dtype) if x.ndim == 0 else jax.lax.all_gather(x, DEVICES, tiled=True)


def op_keys(base: jax.Array, op: Op, world: World) -> jax.Array:
    """The keys of the world's shards or learners (one key if there is one), before the call's number is folded in."""
    span = world.span(op.over)
    if op.by_agent:
        numbers = np.array(world.numbers(op)).reshape(len(span), -1).T  # (agent shards, shards)
        return fold_in(base, numbers.reshape([size for size in numbers.shape if size > 1]))
    first = span.start + device() * len(span) if op.over else 0
    if len(span) == 1:
        return jax.random.fold_in(base, first)
    return jax.vmap(jax.random.fold_in, (None, 0))(base, first + jnp.arange(len(span)))


def fold_in(keys: jax.Array, numbers: Any) -> jax.Array:
    """One key with each of the numbers folded in, or each of the keys with one number."""
    fold = jax.random.fold_in
    for _ in range(np.ndim(numbers)):
        fold = jax.vmap(fold, (None, 0))
    for _ in range(keys.ndim):
        fold = jax.vmap(fold, (0, None))
    return fold(keys, numbers)


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


def divide(op: Op, args: tuple, fields: dict, num_envs: int, dims: Dims) -> tuple[Any, Any]:
    """The dimension on which each leaf of the arguments is divided; -1 for what all are given the whole of."""

    def by_rows(x: Any) -> int:
        if op.over == "learner" and args:  # a method of a replay: one row per sample
            return 0 if getattr(x, "ndim", 0) else -1
        return 0 if divided(x, num_envs) else -1

    if op.out_dim is None:
        given = dims or (None,) * len(args)
        return tuple(jax.tree.map(lambda x, dim=dim: dim if dim is not None and np.ndim(x) > dim else -1, arg)
                     for arg, dim in zip(args, given, strict=True)), {}
    return jax.tree.map(by_rows, (args, fields))


def divided(leaf: Any, num_envs: int) -> bool:
    """Has an argument of a sharded op one row per environment? If not, every shard is given the whole of it."""
    return getattr(leaf, "ndim", 0) >= 1 and leaf.shape[0] == num_envs


def split(tree: Any, axes: Any, number: int, count: int) -> Any:
    """Part `number` of the arguments."""

    def leaf(x: Any, dim: int) -> Any:
        size = x.shape[dim] // count if dim >= 0 else 0
        return x if dim < 0 else x[(slice(None),) * dim + (slice(number * size, (number + 1) * size),)]

    return jax.tree.map(leaf, tree, axes) if count > 1 else tree


def join(parts: list[Any], dim: int) -> Any:
    """The values of all shards as one, in their order."""
    if len(parts) == 1:
        return parts[0]

    def leaf(*xs: Any) -> Any:
        return (np if isinstance(xs[0], np.ndarray) else jnp).concatenate(xs, axis=dim)

    return jax.tree.map(leaf, *parts)


def mean(parts: list[Any]) -> Any:
    """On the host and in order, so that it is the same to the bit wherever it is taken."""

    def leaf(*xs: Any) -> np.ndarray:
        total = np.asarray(xs[0])
        for x in xs[1:]:
            total = total + np.asarray(x)
        return (total / np.float32(len(xs))).astype(total.dtype)

    return jax.tree.map(leaf, *parts)


def settled(parts: list[Any]) -> Any:
    """As `settle`, of the learners' values one by one."""
    return jax.tree.map(lambda *xs: mean(list(xs)) if np.ndim(xs[0]) == 0 else
                        np.concatenate([np.asarray(x) for x in xs]), *parts)
