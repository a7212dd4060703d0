"""`msrl verify`: runs an algorithm under every deployment there is, and says whether the results are the same bits."""

import sys
import time
from functools import partial

from msrl import distribution as distributions
from msrl.backends.learnt import stacked
from msrl.cli import second_process
from msrl.cli.options import VERIFY, Given, VerifyOptions, read_with_algorithm
from msrl.comparing import call_difference, distance, far_apart
from msrl.deployment import BACKENDS, nearest
from msrl.errors import UsageError
from msrl.ir.graph import For
from msrl.jobs import Job, prepare
from msrl.pipeline import Program, compile
from msrl.sizing import LONG, for_updates, learning_loop, smallest
from msrl.verifying import WAYS, Case, Verdict, Verifier, cases, usual_distributions

UPDATES = 3


def main(args: list[str], began: float) -> int:
    given = read_with_algorithm(VerifyOptions, None, args, "msrl verify", VERIFY)
    check(given)
    job = prepare(given.algorithm, given.options.env, config=given.config, seed=given.options.seed, strict=True)
    try:
        return verify(given, job, began)
    finally:
        if job.made:
            job.base.close()


def verify(given: Given, job: Job, began: float) -> int:
    options: VerifyOptions = given.options
    agents = len(job.base.spec.agents) if any(by_agent(name) for name in options.distributions) else 0
    config, updates = smallest(job.config, given.named, agents), options.updates or UPDATES
    if "total_steps" not in given.named:
        config = for_updates(job.cls, config, job.base, updates)
    program = compile(job.cls, job.base, config=config, seed=job.seed, strict=True)
    shards = ("shards", "learner_shards", *(("agent_shards",) if config.agent_shards > 1 else ()))
    sizes = [name for name in ("total_steps", "num_envs", *shards, *LONG) if hasattr(config, name)]
    say(f"{given.algorithm} on {job.base.spec.id}, seed {job.seed}",
        ", ".join([*length(program, options), *(f"{name} {getattr(config, name)}" for name in sizes)]), "")
    names = options.distributions or usual_distributions(config, job.base.traceable)
    chosen = cases(names, options.backends, options.instances, config)
    verifier = Verifier(program, options.every_call, options.address,
                        make=lambda config: compile(job.cls, job.base, config=config, seed=job.seed, strict=True),
                        elsewhere=partial(second_process.unlike, given, config), anew=options.each_anew)
    verdicts = table(verifier, chosen)
    say("", summary(verdicts, time.perf_counter() - began))
    if all(verdict.result == "refused" for verdict in verdicts):
        raise UsageError("Nothing was compared.", why="Every case was refused, for the reasons above.",
                         instead="Ask for other distributions, backends or instances.")
    fast = Fast(verifier, compile(job.cls, job.base, config=config, seed=job.seed))
    say(fast.line)
    return int(fast.wrong or any(verdict.wrong for verdict in verdicts))


def by_agent(distribution: str) -> bool:
    return distributions.load(distribution).axis == "agent"


def length(program: Program, options: VerifyOptions) -> list[str]:
    """How many updates there will be, if that is known."""
    loop = learning_loop(program.graph)
    found = loop.trips if isinstance(loop, For) else None
    other = f" ({options.updates} cannot be had)" if options.updates not in (None, found) else ""
    return [] if found is None else [f"updates {found}{other}"]


def check(given: Given) -> None:
    """What can be refused before anything is compiled."""
    options: VerifyOptions = given.options
    for name in options.distributions:
        distributions.load(name)
    for backend in options.backends:
        if backend not in (*BACKENDS, *WAYS):
            raise UsageError(f"There is no backend {backend!r}.", why=f"There are {', '.join((*BACKENDS, *WAYS))}.",
                             instead=nearest(backend, (*BACKENDS, *WAYS)))
    for name, numbers in (("instances", options.instances or ()), ("updates", (options.updates or 1,))):
        if any(number < 1 for number in numbers):
            raise UsageError(f"--{name} is {min(numbers)}.", why="It must be 1 or more.",
                             instead="Give it another value, or leave it out.")
    if options.updates is not None and "total_steps" in given.named:
        raise UsageError("Both --updates and --total-steps are given.", why="Each says how long to run.",
                         instead="Leave out one of them.")


def table(verifier: Verifier, chosen: list[Case]) -> list[Verdict]:
    """Prints a row as soon as its case is decided."""
    wide = max(len("distribution"), *(len(case.distribution) for case in chosen))
    say(f"{'distribution':<{wide}}  backend  instances  result")
    verdicts = []
    for verdict in map(verifier.verdict, chosen):
        case, reason = verdict.case, f": {verdict.reason}" if verdict.reason else ""
        say(f"{case.distribution:<{wide}}  {case.backend:<7}  {case.instances:>9}  {verdict.result}{reason}")
        say(*(f"    {line}" for line in where(verdict)))
        verdicts.append(verdict)
    return verdicts


def where(verdict: Verdict) -> list[str]:
    """Where a case parts from the interpreter."""
    parting = verdict.parting
    if not verdict.wrong:
        return []
    if parting is None:
        return ["Inline, the same fragments agree: it happens in Ray's processes, or between them."
                if verdict.case.backend == "ray" else "It did not happen again when every call was watched."]
    line = f" ({parting.span})" if parting.span else ""
    return [f"op        {parting.op}{line}, call {parting.call}: {parting.how}",
            f"fragment  {parting.fragment}, instance {parting.instance}",
            f"shard     {parting.shard}", f"update    {parting.update}"]


def summary(verdicts: list[Verdict], seconds: float) -> str:
    counts = {result: sum(verdict.result == result for verdict in verdicts)
              for result in ("same", "differs", "failed", "refused")}
    told = ", ".join(f"{count} {result}" for result, count in counts.items() if count)
    number = f"{len(verdicts)} case{'s' if len(verdicts) > 1 else ''}"
    return f"{number} against the interpreter, bit by bit: {told} ({seconds:.1f} s)"


class Fast:
    """How far fast mode is from the interpreter. It may be rounded otherwise, but makes the same calls, and no report
    is far from what it should be."""

    def __init__(self, verifier: Verifier, fast: Program):
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        for _ in fast.run():
            for totals, count in (fast.resources.get("$metrics") or {}).values():  # since the last look
                for name, total in totals.items():
                    sums[name] = sums.get(name, 0.0) + float(total)
                    counts[name] = counts.get(name, 0) + int(count)
        wanted = verifier.wanted
        means = {name: total / counts[name] for name, total in sums.items() if counts[name]}
        unlike = call_difference(wanted.resources, fast.resources) or far_apart(wanted.reports, means)
        self.wrong = unlike is not None
        if unlike:
            self.line = f"fast mode differs by more than rounding: {unlike}"
            return
        learner = wanted.resources["$learner"]
        learner = stacked(learner) if fast.trainer.config.agent_shards > 1 else learner
        absolute, relative = distance(learner.params, fast.params()[0])
        self.line = f"fast mode ends within {absolute:.1e} of strict mode's parameters, {relative:.1e} of an array's " \
                    "largest"


def say(*lines: str) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()
