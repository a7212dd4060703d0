"""`msrl train`: trains, shows how it goes, and leaves a run folder."""

import re
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from msrl import resuming
from msrl.cli.deploying import DeploymentOptions
from msrl.cli.options import TRAIN, Given, ResumeOptions, TrainOptions, read_with_algorithm
from msrl.debugging import eager
from msrl.errors import UsageError
from msrl.jobs import Job, prepare
from msrl.results import Result, Start
from msrl.running import Stopped, run
from msrl.runtime.display import ConsoleDisplay
from msrl.runtime.files import dumps
from msrl.runtime.folder import INTERRUPTED, RunFolder, check_free, default_path
from msrl.runtime.interrupts import Interrupts
from msrl.runtime.outlet import Outlet
from msrl.runtime.profile import FILE as TRACE


def main(args: list[str], began: float) -> int:
    given = read_with_algorithm(TrainOptions, DeploymentOptions, args, "msrl train", TRAIN)
    options: TrainOptions = given.options
    if options.eager:
        return run_eagerly(given, options)
    if options.run_dir is not None:
        check_free(options.run_dir)

    def make() -> tuple[Job, None]:
        return prepare(given.algorithm, options.env, config=given.config, seed=options.seed, seeds=options.seeds,
                       strict=options.strict, eval_every=options.eval_every, eval_episodes=options.eval_episodes,
                       checkpoint_every=options.checkpoint_every, checkpoint_keep=options.checkpoint_keep,
                       restarts=options.restarts, env_timeout=options.env_timeout, profile=options.profile,
                       chaos=options.chaos, non_finite=options.non_finite, deployment=given.deployment,
                       own_process=True), None

    return execute(make, options, options.run_dir, began)


def run_eagerly(given: Given, options: TrainOptions) -> int:
    """The loop as plain Python, for who is looking for a mistake in it."""
    for flag, said in (("--run-dir", options.run_dir is not None), ("--seeds", options.seeds > 1),
                       ("--profile", options.profile), ("--json", options.json),
                       ("--distribution", given.deployment.distribution != "local")):
        if said:
            raise UsageError(f"Both --eager and {flag} are given.",
                             why="A loop that runs as plain Python is there to be looked into: it runs once, in this "
                                 "process, and leaves nothing behind.",
                             instead=f"Leave out {flag}, or --eager.")
    resources, reports = eager(given.algorithm, options.env, seed=options.seed, config=given.config)
    steps = int(resources.get("#env.step", 0)) * given.config.num_envs
    last = ", ".join(f"{name} {value:.4g}" for name, value in reports[-1].items()) if reports else "none"
    sys.stdout.write(f"plain Python  {steps:,} steps, {len(reports):,} reports; the last: {last}\n")
    return 0


def execute(make: Callable[[], tuple[Job, Start | None]], options: TrainOptions | ResumeOptions, path: Path | None,
            began: float) -> int:
    """Runs what `make` gives, in the run folder `path`, and says how it went."""
    grace = seconds_of(options.grace)
    others = [sys.stderr] if options.json else [sys.stdout, sys.stderr]
    console = Console(file=Outlet(others, lambda: interrupts.ask(signal.SIGPIPE)))
    display = ConsoleDisplay(console)
    folders: list[RunFolder] = []

    def asked(number: int) -> None:
        within = f" within {grace:g} seconds" if grace else ""
        display.say(f"{signal.Signals(number).name}: stopping after the current update{within}. Once more stops at "
                    "once.")

    def at_once(number: int, late: bool) -> None:
        for each in folders:
            each.abandon()
        if late:
            display.say(f"The grace period of {grace:g} seconds is over: stopped at once.")
        console.show_cursor(True)

    with Interrupts(asked, at_once, grace) as interrupts:
        job, start = make()
        path = path or default_path(job.algorithm, job.base.spec.id, job.seed)
        try:
            result = run(job, path, display, stop=interrupts.stop, opened=folders.append, began=began, start=start)
        except Stopped as stopped:
            display.say(*last_words(stopped, job, path))
            return 0 if stopped.checkpoint else interrupts.exit_code
        display.say(*report(result, job))
        if options.json:
            Outlet([sys.stdout]).line(dumps(result.summary()))
    return interrupts.exit_code if result.status == INTERRUPTED and not result.resumable else 0


def seconds_of(text: str) -> float:
    """A length of time: 30, 30s, 2m, 1h."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h|)", text)
    if not found:
        raise UsageError(f"--grace is {text!r}.", why="It is the time that a stop may take, and 0 is any time.",
                         instead="Use a number of seconds, or one with s, m or h behind it, like 30s.",
                         docs="docs/command-line.md#stopping")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def last_words(stopped: Stopped, job: Job, path: Path) -> list[str]:
    """What to say of a run that was stopped before it had a result."""
    if not stopped.checkpoint:
        return ["Stopped before the first checkpoint: there is nothing to go on from." if path.exists() else
                "Stopped before the first update: nothing was written."]
    return [f"interrupted  there is a checkpoint after {stopped.steps:,} steps",
            f"resume       {resuming.command(job, str(path))}"]


def report(result: Result, job: Job) -> list[str]:
    """What to say at the end."""
    lines = []
    if result.status == INTERRUPTED:
        lines += [f"interrupted  after {result.env_steps:,} steps; what was reached is saved"]
    elif result.eval_return_mean is None:
        lines += ["stopped      after the last update; it was not evaluated"]
    if result.status == INTERRUPTED and result.resumable:
        lines += [f"resume       {resuming.command(job, str(result.run_dir))}"]
    if result.eval_return_mean is not None:
        each = f" with each of {result.seeds} seeds" if result.seeds > 1 else ""
        lines += [f"return       {result.eval_return_mean:.1f} ± {result.eval_return_std:.1f} over "
                  f"{result.eval_episodes} episodes{each}"]
    if result.seeds > 1 and result.eval_return_iqm is not None:
        means = ", ".join(f"{seed['eval_return_mean']:.1f}" for seed in result.per_seed)
        lines += [f"seeds        interquartile mean {result.eval_return_iqm:.1f} of {means}"]
    if result.updates_skipped:
        lines += [f"skipped      {result.updates_skipped:,} updates that were not finite"]
    steps = f"{result.steps_per_second:,.0f} steps/s: {result.env_steps:,} steps" if result.env_steps else "no steps"
    lines += [f"speed        {steps} in {result.train_seconds:.1f} s, after {result.compile_seconds:.1f} s of "
              f"compiling; {result.total_seconds:.1f} s in all",
              *([f"profile      {result.profile['line']}"] if result.profile else []),
              f"run folder   {result.run_dir}"]
    where = shlex.quote(str(result.run_dir))
    return [*lines, "next         " + f"msrl eval {where}",
            *([f"             open {where}/{TRACE} at https://ui.perfetto.dev"] if result.profile else []),
            f"             tensorboard --logdir {where}",
            f"             msrl graph {shlex.quote(job.algorithm)} --env {shlex.quote(job.env)}{placed(job)}"]


def placed(job: Job) -> str:
    """The flags that draw the run as it was placed."""
    deployment = job.deployment
    if deployment.distribution == "local":
        return ""
    counts = "".join(f" --{name} {number}" for name in ("actors", "learners")
                     if (number := getattr(deployment, name)) > 1)
    shards = f" --shards {job.config.shards}" if counts else ""
    for name in ("learner_shards", "agent_shards"):
        number = getattr(job.config, name)
        shards += f" --{name.replace('_', '-')} {number}" if number > 1 else ""
    return f" --distribution {shlex.quote(deployment.distribution)}{counts}{shards}"
