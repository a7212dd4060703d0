"""Local programs × instances → workers, with the channels between them, and the backend that runs them."""

import importlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from msrl.api import Env, Trainer
from msrl.backends.inline import Inline
from msrl.backends.remote import assign
from msrl.backends.threads import Threads
from msrl.backends.worker import Worker, make_worker
from msrl.engines.devices import use_devices
from msrl.engines.library import Ops
from msrl.engines.parts import part_of
from msrl.engines.shapes import Shapes
from msrl.errors import UsageError
from msrl.ir.graph import For, If, Node, Recv, While, walk
from msrl.ir.placed import PARAMETERS, Fragment, LocalProgram, Move, PlacedGraph
from msrl.projection.project import project
from msrl.runtime.channels import Exchange
from msrl.runtime.store import Store
from msrl.runtime.unordered import UnorderedExchange


def make_workers(placed: PlacedGraph, ops: Ops, shapes: Shapes, root: jax.Array, strict: bool,
                 actors: int, learners: int = 1, devices: int = 1, unordered: bool = False,
                 max_lag: int | None = None) -> list[Worker]:
    """Workers in the order of fragments and instances. `actors` and `learners`: instances of what is replicated,
    without and with the learner; what is replicated over agents has `learners`. On several `devices`, one worker has
    all. `unordered`: first come, first served."""
    world = ops.world

    def instances(fragment: Fragment) -> list[range]:
        if fragment.axis is None:
            return [range(world.shards)]
        if fragment.axis == "agent":
            return shard_runs(world.agent_shards, learners)
        if "learner" not in fragment.components:
            return shard_runs(world.shards, actors)
        return learner_runs(world.shards, world.config.learner_shards, learners)

    runs = {fragment.name: instances(fragment) for fragment in placed.fragments}
    each = {fragment.name: world.agents_per_shard if fragment.axis == "agent" else world.envs_per_shard
            for fragment in placed.fragments}
    sizes = {name: tuple(len(run) * each[name] for run in mine) for name, mine in runs.items()}
    served = any(PARAMETERS in fragment.components for fragment in placed.fragments)
    workers, programs = [], project(placed)
    if unordered and not served:
        exchange: Exchange = UnorderedExchange(placed.moves, sizes, max_lag)
    else:
        exchange = Exchange(placed.moves, sizes)
    if served:
        exchange.together, exchange.max_lag = not unordered, max_lag
        exchange.store = Store(exchange.ledger, exchange.changed, exchange.together, max_lag)
    exchange.agents = ops.agents.found
    exchange.lead = leading_move(programs, exchange.moves, unordered and not served)
    for name, program in programs.items():
        if devices > 1:
            use_devices(program, ops, shapes, placed.moves, devices)
        for instance, run in enumerate(runs[name]):
            mine, local = part_of(ops, shapes, program.fragment, placed.divided(name), run)
            workers.append(make_worker(program, instance, local, mine, root, strict, exchange))
    return workers


def leading_move(programs: dict[str, LocalProgram], moves: dict[str, Move], unordered: bool) -> str | None:
    """The move by which trajectories reach the learner: the first that it gathers of the environments' place in the
    loop that trains. None where they take another way; only there are steps counted."""
    learner = next(program for program in programs.values() if "learner" in program.fragment.components)
    _, loop, after = around(learner)
    stepping = next(name for name, program in programs.items() if "env" in program.fragment.components)
    blocks = [found for block in blocks_of(loop)
              if (found := [move for move in gathered(block, moves) if move.source == stepping])]
    if unordered:
        late = [move for block in blocks_of(after) for move in gathered(block, moves)]
        told = [moves[node.move] for program in programs.values() if program is not learner
                for node in walk(around(program)[1]) if isinstance(node, Recv)]
        told = [move for move in told if not move.value.startswith("$weights")]
        for wrong, why in (
            ([] if blocks else loop, "Nothing that actors make reaches the learner in its last loop, which trains."),
            (late, "Actors run until the learner is done, and here it wants a value of theirs after its last loop."),
            (told, "Actors never wait for the learner, and here they want more of it than weights."),
            ([block[0] for block in blocks][1:],
             "First come, first served: what the learner takes of one actor it takes in one go, and this value reaches "
             "it in another loop or branch than the first."),
        ):
            if wrong:
                raise UsageError("This loop cannot run asynchronously.", span=wrong[0].span, why=why,
                                 instead="Use a synchronous distribution, or let a pass of the loop act, collect in "
                                         "one buffer, and learn.")
    return blocks[0][0].id if blocks else None


def around(program: LocalProgram) -> tuple[tuple[Node, ...], tuple[Node, ...], tuple[Node, ...]]:
    """What comes before the loop that trains (the last one), the loop, and what comes after."""
    at = max((at for at, node in enumerate(program.nodes) if isinstance(node, (For, While))), default=-1)
    return program.nodes[:max(at, 0)], program.nodes[at:at + 1] if at >= 0 else (), program.nodes[at + 1:]


def gathered(block: tuple[Node, ...], moves: dict[str, Move]) -> list[Move]:
    return [moves[node.move] for node in block if isinstance(node, Recv) and moves[node.move].kind == "gather"]


def blocks_of(nodes: tuple[Node, ...]) -> Iterator[tuple[Node, ...]]:
    """The block, and those inside it."""
    yield nodes
    for node in nodes:
        match node:
            case For():
                yield from blocks_of(node.body)
            case While():
                yield from blocks_of(node.test)
                yield from blocks_of(node.body)
            case If():
                yield from blocks_of(node.then)
                yield from blocks_of(node.orelse)


def learner_runs(shards: int, learner_shards: int, instances: int) -> list[range]:
    """The shards of contiguous, nearly equal runs of learners."""
    each = shards // learner_shards
    return [range(run.start * each, run.stop * each) for run in shard_runs(learner_shards, instances)]


def shard_runs(shards: int, instances: int) -> list[range]:
    """Contiguous, nearly equal runs of the shards."""
    assert 1 <= instances <= shards, "checked by msrl.feasibility"
    least, more = divmod(shards, instances)
    ends = [0]
    for instance in range(instances):
        ends.append(ends[-1] + least + (instance < more))
    return [range(start, stop) for start, stop in itertools.pairwise(ends)]


def make_backend(name: str, workers: list[Worker], placed: PlacedGraph, trainer: Trainer, env: Env, *, seed: int,
                 seeds: int, address: str | None = None, hosts: Sequence[str] = ()) -> Any:
    """What runs the workers. Under ray they stay here as mirrors of those at work, `address` names the cluster, and
    they go to the `hosts` in turn, or wherever there is room."""
    match name:
        case "inline":
            return Inline(workers)
        case "threads":
            return Threads(workers)
        case "ray":
            # Imported when it is asked for: Ray is an extra, and takes a second to import.
            module = importlib.import_module("msrl.backends.ray_backend")
            return module.RayBackend(workers, assign(workers, placed, trainer, env, seed=seed, seeds=seeds), address,
                                     tuple(hosts))
    raise AssertionError("checked by msrl.feasibility")
