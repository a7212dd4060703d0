"""Whether an algorithm gives the same bits however it is deployed: each way is run in strict mode and held against the
interpreter.

In: a compiled strict program. Out: a `Verdict` per case. Where a case differs, both are run again with witnesses, and
the `Parting` names the first call at which they part. As the interpreter's order respects every dependence, all that
the call depends on was still the same.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import jax

from msrl import distribution as distributions
from msrl.api import Config
from msrl.backends.worker import Worker
from msrl.comparing import Outcome, copies, difference
from msrl.deployment import Deployment
from msrl.distribution import DISTRIBUTIONS
from msrl.distribution.policy import DistributionPolicy
from msrl.engines.witness import Entry, Occasion, Witness
from msrl.errors import RunError, Span, UsageError
from msrl.feasibility import Setting, check
from msrl.pipeline import Program


@dataclass(frozen=True)
class Case:
    """One way to deploy a program. `instances`: of everything that the distribution replicates."""

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
    found = []
    for name in names:
        policy = distributions.load(name)
        counts, by_env = policy.counts, {"actors": config.shards, "learners": config.learner_shards}
        most = min((config.agent_shards if policy.axis == "agent" else by_env[count] for count in counts), default=1)
        numbers = [1] if not counts else instances or [number for number in (1, 2, 4) if number <= most]
        found += [Case(name, backend, number) for backend in backends for number in numbers]
    return found


class Verifier:
    """Holds deployments of one strict program against its interpreter."""

    def __init__(self, program: Program, every_call: bool = False, address: str | None = None):
        """With `every_call`, all calls are compared, and not only what is left at the end: a difference in a last bit
        may be lost in the next sum. `address`: of the Ray cluster to join, if a case needs one."""
        self.program, self.every_call, self.address = program, every_call, address

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
        wanted = self.wanted
        try:
            program = self.deployed(case)
        except UsageError as refusal:
            return Verdict(case, "refused", refusal.what)
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
        return self.program.deployed(deployment)

    def parting(self, case: Case) -> Parting | None:
        """Runs the case once more, watched: None if it does not differ again. What Ray's processes do is looked for
        inline."""
        program = self.deployed(Case(case.distribution, "inline", case.instances) if case.backend == "ray" else case)
        watch(program)
        with contextlib.suppress(RunError):  # up to where it stopped, too, it can be compared
            copies(program)
        return first_parting(self.witness, program.workers)


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
