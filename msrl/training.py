"""`msrl.train`, `msrl.resume` and `msrl.compile`: the pipeline for those who write Python.

In: an algorithm, an environment, settings. Out: a `Result`, or the `Program` itself. Bad input is refused before
anything is written.
"""

from pathlib import Path
from typing import Any

from rich.console import Console

from msrl import pipeline
from msrl.api import Config, Trainer
from msrl.deployment import Deployment
from msrl.errors import UsageError
from msrl.jobs import prepare
from msrl.pipeline import Program
from msrl.results import Result
from msrl.resuming import resumed
from msrl.running import run
from msrl.runtime.checkpoints import Checkpoint
from msrl.runtime.display import ConsoleDisplay, Display
from msrl.runtime.folder import check_free

RUNNING = ("eval_every", "eval_episodes", "checkpoint_keep", "restarts", "profile")  # what only a run has a use for


def compile(algorithm: str | type[Trainer], env: Any, *, seed: int = 0, seeds: int = 1, strict: bool = False,
            config: Config | None = None, deployment: Deployment | str | Path | None = None, checkpoint_every: int = 0,
            start: Checkpoint | None = None, chaos: str = "", non_finite: str = "stop", own_process: bool = False,
            **fields: Any) -> Program:
    """Compiles an algorithm for an environment (an id, an object, or a function that makes one: docs/environments.md);
    `Program.run()` trains it. `fields` override the configuration's and
    the deployment's: `msrl.compile("ppo", "CartPole-v1", shards=2, distribution="single-learner-coarse", actors=2)`.
    After every `checkpoint_every` passes of its loop, `Program.taken()` has a checkpoint, which may be the `start` of
    another program. `chaos` is what is to go wrong (docs/reliability.md); nobody goes on after a loss here.
    `own_process` lets the process, which has nothing else to do, have the number of threads that suits the program, as
    `msrl train` does (docs/performance.md)."""
    for name in RUNNING:
        if name in fields:
            raise UsageError(f"msrl.compile has no setting {name!r}.",
                             why="A program only trains: who runs it evaluates it, keeps its checkpoints and goes on.",
                             instead="Use msrl.train, or leave it out.")
    job = prepare(algorithm, env, seed=seed, seeds=seeds, strict=strict, config=config, deployment=deployment,
                  checkpoint_every=checkpoint_every, chaos=chaos, non_finite=non_finite, own_process=own_process,
                  **fields)
    if seeds > 1 and job.deployment.distribution != "local":
        raise UsageError(f"{seeds} seeds cannot be trained at once under {job.deployment.distribution}.",
                         why="They share one compiled program, and a distribution has several.",
                         instead="Train them one after another: msrl.train does, and so does `msrl train --seeds`.")
    return pipeline.compile(job.cls, job.base, seed=seed, seeds=seeds, strict=strict, config=job.config,
                            deployment=job.deployment, checkpoint_every=checkpoint_every, start=start,
                            chaos=job.chaos, non_finite=non_finite, own_process=own_process,
                            stream=start.about.get("stream", 0) if start else 0)


def train(algorithm: str | type[Trainer], env: Any, *, seed: int = 0, seeds: int = 1, strict: bool = False,
          run_dir: str | Path | None = None, progress: bool = True, eval_every: int = 0, eval_episodes: int = 100,
          profile: bool = False, config: Config | None = None, deployment: Deployment | str | Path | None = None,
          checkpoint_every: int = 0, checkpoint_keep: int = 3, restarts: int = 3, env_timeout: float = 0.0,
          chaos: str = "", non_finite: str = "stop", own_process: bool = False, **fields: Any) -> Result:
    """Trains an algorithm on an environment (as in `msrl.compile`) and evaluates it. `fields` override the
    configuration's and the deployment's: `msrl.train("ppo", env="CartPole-v1", total_steps=100_000)`. Without
    `run_dir`, nothing is written; `profile` finds out where the time went, and `chaos` lets things go wrong
    (docs/reliability.md). `own_process` as in `msrl.compile`."""
    if run_dir is not None:
        check_free(Path(run_dir))
    job = prepare(algorithm, env, seed=seed, seeds=seeds, strict=strict, eval_every=eval_every,
                  eval_episodes=eval_episodes, profile=profile, config=config, deployment=deployment,
                  checkpoint_every=checkpoint_every, checkpoint_keep=checkpoint_keep, restarts=restarts,
                  env_timeout=env_timeout, chaos=chaos, non_finite=non_finite, own_process=own_process, **fields)
    display = ConsoleDisplay(Console(stderr=True)) if progress else Display()
    return run(job, Path(run_dir) if run_dir is not None else None, display)


def resume(run_dir: str | Path, *, checkpoint: str | None = None, auto: bool = False, algorithm: str | None = None,
           env: Any = None, progress: bool = True, deployment: Deployment | str | Path | None = None,
           **fields: Any) -> Result:
    """Goes on with a run that was stopped, from its newest checkpoint or the one of that name; with `auto`, from an
    older one if the newest is damaged. `fields` are those of the deployment and of the settings that are to be others:
    `msrl.resume("runs/mine", distribution="single-learner-coarse", actors=2)`, or `total_steps=200_000` to train a run
    further that is finished."""
    if isinstance(deployment, (str, Path)):
        deployment = Deployment.from_file(deployment)
    job, start = resumed(Path(run_dir), checkpoint=checkpoint, auto=auto, algorithm=algorithm, env=env,
                         deployment=deployment, **fields)
    display = ConsoleDisplay(Console(stderr=True)) if progress else Display()
    return run(job, Path(run_dir), display, start=start)


__all__ = ["Result", "compile", "resume", "train"]
