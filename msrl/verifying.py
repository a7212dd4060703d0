"""Whether an algorithm gives the same bits however it is deployed: each way is run in strict mode and held against the
interpreter.

In: a compiled strict program. Out: a `Verdict` per case. Where a case differs, both are run again with witnesses, and
the `Parting` names the first call at which they part. As the interpreter's order respects every dependence, all that
the call depends on was still the same.

Besides deployments there are `WAYS` that share less with the interpreter: plain Python does not share the graph, ops
that are compiled anew do not share what JAX has traced, and another number of environments does not share the sizes by
which something might have been taken for what it is not.
"""

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import jax

from msrl import distribution as distributions
from msrl.api import Config
from msrl.backends.eager import Eager
from msrl.backends.worker import Worker
from msrl.comparing import Outcome, copies, difference
from msrl.deployment import Deployment
from msrl.distribution import DISTRIBUTIONS
from msrl.distribution.policy import DistributionPolicy
from msrl.engines.divisions import Divisions
from msrl.engines.library import make_ops
from msrl.engines.reference import Reference
from msrl.engines.shapes import find_shapes
from msrl.engines.witness import Entry, Occasion, Witness
from msrl.errors import RunError, Span, UsageError
from msrl.feasibility import Setting, check
from msrl.pipeline import Program

WAYS = ("eager", "anew", "sizes", "process")
"""Besides backends: plain Python, ops compiled anew, another number of environments, another process."""


@dataclass(frozen=True)
class Case:
    """One way to deploy a program. `instances`: of everything that the distribution replicates. In the place of a
    backend there may be one of WAYS."""

    distribution: str
    backend: str
    instances: int


@dataclass(frozen=True)
class Parting:
    """The first call that is not the interpreter's."""

    op: str
    fragment: str
    instance: int  # from 0
    shard: int  # of the environments (and agents, within each), or of the learners; 0 for what there is one of
    update: int  # the pass of the top-level loop, from 1; 0 before any
    call: int  # of this op for this shard, from 1
    how: str
    span: Span | None


@dataclass(frozen=True)
class Verdict:
    case: Case
    result: Literal["same", "differs", "refused", "failed"]
    reason: str = ""
    parting: Parting | None = None

    @property
    def wrong(self) -> bool:
        return self.result in ("differs", "failed")


def usual_distributions(config: Config, traceable: bool) -> list[str]:
    """Those that are synchronous and fit. With one learner shard, or one agent shard, learners cannot be several."""
    def fits(policy: type[DistributionPolicy]) -> bool:
        several = config.agent_shards if policy.axis == "agent" else config.learner_shards
        return "learners" not in policy.counts or several > 1

    return [name for name, policy in DISTRIBUTIONS.items()
            if not policy.asynchronous and (traceable or not policy.traceable_only) and fits(policy)]


def cases(names: Sequence[str], backends: Sequence[str], instances: Sequence[int] | None,
          config: Config) -> list[Case]:
    """All combinations. Unless `instances` are given, they are 1, 2 and 4 as far as there are shards."""
    found = [Case("local", way, 1) for way in WAYS if way in backends]
    for name in names:
        policy = distributions.load(name)
        counts, by_env = policy.counts, {"actors": config.shards, "learners": config.learner_shards}
        most = min((config.agent_shards if policy.axis == "agent" else by_env[count] for count in counts), default=1)
        numbers = [1] if not counts else instances or [number for number in (1, 2, 4) if number <= most]
        found += [Case(name, backend, number) for backend in backends if backend not in WAYS for number in numbers]
    return found


class Verifier:
    """Holds deployments of one strict program against its interpreter."""

    def __init__(self, program: Program, every_call: bool = False, address: str | None = None,
                 make: Callable[[Config], Program] | None = None,
                 elsewhere: Callable[[Outcome], str | None] | None = None, anew: bool = False):
        """With `every_call`, all calls are compared, and not only what is left at the end: a difference in a last bit
        may be lost in the next sum. `address`: of the Ray cluster to join, if a case needs one. `make`: the strict
        program with another configuration. `elsewhere`: how what another process finds differs from this. `anew`: the
        ops of every case are traced and compiled again."""
        self.program, self.every_call, self.address, self.make, self.elsewhere, self.anew = \
            program, every_call, address, make, elsewhere, anew

    @cached_property
    def wanted(self) -> Outcome:
        return Outcome(*self.program.interpret())

    @cached_property
    def witness(self) -> Witness:
        """The interpreter's, of every call."""
        program = self.program
        machine = Witness(program.ops, program.root, program.shapes.items, program.graph.nodes)
        program.interpret(machine)
        return machine

    def verdict(self, case: Case) -> Verdict:
        match case.backend:
            case "eager":
                return self.eager(case)
            case "sizes":
                return self.other_sizes(case)
            case "process":
                unlike = self.elsewhere(self.wanted) if self.elsewhere else None
                return Verdict(case, "differs", unlike) if unlike else Verdict(case, "same")
        wanted = self.wanted
        try:
            program = self.deployed(case)
        except UsageError as refusal:
            return Verdict(case, "refused", refusal.what)
        if repeated := repeated_effects(program):
            return Verdict(case, "differs", repeated)
        watched = self.every_call and case.backend != "ray"  # whose processes cannot be watched from here
        if watched:
            watch(program)
        try:
            unlike = next(filter(None, (difference(wanted, copy) for copy in copies(program))), None)
        except RunError as problem:  # the interpreter has come through, so this is a difference too
            return Verdict(case, "failed", problem.what, self.parting(case))
        parting = first_parting(self.witness, program.workers) if watched else self.parting(case) if unlike else None
        if unlike or parting:
            return Verdict(case, "differs", unlike or "on the way, though not in the end", parting)
        return Verdict(case, "same")

    def deployed(self, case: Case) -> Program:
        """The program as the case has it, if that is possible."""
        if case.backend == "anew":
            return compiled_anew(self.program).deployed(Deployment())
        policy = distributions.load(case.distribution)
        if policy.asynchronous:
            raise UsageError("It is asynchronous: first come, first served, so that no two runs need be the same.")
        replicas: Any = dict.fromkeys(policy.counts, case.instances)
        deployment = Deployment(case.distribution, case.backend, **replicas,
                                address=self.address if case.backend == "ray" else None)
        env, config = self.program.env, self.program.trainer.config
        # In strict mode the shards run one by one, and no instance needs a device of its own.
        check(deployment, Setting(env.spec.id, env.traceable, len(env.spec.agents), config.num_envs, config.shards,
                                  config.learner_shards, config.agent_shards, devices=case.instances))
        return (compiled_anew(self.program) if self.anew else self.program).deployed(deployment)

    def parting(self, case: Case) -> Parting | None:
        """Runs the case once more, watched: None if it does not differ again. What Ray's processes do is looked for
        inline."""
        program = self.deployed(Case(case.distribution, "inline", case.instances) if case.backend == "ray" else case)
        watch(program)
        with contextlib.suppress(RunError):  # up to where it stopped, too, it can be compared
            copies(program)
        return first_parting(self.witness, program.workers)

    def eager(self, case: Case) -> Verdict:
        """Plain Python shares no graph with the interpreter, but only ops."""
        program, machine = self.program, Reference(self.program.ops, self.program.root, self.program.shapes.items)
        if self.every_call:
            machine = Witness(program.ops, program.root, program.shapes.items)
        try:
            unlike = difference(self.wanted, Outcome(*program.eager(Eager(machine, program.graph))))
        except RunError as problem:
            return Verdict(case, "failed", problem.what)
        if not unlike and not self.every_call:
            return Verdict(case, "same")
        if not self.every_call:
            machine = Witness(program.ops, program.root, program.shapes.items)
            program.eager(Eager(machine, program.graph))
        assert isinstance(machine, Witness)
        parting = witnessed_parting(self.witness, machine)
        if unlike or parting:
            return Verdict(case, "differs", unlike or "on the way, though not in the end", parting)
        return Verdict(case, "same")

    def other_sizes(self, case: Case) -> Verdict:
        """With other numbers of environments and shards, the same arguments must be divided. What is computed then is
        another matter, as every shard has its own random numbers."""
        config, make = self.program.trainer.config, self.make
        if make is None or config.shards == 1:
            return Verdict(case, "refused", "There is one shard, so that nothing is divided.")
        other = other_size(config)
        if other is None:
            return Verdict(case, "refused", "Its settings allow for no other number of environments.")
        found = []
        for program in (self.program, make(other)):
            machine = Divisions(program.ops, program.root, program.shapes.items)
            program.interpret(machine)
            found.append(machine)
        one, two = found
        for site in one.found.keys() & two.found.keys():
            mine, others = one.found[site], two.found[site]
            leaf = next((leaf for leaf in mine if leaf in others and mine[leaf] != others[leaf]), None)
            if leaf is not None:
                line = f" ({one.spans[site]})" if one.spans[site] else ""
                sizes = [f"{each.num_envs} environments in {each.shards} shards" for each in (config, other)]
                divided, whole = sizes if mine[leaf] else reversed(sizes)
                return Verdict(case, "differs", f"{path_of(leaf)} of {site[1]}.{site[2]}{line} is divided with "
                                                f"{divided}, and given whole with {whole}")
        return Verdict(case, "same")


def path_of(leaf: str) -> str:
    """`['arguments'][1]` → `arguments[1]`."""
    head, _, rest = leaf.removeprefix("['").partition("']")
    return f"{head}{rest}"


def compiled_anew(program: Program) -> Program:
    """The same components, traced and compiled once more: what is pure comes out as before."""
    other = copy.copy(program)
    other.ops = make_ops(program.world, program.graph, non_finite=program.ops.non_finite)
    other.shapes = find_shapes(program.graph, other.ops)
    return other


def other_size(config: Config) -> Config | None:
    """The configuration with more environments, and fewer shards if there are two left, as far as it allows for it."""
    half = config.shards // 2
    shards = half if half >= 2 and config.shards == 2 * half and half % config.learner_shards == 0 else config.shards
    for number in (config.num_envs + config.shards, config.num_envs + 3 * config.shards, 2 * config.num_envs):
        with contextlib.suppress(UsageError):
            steps = -(-config.total_steps * number // config.num_envs)
            return dataclasses.replace(config, num_envs=number, shards=shards, total_steps=steps)
    return None


def repeated_effects(program: Program) -> str | None:
    """A component on the host that several instances have would do what it does several times."""
    for name, component in program.world.own.items():
        count = sum(name in worker.program.fragment.components for worker in program.workers)
        if count > 1 and not component.traceable and not getattr(component, "replicable", False):
            return f"{name} runs on the host in {count} instances, so that its effects happen {count} times"
    return None


def witnessed_parting(wanted: Witness, found: Witness) -> Parting | None:
    """Of plain Python, which has no fragments."""
    for occasion, entry in wanted.entries.items():
        if how := unlike(entry, found.entries.get(occasion)):
            return Parting(f"{occasion.component}.{occasion.method}", "plain Python", 0, occasion.shard, entry.update,
                           occasion.call + 1, how, entry.span)
    for occasion in found.entries:
        if occasion not in wanted.entries:
            return Parting(f"{occasion.component}.{occasion.method}", "plain Python", 0, occasion.shard, wanted.update,
                           occasion.call + 1, "the interpreter does not call it again", None)
    return None


def watch(program: Program) -> None:
    """Lets every worker write down its calls."""
    for worker in program.workers:
        worker.engine = Witness(worker.ops, worker.root, worker.shapes.items)


def first_parting(wanted: Witness, workers: Sequence[Worker]) -> Parting | None:
    for occasion, entry in wanted.entries.items():
        for worker in workers:
            if not owns(worker, occasion):
                continue
            assert isinstance(worker.engine, Witness)
            how = unlike(entry, worker.engine.entries.get(occasion))
            if how:
                return _parting(occasion, worker, entry.update, how, entry.span)
    for worker in workers:
        assert isinstance(worker.engine, Witness)
        for occasion in worker.engine.entries:
            if occasion not in wanted.entries:
                return _parting(occasion, worker, wanted.update, "the interpreter does not call it again", None)
    return None


def _parting(occasion: Occasion, worker: Worker, update: int, how: str, span: Span | None) -> Parting:
    return Parting(f"{occasion.component}.{occasion.method}", worker.program.fragment.name, worker.instance,
                   occasion.shard, update, occasion.call + 1, how, span)


def owns(worker: Worker, occasion: Occasion) -> bool:
    """Is it for this worker to make that call?"""
    component, method = occasion.component, occasion.method
    if component not in worker.program.fragment.components:
        return False
    if component == "metrics":
        return True
    world = worker.ops.world
    if component in world.buffers and method == "init":
        return occasion.shard in world.span(world.over(component))
    return occasion.shard in world.numbers(worker.ops.op(component, method))


def unlike(wanted: Entry, found: Entry | None) -> str | None:
    """How two calls differ, in words."""
    if found is None:
        return "it is not called"
    given = leaf_that_differs(wanted.given, found.given)
    if given is not None:
        return f"it is given another {given}"
    made = leaf_that_differs(wanted.made, found.made)
    return f"given the same, it makes another {made}" if made is not None else None


def leaf_that_differs(wanted: Any, found: Any) -> str | None:
    """The path of the first one; of trees with other parts, just that."""
    if jax.tree.structure(wanted) != jax.tree.structure(found):
        return "form"
    pairs = zip(jax.tree_util.tree_flatten_with_path(wanted)[0], jax.tree.leaves(found), strict=True)
    path = next((path for (path, a), b in pairs if a != b), None)
    if path is None:
        return None
    head, rest = path[0].key, jax.tree_util.keystr(path[1:])
    return f"{head}{rest}"
