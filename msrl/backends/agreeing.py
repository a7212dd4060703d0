"""How learners in several instances agree: among themselves, or by way of the one place that keeps their parameters.

Where all their devices form one mesh, learning is one program over it (`msrl.engines.group`). Else a worker's learners
run up to each agreement, and what they bring is exchanged; `serve` is the counterpart where parameters are kept.
Among themselves, every instance is given what all bring, in the order of the learners, and reaches the same result.
Where parameters are kept, the result is reached once, by the same programs, and everyone is given it: the bits are the
same.
"""

from collections.abc import Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from msrl.api import Config
from msrl.engines.blame import blame
from msrl.engines.cut import Cut
from msrl.engines.finite import flags_of
from msrl.engines.group import GroupOfProcesses
from msrl.engines.ops import LeafDims, join_rows, leaf_tree, mean, split, strong
from msrl.engines.reference import Agreement, Reference, with_flags
from msrl.errors import RunError
from msrl.ir.graph import Call
from msrl.ir.interp import Names
from msrl.ir.placed import Fragment
from msrl.runtime.channels import Exchange
from msrl.runtime.tracing import at_work

if TYPE_CHECKING:
    from msrl.backends.worker import Worker

MEAN, END = -1, -2  # in place of a site's number: they agree on a mean, or on what their op returns


def may_group(fragment: Fragment, exchange: Exchange, config: Config, strict: bool, root: jax.Array) -> bool:
    """Can the learners of a fragment's instances be one program, if there are devices for it? They can if they agree
    among themselves, in equal numbers, in one run. Strict mode cuts them at every gradient instead."""
    instances = len(exchange.sizes[fragment.name])
    return "learner" in fragment.components and fragment.axis == "env" and instances > 1 and exchange.store is None \
        and config.learner_shards % instances == 0 and not strict and root.ndim == 0


def learn(worker: "Worker", node: Call, names: Names) -> Iterator[None]:
    """Runs the op; yields while it waits for others."""
    run = grouped if worker.group else exchanged
    out, written = yield from run(worker, node, names)
    names.update(zip(node.writes, written, strict=True))
    if node.out:
        names[node.out] = out


def grouped(worker: "Worker", node: Call, names: Names) -> Generator[None, None, tuple[Any, tuple]]:
    """As one program with the learners of the other instances: (value, resources written). Of those in one process,
    the first one runs it for all."""
    group, exchange, instance = worker.group, worker.exchange, worker.instance
    assert group is not None
    mine = worker.root, tuple(names[name] for name in node.args), tuple(names[name] for name in node.reads)
    if isinstance(group, GroupOfProcesses):
        with blame(node, RunError), at_work(worker.trace, node) as ready:
            return judged(worker, node, mine, *ready(group.learn(node, [mine], worker.count_compiling)[0]))
    move, _ = exchange.among[node.writes[0]]

    def all_of(value: Any) -> Generator[None, None, list[Any]]:
        exchange.send(move, instance, value)
        while not exchange.ready(move, instance):
            yield None
        worker.messages += 2
        return exchange.receive(move, instance)

    parts = yield from all_of(mine)
    with blame(node, RunError), at_work(worker.trace, node) as ready:
        found = ready(group.learn(node, parts, worker.count_compiling)) if instance == 0 else None
    made = yield from all_of(found)
    with blame(node, RunError):
        return judged(worker, node, mine, *made[0][instance])


def judged(worker: "Worker", node: Call, given: tuple[jax.Array, tuple, tuple], out: Any, written: tuple,
           flags: Any) -> tuple[Any, tuple]:
    """What became of a learn, now that all know what every one of them has found in its part of the batch."""
    if flags is None or not (found := np.asarray(flags)).any():
        return out, written
    machine, (_, args, reads) = machine_of(worker, node), given
    mine = np.asarray(flags_of(strong(args), out, written[0]))
    out, after = machine.judge(reads[-1], reads[0], strong(args), out, written[:-1], mine, found)
    return out, (*after, written[-1])


def machine_of(worker: "Worker", node: Call) -> Reference:
    machine = worker.engine if isinstance(worker.engine, Reference) else worker.engine.reference
    machine.site, machine.shared = node.writes[0], not worker.exchange.lockstep
    return machine


def exchanged(worker: "Worker", node: Call, names: Names) -> Generator[None, None, tuple[Any, tuple]]:
    """The same by messages: (value, resources written)."""
    steps = machine_of(worker, node).learn(
        tuple(names[name] for name in node.args), tuple(names[name] for name in node.reads),
        worker.ops.layouts.of(node))
    (bring, take), reached = worker.exchange.among[node.writes[0]], None
    served, learnt_from = bring != take, 0 if worker.exchange.lockstep else worker.count_steps(node, names)
    while True:
        with blame(node, RunError):
            try:
                agreement = steps.send(reached)
            except StopIteration as end:
                return end.value
            message: Any = request(worker, bring, agreement, learnt_from) if served else agreement.brought
        worker.exchange.send(bring, worker.instance, message)
        while not worker.exchange.ready(take, worker.instance):
            yield None
        answer = worker.exchange.receive(take, worker.instance)
        worker.messages += 2
        reached = answer if served else agreement.reach([one for part in answer for one in part])
        if served and agreement.meeting and agreement.meeting.site:
            worker.pulled[bring, agreement.meeting.site.number] = reached


def request(worker: "Worker", bring: str, agreement: Agreement, steps: int) -> tuple:
    """(what to do, environment steps, what it is applied to, what each learner brings). Parameters that were taken
    from where they are kept are not brought back there."""
    meeting = agreement.meeting
    if meeting is None or meeting.site is None:
        return MEAN if meeting else END, steps, [], [], agreement.brought
    held = worker.pulled.get((bring, meeting.site.number))
    same = held is not None and all(mine is theirs for mine, theirs in zip(meeting.state, held, strict=True))
    if held is not None and not same and not worker.exchange.lockstep:
        raise RunError("The parameters are not those that were taken from where they are kept.",
                       why="Learners that do not wait for one another share one set of parameters, which only "
                           "`self.apply_gradients(...)` changes. This learner changed them, or the optimiser's state, "
                           "in another way since.",
                       instead="Change them by `apply_gradients` alone, once in an update for each set of parameters; "
                               "or use --distribution central.")
    return meeting.site.number, steps, meeting.others, [] if same else meeting.state, agreement.brought


def serve(worker: "Worker", node: Call) -> Iterator[None]:
    """Answers learners until their op is over: all at once, or the one that this worker talks to. Yields while it
    waits for them."""
    exchange, store = worker.exchange, worker.exchange.store
    assert store is not None
    (bring, take), sites = exchange.among[node.writes[0]], program_of(worker, node.writes[0]).sites
    what = None
    while what != END:
        while not exchange.ready(bring, 0):
            yield None
        requests = exchange.receive(bring, 0)
        first, learner = what is None, 0 if store.lockstep else worker.instance
        what, steps, others, state, _ = requests[0]
        brought = [one for request in requests for one in request[-1]]
        with blame(node, RunError), at_work(worker.trace, node) as ready:
            if first and not store.lockstep:
                store.begin(steps)
            if what == END:
                answer: Any = join_rows(brought, joined(worker, node, brought[0]))
                if not store.lockstep:
                    store.end(learner, steps)
            else:
                answer = mean(brought)
                if what != MEAN:
                    apply = partial(sites[what].apply, others, mean=answer)
                    answer = store.step((node.writes[0], what), learner, state, apply)
            ready(answer)
        exchange.send(take, 0, answer)
        worker.messages += 2


def joined(worker: "Worker", node: Call, brought: Any) -> LeafDims:
    """How what learners return is put together."""
    dims = worker.ops.layouts.joined[node.writes[0]]
    return with_flags(brought[0], dims) if worker.ops.non_finite != "ignore" else dims


def program_of(worker: "Worker", state: str) -> Cut:
    """What one of several learners runs to make this state, found from shapes."""
    call, shapes, world = worker.shapes.learns[state], worker.shapes.names, worker.ops.world
    count = len(world.span("learner"))
    args = strong(tuple(shapes.get(name, 0) for name in call.args))  # a loop's index is a number
    axes = leaf_tree(args, worker.ops.layouts.of(call).rows)
    mine = jax.eval_shape(lambda args: split(args, axes, 0, count), args)
    states = tuple(shapes[name] for name in call.reads[:-1])
    return worker.ops.learning(worker.root, np.int32(0), np.int32(0), states, mine)
