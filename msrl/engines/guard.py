"""Learns in compiled programs, watched: a `Guard` is carried beside the learner's state by all that holds a learn.

In: a learn, and the guard as the last one left it. Out: what the learn gives, and the guard. Under `skip`, a learn that
is not finite leaves the learner's state as it was, and is counted. Under `stop` and `rollback` the first one is
recorded and the run ends there or goes back, so that nothing needs to be undone: what cannot be afforded is a copy of
the learner for every learn. So the guard has one of every few learns, and the batches since then; from these the
learn can be done again. A guard that has a record does not change any more.

What a learn is given is known for certain only where it is traced: a part of a batch may be cut there, or drawn. If a
guard was made for another form, `Misfit` tells of the one that was found, and a new guard is made for it.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from msrl.api.agreement import DEVICES, in_scope
from msrl.engines.finite import Fault, floats, host, mended, names_of, not_finite
from msrl.engines.laid import lay, lift
from msrl.engines.library import Ops
from msrl.engines.ops import strong
from msrl.engines.shapes import Shapes
from msrl.ir.graph import Call, Node, calls

Guard = dict[str, Any]  # of one learn of the graph
MOST = 16  # learns between two copies of the learner
LITTLE = 65_536  # numbers, which nobody misses
NONE = np.int32(-1)
ASIDE = "aside"


class Misfit(Exception):
    """A guard is not for batches of this form; raised while a program is traced, so that nothing has been done."""

    def __init__(self, site: str, args: tuple):
        super().__init__(site)
        self.site, self.args = site, jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), x.dtype), args)


def is_learn(node: Call) -> bool:
    return (node.component, node.method) == ("learner", "learn")


def learns(nodes: tuple[Node, ...], ops: Ops) -> tuple[Call, ...]:
    """Those to be watched."""
    return tuple(filter(is_learn, calls(nodes))) if ops.non_finite != "ignore" else ()


def new_guard(node: Call, ops: Ops, shapes: Shapes, args: tuple | None) -> Guard:
    """Before the first learn, as NumPy has it, for `args` of this form. The names of what is looked at are noted in the
    ops."""
    if ops.devices:
        ops, shapes = ops.devices.ops, ops.devices.shapes
    if args is None:
        if any(name.startswith("part_") and name not in shapes.names for name in node.args):
            return {}  # fits nothing: what is cut where it is needed has its form only there
        args = strong(tuple(shapes.names.get(name, 0) for name in node.args))  # a loop's index is a number
        args = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), x.dtype), args)
    state = shapes.names[node.reads[0]]
    out, (after, *_) = ops.shape(node, (state,), args, {}, ())
    names = ops.watched[node.writes[0]] = names_of(ops.world.agent.learner, args, out, after)
    guard = {"skipped": np.int32(0), "at": NONE, "flags": np.zeros(len(names), bool)}
    if ops.non_finite == "skip":
        return guard
    # A copy of the learner takes time in every learn that makes one; batches that are kept since then, memory.
    rare = MOST * size(args) <= max(4 * size(state), LITTLE) and len(shapes.learns) == 1
    slots = MOST if rare else 1
    return {**guard, "seen": np.int32(0), "start": jax.tree.map(blank, jax.eval_shape(lay, state)),
            "since": np.int32(0),
            "batches": jax.tree.map(lambda x: blank(jax.ShapeDtypeStruct((slots, *x.shape), x.dtype)), args)}


def size(tree: Any) -> int:
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(tree))


def blank(leaf: jax.ShapeDtypeStruct) -> Any:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jnp.broadcast_to(jax.random.key(0), leaf.shape)
    return np.zeros(leaf.shape, leaf.dtype)


def guarded(run: Callable[[Any], tuple[Any, tuple]], ops: Ops, guard: Guard, count: Any, state: Any,
            args: tuple) -> tuple[Any, tuple, Guard]:
    """`run` makes of a learner's state what it learns from the arguments: (value, resources written, guard)."""
    if ASIDE in guard:
        guard = {**guard, ASIDE: {"happened": jnp.bool_(True), "count": count, "args": args}}
    elif "start" in guard:
        guard, state = with_start(guard, state)
        guard = with_batch(guard, count, args)
    out, (after, weights) = run(state)
    flags = not_finite(args, out, after)
    bad = flags.any()
    if in_scope(DEVICES):  # each has its part of the batch, and all must do the same
        bad = lax.psum(bad.astype(jnp.int32), DEVICES) > 0
    first = bad & (guard["at"] < 0)
    guard = {**guard, "at": jnp.where(first, count, guard["at"]).astype(jnp.int32),
             "flags": jnp.where(first, flags, guard["flags"])}
    if ops.non_finite != "skip":
        return out, (after, weights), guard
    state = jax.tree.map(lambda new, old: jnp.where(bad, old, new), after, state)
    guard["skipped"] = guard["skipped"] + bad.astype(jnp.int32)
    return mended(out), (state, ops.weights(state)), guard


def fits(guard: Guard, args: tuple) -> bool:
    """Is the batch of the form that the guard was made for?"""
    if not guard:
        return False
    kept = guard[ASIDE]["args"] if ASIDE in guard else jax.tree.map(lambda x: x[0], guard["batches"]) \
        if "batches" in guard else args
    return list(map(jnp.shape, jax.tree.leaves(kept))) == list(map(jnp.shape, jax.tree.leaves(args)))


def with_start(guard: Guard, state: Any) -> tuple[Guard, Any]:
    """Keeps the learner's state, where it is time for that; the state, to go on with."""
    slots, due = _slots(guard), (guard["seen"] % _slots(guard) == 0) & (guard["at"] < 0)
    if slots == 1:
        kept = jax.tree.map(lambda old, new: jnp.where(due, new, old), guard["start"], lay(state))
        return {**guard, "start": kept}, state
    # A loop of no pass or one. XLA leaves where they are what a loop has and hands on, both the copy and the state: so
    # long as nobody reads the state as it was before the loop, a learn that needs no copy costs none.
    _, kept, state = lax.while_loop(
        lambda at: at[0], lambda at: (jnp.bool_(False), lay(at[2]), lax.optimization_barrier(at[2])),
        (due, guard["start"], state))
    return {**guard, "start": kept}, state


def with_batch(guard: Guard, count: Any, args: tuple, happened: Any = True) -> Guard:
    """Keeps what is learnt from, if it `happened`."""
    slot, new = guard["seen"] % _slots(guard), (guard["at"] < 0) & happened
    batches = jax.tree.map(lambda kept, x: lax.dynamic_update_index_in_dim(
        kept, jnp.where(new, x, lax.dynamic_index_in_dim(kept, slot, 0, keepdims=False)), slot, 0),
        guard["batches"], args)
    return {**guard, "batches": batches, "seen": guard["seen"] + new.astype(jnp.int32),
            "since": jnp.where(new & (slot == 0), count, guard["since"]).astype(jnp.int32)}


# -- branches ----------------------------------------------------------------------------------------------------------
# XLA copies what a branch returns. So a learn in a branch puts its batch aside, and what is large stays outside.


def into_branch(guards: Mapping[str, Guard], found: tuple[Call, ...], names: dict[str, Any]
                ) -> tuple[dict[str, Guard], dict[str, Guard]]:
    """The guards as they are outside, with the learner's state where it is time, and inside a branch with these learns.
    A learn that goes on from what the branch itself has made has all of its guard there."""
    outside = dict(guards)
    for node in found:
        site, before = node.writes[0], node.reads[0]
        if "start" in guards.get(site, ()) and before in names:
            outside[site], names[before] = with_start(guards[site], names[before])
    inside = {site: guard if guard is guards[site] else {
        **{name: guard[name] for name in ("skipped", "at", "flags")},
        ASIDE: {"happened": jnp.bool_(False), "count": jnp.int32(0), "args": jax.tree.map(
            lambda x: x[0], guard["batches"])}} for site, guard in outside.items()}
    return outside, inside


def out_of_branch(outside: Mapping[str, Guard], inside: Mapping[str, Guard]) -> dict[str, Guard]:
    """The guards after the branch. What was put aside there goes where it belongs."""
    found = dict(inside)
    for site, guard in outside.items():
        if ASIDE in inside[site] and ASIDE not in guard:
            kept = inside[site][ASIDE]
            small = {name: value for name, value in inside[site].items() if name != ASIDE}
            found[site] = {**with_batch(guard, kept["count"], kept["args"], kept["happened"]), **small}
    return found


def _slots(guard: Guard) -> int:
    leaves = jax.tree.leaves(guard["batches"])
    return leaves[0].shape[0] if leaves else 1


def skipped(guards: Mapping[str, Guard]) -> Any:
    """Learns so far that were not applied; of several seeds, of each."""
    return sum(np.asarray(guard["skipped"]) for guard in guards.values())


def fault_in(guards: Mapping[str, Guard], ops: Ops, seeds: int | None) -> Fault | None:
    """The first learn that was not finite, if there was one."""
    if ops.non_finite in ("skip", "ignore"):
        return None
    found = [(int(at), number, site) for site, guard in guards.items()
             for number, at in enumerate(np.atleast_1d(np.asarray(guard["at"]))) if at >= 0]
    if not found:
        return None
    at, number, site = min(found)
    guard = guards[site]
    flags = np.asarray(guard["flags"])
    if ops.devices:  # the one whose part of the batch is to blame; all else they have alike
        number = int(np.argmax(flags[:, :len(floats(guard["batches"]))].any(1)))
    if seeds or ops.devices:
        guard = jax.tree.map(lambda x, own=number: x[own], guard)
    mine = ops.devices.ops if ops.devices else ops
    world = mine.world
    first = world.first_shard + (number * world.shards if ops.devices else 0)
    bad = flags.any(0) if ops.devices else np.asarray(guard["flags"])
    return Fault(
        site, at + 1, tuple(name for name, each in zip(mine.watched[site], bad, strict=True) if each),
        host(lift(guard["start"])),
        [jax.tree.map(lambda x, slot=slot: host(x[slot]), guard["batches"])
         for slot in range(at - int(guard["since"]) + 1)],
        number if seeds else 0, (first, first + world.shards),
        (world.first_agent_shard, world.first_agent_shard + world.agent_shards))

