"""The reference machine: every op of every shard is one compiled call at the shard's own shape; expressions are Python.

It defines strict mode: nothing is fused, shards run and are joined in order. Interpreter, inline execution and eager
Python all go through `Reference.apply`, and so give the same bits.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from msrl.api import Record
from msrl.engines.blame import blame
from msrl.engines.cut import Meeting, Steps
from msrl.engines.filling import check_sample
from msrl.engines.finite import Fault, error_of, flags_of, floats, host, mended, names_of
from msrl.engines.library import Ops
from msrl.engines.ops import (
    Layout,
    LeafDims,
    divide,
    fold_in,
    join,
    join_rows,
    leaf_tree,
    mean,
    op_keys,
    split,
    strong,
    values,
)
from msrl.errors import RunError, TypeCheckError
from msrl.ir.graph import Call, Pure
from msrl.ir.interp import Host
from msrl.passes.fuse_stretches import is_selection


@dataclass(frozen=True)
class Agreement:
    """Several learners side by side come to agree: `reach` makes what they agree on of what all of them bring, those of
    other instances included. `meeting` is that of the first; None at the end, where they settle what is returned."""

    reach: Callable[[list], Any]
    brought: list[Any]
    meeting: Meeting | None = None


Agreeing = Generator[Agreement, Any, tuple[Any, tuple]]


class Reference(Host):
    def __init__(self, ops: Ops, root: jax.Array, items: Mapping[str, Record], fused: bool = False):
        """`items` says what each buffer holds; one that holds nothing is not used by the loop. `fused`: it works for an
        engine that keeps the states of agent shards stacked."""
        self.ops, self.world, self.root, self.items, self.fused = ops, ops.world, root, items, fused
        self.reports: list[dict[str, float]] = []
        self.skipped = 0  # learns that were not applied
        self.site = ""  # the state that the learn at hand makes
        # Does another place keep the learners' parameters, so that nothing can be undone here?
        self.shared = False

    def call(self, node: Call, args: tuple, kwargs: dict[str, Any], reads: tuple) -> tuple[Any, tuple]:
        self.site = node.writes[0] if node.writes else ""
        try:
            return self.apply(node.component, node.method, args, kwargs, reads, self.ops.layouts.of(node))
        except Exception:
            with blame(node, RunError):
                raise

    def settle(self) -> None:
        """Learns are judged as they are done: nothing is left to look at."""

    def pure(self, node: Pure, inputs: dict[str, Any]) -> Any:
        """Tabular names are Python's; all others are computed by JAX, in 32 bits, as in a compiled program."""
        as_it_is = self.fused or node.out in self.ops.tabular
        try:
            if as_it_is or is_selection(node):
                found = self.ops.scopes.evaluate(node, inputs)
                return found if as_it_is else strong(found)
            return values(self.ops.scopes.evaluate(node, {name: values(value) for name, value in inputs.items()}))
        except Exception:
            with blame(node, RunError):
                raise

    def apply(self, component: str, method: str, args: tuple, kwargs: dict[str, Any], reads: tuple,
              layout: Layout = Layout()) -> tuple[Any, tuple]:  # noqa: B008 (frozen)
        """Runs one op on whole values. The states of shards are tuples, one entry for each."""
        if component == "metrics":
            return None, (self.report(method, args, kwargs, reads),)
        if component in self.world.buffers and method == "init":
            return None, (self.new_buffer(component),)
        op = self.ops.op(component, method)
        if op.out_dim is None and (op.over == "learner" or op.by_agent):
            return finish(self.learn(args, reads, layout))
        if op.by_agent:
            outs, written = self.each_agent_shard(component, method, args, reads, layout)
            return join(outs, 1) if method == "act" else None, written
        run, span = self.alone(component, method), self.world.span(op.over)
        states, count = (reads[:-1], reads[-1]) if op.keyed else (reads, 0)
        args, kwargs = strong(args), strong(kwargs)
        axes = divide(args, kwargs, layout.rows) if len(span) > 1 else None
        outs, written = [], []
        for at, number in enumerate(span):
            mine = split((args, kwargs), axes, at, len(span))
            own = tuple(state[at] for state in states) if op.over and op.states else states
            out, after = run(self.root, np.int32(number), np.int32(count), own, *mine)
            if component in self.world.buffers and not op.traceable and method != "insert":
                out = self.ops.declared(component, method, self.items[component]).fit(out, mine[0])
            if component in self.world.buffers and method == "sample" and op.traceable:
                check_sample(self.world.buffers[component], after[0])
            outs.append(out)
            written.append(after)
        if (component, method) == ("learner", "learn") and self.ops.non_finite != "ignore":
            flags = np.asarray(flags_of(args, outs[0], written[0][0]))
            outs[0], written[0] = self.judge(count, states[0], args, outs[0], written[0], flags, flags[None])
        states = tuple(zip(*written, strict=True)) if op.over and op.states else written[0]
        counter = (count + 1,) if op.keyed else ()
        return join(outs, op.out_dim or 0), (*states, *counter)

    def each_agent_shard(self, component: str, method: str, args: tuple, reads: tuple,
                         layout: Layout) -> tuple[list[Any], tuple]:
        """One op for each of this world's agent shards: what each returns, and what all write."""
        op, world = self.ops.op(component, method), self.world
        states, count = (reads[:-1], reads[-1]) if op.keyed else (reads, 0)
        run, span, numbers = self.alone(component, method), world.span(op.over), iter(world.numbers(op))
        args = strong(args)
        by_agent = leaf_tree(args, layout.agents)
        by_env = leaf_tree(args, layout.rows) if len(span) > 1 else None
        outs: list[list[Any]] = [[] for _ in range(world.agent_shards)]
        written: list[Any] = [None] * world.agent_shards
        for place in range(len(span)):
            here = split(args, by_env, place, len(span))
            for at in range(world.agent_shards):
                mine = split(here, by_agent, at, world.agent_shards)
                own = tuple(state[at] for state in states)
                out, written[at] = run(self.root, np.int32(next(numbers)), np.int32(count), own, mine, {})
                outs[at].append(out)
        counter = (count + 1,) if op.keyed else ()
        return [join(each, 0) for each in outs], (*zip(*written, strict=True), *counter)

    def learn_by_agent(self, args: tuple, reads: tuple, layout: Layout) -> tuple[list[Any], tuple]:
        """The learners of agent shards have nothing to agree on but what they return."""
        if not self.fused:
            return self.each_agent_shard("learner", "learn", args, reads, layout)
        *states, count = reads
        op, each = self.ops.op("learner", "learn"), range(self.world.agent_shards)
        keys = fold_in(op_keys(self.root, {("learner", "learn"): op}, self.world)["learner", "learn"], count)
        run = self.ops.fused("learner", "learn", layout, False)
        out, written = run(keys, tuple(states), strong(args), {})
        return [jax.tree.map(lambda x, at=at: x[at], out) for at in each], (*written, count + 1)

    def learn(self, args: tuple, reads: tuple, layout: Layout) -> Agreeing:
        """Several learners side by side, up to the next agreement at a time, which is yielded; it is sent what was
        agreed on."""
        watched = self.ops.non_finite != "ignore"
        if self.ops.op("learner", "learn").by_agent:
            outs, written = self.learn_by_agent(args, reads, layout)
            if not watched:
                return (yield Agreement(mean, outs)), written
            mine = np.asarray(flags_of(args, mean(outs), written[0]), np.float32)
            out, flags = yield Agreement(mean, [(out, mine) for out in outs])
            out, after = self.judge(reads[-1], reads[0], args, out, written[:-1], mine > 0, flags[None] > 0)
            return out, (*after, written[-1])
        span = self.world.span("learner")
        *states, count = reads
        args = strong(args)
        axes = leaf_tree(args, layout.rows)
        running = [self.learning(self.root, np.int32(number), np.int32(count), tuple(states),
                                 split(args, axes, at, len(span))) for at, number in enumerate(span)]
        agreed: Any = None
        while True:
            met: list[Meeting] = []
            done = []
            for steps in running:
                try:
                    met.append(steps.send(agreed))
                except StopIteration as end:
                    done.append(end.value)
            if done:
                break
            agreed = yield Agreement(partial(reach, met[0]), [meeting.brought for meeting in met], met[0])
        if not watched:
            join = partial(join_rows, joined=layout.joined)
            return (yield Agreement(join, [out for out, _ in done])), (*done[0][1], count + 1)
        # Each has its part of the batch; what they return tells all of them what every one has found in its part.
        each = [np.asarray(flags_of(split(args, axes, at, len(span)), *one), np.float32)
                for at, one in enumerate((out, written[0]) for out, written in done)]
        join = partial(join_rows, joined=with_flags(done[0][0], layout.joined))
        out, flags = yield Agreement(join, [(out, mine) for (out, _), mine in zip(done, each, strict=True)])
        flags = flags.reshape(-1, max(1, len(each[0]))) > 0  # there may be no floats at all
        out, after = self.judge(count, states[0], args, out, done[0][1], np.stack(each).any(0) > 0, flags)
        return out, (*after, count + 1)

    def judge(self, count: Any, before: Any, args: tuple, out: Any, written: tuple, mine: np.ndarray,
              all_flags: np.ndarray) -> tuple[Any, tuple]:
        """What a learn returns and writes if it may; of one that is not finite, what becomes of it. `mine`: the flags
        of this machine's part. `all_flags`: (k, n), those of all that learn together, which decide alike."""
        if not all_flags.any():
            return out, written
        if self.ops.non_finite == "skip":
            self.skipped += 1
            state = jax.tree.map(sound, written[0], before) if self.shared else before
            weights = tuple(map(self.world.agent.learner.weights, state)) if type(state) is tuple else \
                self.ops.weights(state)
            return mended(out), (state, weights)
        batch = len(floats(args))
        if mine.any() and (mine[:batch].any() or not all_flags[:, :batch].any()):  # else another one tells of it
            world = self.world
            names = names_of(world.agent.learner, args, out, written[0])
            raise error_of(Fault(
                self.site, int(count) + 1,
                tuple(name for name, bad in zip(names, all_flags.any(0), strict=True) if bad),
                host(before), [host(args)], 0, (world.first_shard, world.first_shard + world.shards),
                (world.first_agent_shard, world.first_agent_shard + world.agent_shards), not self.fused))
        return out, written

    def alone(self, component: str, method: str) -> Callable[..., tuple[Any, tuple]]:
        """What runs the op for one shard. A machine that watches puts itself here."""
        return self.ops.alone(component, method)

    def learning(self, *given: Any) -> Steps:
        """One of several learners; the same goes for it."""
        return self.ops.learning(*given)(*given)

    def report(self, method: str, args: tuple, kwargs: dict[str, Any], reads: tuple) -> int:
        if method == "init":
            return 0
        self.reports.append({name: float(strong(value)) for name, value in metrics_of(args, kwargs).items()})
        return reads[0] + 1

    def new_buffer(self, component: str) -> Any:
        """An empty store, or one per shard."""
        if component not in self.items:
            return None
        buffer, item = self.world.buffers[component], self.ops.shard_item(self.items[component], component)
        over = self.world.over(component)
        return tuple(buffer.init(item) for _ in self.world.span(over)) if over else buffer.init(item)


def with_flags(out: Any, joined: LeafDims) -> LeafDims:
    """How learners' values are joined that have flags behind them: those of all stand one after another."""
    return (*(joined or (-1,) * len(jax.tree.leaves(out))), 0)


def sound(new: Any, old: Any) -> Any:
    """What learners keep that do not wait for one another: others have gone on from parameters that were applied, and
    those are finite (msrl/runtime/store.py)."""
    array = np.asarray(new)
    return old if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all() else new


def reach(meeting: Meeting, brought: list[Any]) -> list[Any]:
    """The mean of what all bring; at a site, what it makes of the state there."""
    agreed = mean(brought)
    return meeting.site.apply(meeting.others, meeting.state, agreed) if meeting.site else agreed


def finish(steps: Agreeing) -> tuple[Any, tuple]:
    """Runs learners that need no others to agree."""
    reached = None
    while True:
        try:
            agreement = steps.send(reached)
        except StopIteration as end:
            return end.value
        reached = agreement.reach(agreement.brought)


def metrics_of(args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """A report's metrics by name: nested dicts are joined by `/`."""
    found: dict[str, Any] = {}
    for tree in (*args, kwargs):
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
            name = "/".join(str(getattr(p, "key", getattr(p, "name", getattr(p, "idx", p)))) for p in path) or "value"
            if np.shape(leaf) != ():
                raise TypeCheckError(f"The metric `{name}` has shape {np.shape(leaf)}.",
                                     why="A metric is one number.",
                                     instead="Reduce it first, for instance with `.mean()`.")
            found[name] = leaf
    return found
