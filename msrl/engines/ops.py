"""What each op does, for one shard: component methods behind one uniform signature.

In: a trainer, its environment and configuration. Out: for every (component, method) an `Op` whose `run` takes
(key, resources, arguments, fields) and returns (value, resources written). An op knows what it runs once for (each
shard of the environments, each learner, each shard of the agents) and on which dimension of its arrays these lie.
Random keys depend on (seed, component and method, shard, how often the method was called), and on nothing else.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from msrl.api import Buffer, Record
from msrl.api.agreement import DEVICES, LEARNERS, in_scope, together
from msrl.engines.declared import Declared
from msrl.engines.leaf_axes import LeafDims
from msrl.engines.platforms import start_jax
from msrl.engines.world import Over, World, device
from msrl.errors import TypeCheckError

LARGEST = float(np.finfo(np.float32).max)
ArgDims = tuple[LeafDims | None, ...]  # for each argument, the dimensions of its leaves; () if it is given whole, None
# if all leaves are divided on dimension 0


@dataclass(frozen=True)
class Layout:
    """How the values of one op are divided: its arguments by row (environment or sample) and by agent. Of what several
    learners return, `joined` is the dimension on which the rows of each leaf lie; -1 where there are none, and the mean
    is taken."""

    rows: ArgDims = ()
    agents: ArgDims = ()
    joined: LeafDims = ()


@dataclass(frozen=True)
class Op:
    run: Callable[[jax.Array, tuple, tuple, dict], tuple[Any, tuple]]
    traceable: bool
    keyed: bool = True  # its last resource is a counter
    draws: bool = True  # does it use its key?
    over: Over | None = None  # runs once for each of these
    out_dim: int | None = 0  # the dimension of its value on which they lie; None if learners agree on it
    states: bool = True  # does each have a state of its own? (weights are shared)
    by_agent: bool = False  # runs once for each agent shard as well, each with weights and a learner of its own


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
            return Op(step, env.traceable, draws=env.traceable or env.draws, over="shard")
        case "actor", "act":
            return Op(lambda key, s, a, k: (actor.act(s[0], key, *a), ()), True, over="shard", states=False,
                      by_agent=by_agent)
        case "learner", "init":
            # Of several seeds or agent shards, one after another: jaxlib factorises a batch of matrices (QR, for
            # orthogonal weights) on the pool of threads that its program runs on, and can wait for itself for ever.
            init = jax.custom_batching.sequential_vmap(learner.init)

            def begin(key, states, args, fields):
                state = init(key)
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
                      keyed=False, draws=False, over=over)
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

    def call_on_host(key, states, args, fields):
        state, out = declared.parts(function(states[0], key, *args))
        return declared.fit(out, args), (state,)

    if component.traceable or isinstance(component, Buffer):
        return Op(call, component.traceable, over=over)
    declared = Declared(type(component).__name__, method, partial(component.output_shape, method))
    return Op(call_on_host, False, over=over)


def alone(op: Op, component: str, method: str) -> Callable[..., tuple[Any, tuple]]:
    """The op for one shard: (root key, shard, call number, states, arguments, fields) → (value, states)."""
    key = jax.jit(lambda root, shard, count: call_key(op_key(root, component, method), shard, count))

    def run(root, shard, count, states, args, fields):
        return op.run(key(root, shard, count) if op.draws else None, states, args, fields)

    # States are linear (only the newest is ever read), so those an op replaces can be given away; weights cannot, and
    # a learner's state is still wanted if the learn turns out not to be finite.
    given = op.states and (component, method) != ("learner", "learn")
    return jax.jit(run, donate_argnums=(3,) if given else ()) if op.traceable else run


def fuse(op: Op, count: int, num_envs: int, layout: Layout,
         batched: bool = True) -> Callable[[jax.Array, tuple, tuple, dict], tuple[Any, tuple]]:
    """The op on whole values, all `count` shards or learners at once. Their states have a leading dimension if there
    are several; `keys` is then one key for each. Jitted, so that it is traced once however often it is used. Unless
    `batched`, shards stand one after another in the program; learners are always a batch, in which they agree."""
    if count == 1 and op.out_dim is not None:
        return jax.jit(op.run)

    def run(keys, states, args, fields):
        if count == 1:
            out, written = op.run(keys, states, args, fields)
            return join_devices(out, layout.joined) if op.over and in_scope(DEVICES) else out, written
        axes = divide(args, fields, layout.rows)
        args, fields = jax.tree.map(lambda x, dim: x if dim < 0 else x.reshape(
            *x.shape[:dim], count, x.shape[dim] // count, *x.shape[dim + 1:]), (args, fields), axes)
        axes = jax.tree.map(lambda dim: None if dim < 0 else dim, axes)
        each = jax.vmap if batched or op.out_dim is None else one_by_one
        mapped = each(op.run, in_axes=(0, 0 if op.states else None, *axes),
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
        out = map_leaves(join_learners, out, layout.joined)
        return join_devices(out, layout.joined) if in_scope(DEVICES) else out, written

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


def one_by_one(run: Callable[..., Any], in_axes: tuple, out_axes: tuple, axis_name: None) -> Callable[..., Any]:
    """As `jax.vmap`, but for the shapes that `run` sees compiled: it is there once for each."""

    def mapped(keys: jax.Array, *given: Any) -> Any:
        axes = jax.tree.map(lambda axis, tree: jax.tree.map(lambda x: axis, tree), in_axes[1:], given,
                            is_leaf=lambda axis: axis is None or isinstance(axis, int))
        flat_axes, (leaves, form) = jax.tree.leaves(axes, is_leaf=lambda x: x is None), jax.tree.flatten(given)
        outs = [run(keys[number], *jax.tree.unflatten(form, [
            x if axis is None else jax.lax.index_in_dim(x, number, axis, keepdims=False)
            for x, axis in zip(leaves, flat_axes, strict=True)])) for number in range(keys.shape[0])]
        return tuple(jax.tree.map(lambda *xs, axis=axis: jnp.stack(xs, axis), *parts)
                     for axis, parts in zip(out_axes, zip(*outs, strict=True), strict=True))

    return mapped


def join_learners(x: Any, dim: int) -> Any:
    """What learners (leading dimension) return to the loop: the rows of all, or the mean of what has none."""
    if dim < 0:
        return x.mean(0).astype(x.dtype)
    x = jnp.moveaxis(x, 0, dim)
    return x.reshape(*x.shape[:dim], x.shape[dim] * x.shape[dim + 1], *x.shape[dim + 2:])


def join_devices(out: Any, joined: LeafDims) -> Any:
    """The same along a mesh."""
    leaves, form = jax.tree.flatten(out)
    dims = joined or (-1,) * len(leaves)
    means = iter(together([leaf for leaf, dim in zip(leaves, dims, strict=True) if dim < 0]))
    return jax.tree.unflatten(form, [
        next(means).astype(leaf.dtype) if dim < 0 else jax.lax.all_gather(leaf, DEVICES, axis=dim, tiled=True)
        for leaf, dim in zip(leaves, dims, strict=True)])


def map_leaves(function: Callable[..., Any], tree: Any, dims: LeafDims) -> Any:
    """The function of every leaf and its dimension."""
    leaves, form = jax.tree.flatten(tree)
    return jax.tree.unflatten(form, list(map(function, leaves, dims or (-1,) * len(leaves))))


def roots(seed: int, seeds: int, stream: int = 0) -> jax.Array:
    """The key that all random numbers of a run start from, or one for each seed. `stream`: how often the run has gone
    back, which is to draw others than before."""
    start_jax()
    keys = [jax.random.key(seed + number) for number in range(seeds)]
    keys = [jax.random.fold_in(key, stream) for key in keys] if stream else keys
    return jnp.stack(keys) if seeds > 1 else keys[0]


def op_keys(root: jax.Array, ops: Mapping[tuple[str, str], Op], world: World) -> dict[tuple[str, str], jax.Array]:
    """For every method, the keys of the world's shards or learners (one key if there is one; first by agent shard, if
    there are several of these), before the call's number is folded in. All of them at once, as every random operation
    adds to the time that a program takes to compile."""
    numbers = {name: _shard_numbers(op, world) for name, op in ops.items()}
    rows = [(_number(*name), at, stride) for name, (shards, stride) in numbers.items() for at in shards.ravel()]
    methods, shards, strides = np.array(rows, np.uint32).T  # a device has the shards that are so many strides further
    keys = derived_once(jax.vmap(lambda method, shard: jax.random.fold_in(jax.random.fold_in(root, method), shard))(
        methods, shards + jnp.uint32(device()) * strides))
    ends = np.cumsum([shards.size for shards, _ in numbers.values()])
    return {name: keys[end - shards.size:end].reshape([size for size in shards.shape if size > 1])
            for (name, (shards, _)), end in zip(numbers.items(), ends, strict=True)}


def derived_once(keys: jax.Array) -> jax.Array:
    """The same keys, derived once: XLA would compile their derivation into every kernel that reads one."""
    return jax.random.wrap_key_data(jax.lax.optimization_barrier(jax.random.key_data(keys)),
                                    impl=jax.random.key_impl(keys))


def _shard_numbers(op: Op, world: World) -> tuple[np.ndarray, int]:
    """The numbers of the shards that keys are for, and how many a device has of them."""
    span = world.span(op.over)
    if op.by_agent:
        return np.array(world.numbers(op)).reshape(len(span), -1).T, 0  # (agent shards, shards)
    return np.array(span), len(span) if op.over else 0


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
    return jax.random.fold_in(root, _number(component, method))


def _number(component: str, method: str) -> int:
    return zlib.crc32(f"{component}.{method}".encode())


def call_key(base: jax.Array, shard: Any, count: Any) -> jax.Array:
    return jax.random.fold_in(jax.random.fold_in(base, shard), count)


def values(tree: Any) -> Any:
    """Numbers and NumPy's arrays as JAX's arrays of 32 bits: what a name of the loop stands for in every mode."""
    if getattr(tree, "weak_type", None) is False:
        return tree  # an array already

    def leaf(x: Any) -> Any:
        return jnp.asarray(x) if isinstance(x, (np.ndarray, np.generic)) and x.dtype != object else x

    return jax.tree.map(leaf, strong(tree))


def strong(value: Any) -> Any:
    """Python numbers as 32-bit scalars, so that an op sees the same type whoever calls it."""
    parts = value.values() if type(value) is dict else value if type(value) is tuple else (value,)
    if all(type(part) is np.ndarray or getattr(part, "weak_type", None) is False for part in parts):
        return value  # as nearly always on the host, and to walk the tree takes Python far longer

    def leaf(x: Any) -> Any:
        match x:
            case bool():
                return np.bool_(x)
            case int() | float():
                return _narrow(x)
        if getattr(x, "weak_type", False):
            return jax.ShapeDtypeStruct(x.shape, x.dtype) if isinstance(x, jax.ShapeDtypeStruct) else x.astype(x.dtype)
        return x

    return jax.tree.map(leaf, value)


def _narrow(x: int | float) -> Any:
    if abs(x) < 2**31 or (type(x) is int and x == -2**31):
        return np.int32(x) if isinstance(x, int) else np.float32(x)
    if isinstance(x, float) and not LARGEST < abs(x) < float("inf"):
        return np.float32(x)
    raise TypeCheckError(
        f"A number, {x}, does not fit 32 bits.",
        why="Values of the loop are JAX's: whole numbers from -2147483648 to 2147483647, and floats up to 3.4e38.",
        instead="Count in larger units, or compute with constants only, which Python does while compiling.")


def divide(args: tuple, fields: dict, rows: ArgDims) -> tuple[Any, Any]:
    """The dimension on which each leaf of the arguments is divided; -1 for what all are given the whole of. A record's
    fields have one row for each environment."""
    return leaf_tree(args, rows), jax.tree.map(lambda x: 0, fields)


def leaf_tree(args: tuple, dims: ArgDims) -> tuple:
    """The dimension of every leaf of the arguments; -1 for what all are given the whole of."""
    found = []
    for arg, each in zip(args, dims or ((),) * len(args), strict=True):
        leaves, form = jax.tree.flatten(arg)
        found.append(jax.tree.unflatten(form, each or (-1 if each == () else 0,) * len(leaves)))
    return tuple(found)


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


def join_rows(parts: list[Any], joined: LeafDims) -> Any:
    """As `join_learners`, of the learners' values one by one."""
    forms = [jax.tree.flatten(part) for part in parts]
    dims = joined or (-1,) * len(forms[0][0])
    return jax.tree.unflatten(forms[0][1], [
        mean(list(xs)) if dim < 0 else np.concatenate([np.asarray(x) for x in xs], dim)
        for dim, *xs in zip(dims, *(leaves for leaves, _ in forms), strict=True)])
