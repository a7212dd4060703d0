"""Local programs × instances → workers, with the channels between them, and the backend that runs them."""

import importlib
import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import jax

from msrl.api import Env, Trainer
from msrl.backends.agreeing import may_group
from msrl.backends.injecting import inject
from msrl.backends.inline import Inline
from msrl.backends.remote import assign
from msrl.backends.switchboard import make_worker
from msrl.backends.threads import Threads
from msrl.backends.worker import Worker
from msrl.engines.devices import use_devices
from msrl.engines.group import Group, threads, threads_suffice
from msrl.engines.host import callable_back, compiled_buffers, filled_by_calls, traceable
from msrl.engines.library import Ops
from msrl.engines.parts import part_of
from msrl.engines.shapes import Shapes
from msrl.ir.graph import Call, Node
from msrl.ir.placed import PARAMETERS, Fragment, LocalProgram, PlacedGraph
from msrl.passes import chosen
from msrl.passes.call_back import call_back
from msrl.passes.coalesce_moves import coalesce_moves
from msrl.passes.fuse_instances import fuse_instances
from msrl.passes.fuse_stretches import fuse_stretches
from msrl.projection.leading import leading_move
from msrl.projection.project import project
from msrl.projection.verify import verify_programs
from msrl.runtime.channels import Exchange
from msrl.runtime.chaos import Chaos, Link
from msrl.runtime.delayed import Courier, DelayedExchange, Waiting
from msrl.runtime.store import Store
from msrl.runtime.unordered import UnorderedExchange


def make_workers(placed: PlacedGraph, ops: Ops, shapes: Shapes, root: jax.Array, strict: bool,
                 actors: int, learners: int = 1, devices: int = 1, unordered: bool = False,
                 max_lag: int | None = None, switches: Mapping[str, bool] = MappingProxyType({}),
                 courier: Courier | Waiting | None = None, apart: bool = False) -> list[Worker]:
    """Workers in the order of fragments and instances. `actors` and `learners`: instances of what is replicated,
    without and with the learner; what is replicated over agents has `learners`. On several `devices`, one worker has
    all. `unordered`: first come, first served. `switches`: the optimiser's passes that are named, on or off. `courier`:
    who brings messages, if they are to take longer. `apart`: each has a process of its own."""
    world, on = ops.world, chosen(switches, strict)

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
    verify_programs(programs, placed.moves)
    if unordered and not served:
        exchange: Exchange = UnorderedExchange(placed.moves, sizes, max_lag)
    else:
        exchange = Exchange(placed.moves, sizes)
    if served:
        exchange.lockstep, exchange.max_lag = not unordered, max_lag
        exchange.store = Store(exchange.ledger, exchange.changed, exchange.lockstep, max_lag,
                               watched=ops.non_finite != "ignore")
    exchange.agents = ops.agents.found
    exchange.lead = leading_move(programs, exchange.moves, unordered and not served)
    grouped = [f.name for f in placed.fragments if may_group(f, exchange, world.config, strict, root)]
    enough = jax.local_device_count() >= learners and threads_suffice(learners)
    group = Group(ops, jax.local_devices()[:learners]) if grouped and enough else None
    exchange.devices_differ = group is not None
    if "coalesce-moves" in on and not unordered:  # there, what arrives first is part of the meaning
        programs = coalesce_moves(programs, exchange.moves)
        verify_programs(programs, placed.moves)
    if "fuse-instances" in on:
        programs = {name: fuse_instances(program) for name, program in programs.items()}
    elif not strict:
        ops = ops.part(range(world.shards), batched=False)
    for name, program in programs.items():
        if devices > 1:
            use_devices(program, ops, shapes, placed.moves, devices)
        whole = ops
        if {"call-back", "fuse-stretches"} <= on and may_call_back(1 if apart else len(runs[name])):
            program, whole = calling_back(program, ops, exchange)
        if "fuse-stretches" in on:
            program = fuse_stretches(program, partial(compilable, whole, exchange), shapes.tabular)
        for instance, run in enumerate(runs[name]):
            mine, local = part_of(whole, shapes, program.fragment, placed.divided(name), run)
            shared = group if name in grouped else None
            key = jax.device_put(root, shared.devices[instance]) if shared else root  # where it computes
            ends: Any = DelayedExchange(exchange, courier) if courier else exchange
            workers.append(make_worker(program, instance, local, mine, key, strict, ends))
            workers[-1].group = shared
    return workers


def calling_back(program: LocalProgram, ops: Ops, exchange: Exchange) -> tuple[LocalProgram, Ops]:
    """The program with loops marked that call the host, and its ops, with the buffers that these fill."""
    mine = compiled_buffers(ops)
    while True:  # with fewer buffers inside, loops may be fewer, and with them the buffers that they fill
        marked = call_back(program, partial(compilable, mine, exchange), partial(callable_back, ops=mine))
        found = filled_by_calls(marked, ops)
        if found.world.buffers == mine.world.buffers:
            return marked, found
        mine = found


def may_call_back(instances: int) -> bool:
    """May these call the host from compiled loops? While they wait for it, each holds a thread of XLA's."""
    return jax.default_backend() == "cpu" and instances <= max(1, threads() - 1)


def compilable(ops: Ops, exchange: Exchange, node: Node) -> bool:
    """Can it be part of a compiled program? Not where other instances take part, unless they are devices."""
    return not (isinstance(node, Call) and any(name in exchange.among for name in node.writes)) and traceable(node, ops)


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


def make_courier(backend: str, link: Link) -> Courier | Waiting | None:
    """Who brings messages within this process, if they are to take longer."""
    if not link or backend == "ray":  # there, each process has its own
        return None
    return Waiting(link) if backend == "inline" else Courier(link)


def make_backend(name: str, workers: list[Worker], placed: PlacedGraph, trainer: Trainer, env: Env, *, seed: int,
                 seeds: int, chaos: Chaos, address: str | None = None, hosts: Sequence[str] = (), stream: int = 0,
                 worker_timeout: int | None = None) -> Any:
    """What runs the workers. Under ray they stay here as mirrors of those at work, `address` names the cluster, and
    they go to the `hosts` in turn, or wherever there is room. `chaos`: what is to go wrong."""
    if chaos.faults and name != "ray":
        inject(chaos, name, workers, env)
    match name:
        case "inline":
            return Inline(workers)
        case "threads":
            return Threads(workers)
        case "ray":
            # Imported when it is asked for: Ray is an extra, and takes a second to import.
            module = importlib.import_module("msrl.backends.ray_backend")
            assignments = assign(workers, placed, trainer, env, seed=seed, seeds=seeds, chaos=chaos, stream=stream)
            return module.RayBackend(workers, assignments, address, tuple(hosts), worker_timeout)
    raise AssertionError("checked by msrl.feasibility")
