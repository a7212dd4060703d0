"""A run: train, look between chunks, evaluate, keep.

In: a `Job`. Out: a `Result`. It always holds that a run which stops early, for whatever reason, leaves a run folder
with all that it reached, or none.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np

from msrl import faults, pipeline
from msrl.announcing import lines_of, loss_of, planned_steps
from msrl.backends.schedule import AT_END
from msrl.elastic import Elastic, Grown
from msrl.engines.evaluation import Abandoned, Episodes
from msrl.envs.host import HostEnv
from msrl.errors import LostError, MsrlError, NonFiniteError, RoomError
from msrl.jobs import DEPLOYMENT, Job, about, command, lasting_deployment
from msrl.pipeline import Program, Update
from msrl.playing import snapshot
from msrl.results import Result, Start, Stopped, explained, interquartile_mean, rewound, row_of, score_of
from msrl.runtime import strict as surroundings
from msrl.runtime import weights
from msrl.runtime.chaos import Killed
from msrl.runtime.checkpoints import Checkpoint, Checkpoints
from msrl.runtime.display import SHORTEST, Display, State
from msrl.runtime.files import seal, write
from msrl.runtime.fingerprint import TOLD
from msrl.runtime.folder import FAILED, FINISHED, INTERRUPTED, RunFolder
from msrl.runtime.interrupts import Stop
from msrl.runtime.preload import Preload
from msrl.runtime.profile import FILE, Profile, on_host, traced

SNAPSHOT_SECONDS = 30.0  # between two snapshots of a run that may lose a worker
BACK_OFF, MOST_BACK_OFF = 0.5, 30.0  # seconds before it goes on


def run(job: Job, path: Path | None, display: Display, stop: Stop | None = None,
        opened: Callable[[RunFolder], None] = lambda folder: None, began: float | None = None,
        start: Start | None = None) -> Result:
    """Trains a job. `stop` is asked between chunks; `opened` hears of the run folder once it exists; `start` is what a
    run that was stopped goes on from."""
    this = Run(job, path, display, stop or Stop(), opened, began or time.perf_counter(), start)
    try:
        with explained(path):
            return this()
    finally:
        if this.folder:
            this.folder.release()


class Run:
    def __init__(self, job: Job, path: Path | None, display: Display, stop: Stop,
                 opened: Callable[[RunFolder], None], began: float, start: Start | None):
        self.job, self.display, self.stop, self.opened, self.began = job, display, stop, opened, began
        self.start, rows = start.checkpoint if start else None, start.rows if start else None
        self.folder = RunFolder(path, about(job, path), command(job, path), rows, start.lease if start else None) \
            if path else None
        self.checkpoints = Checkpoints(path, job.checkpoint_keep, self.folder.settle) if path and self.folder else None
        self.spent = float(rows[-1]["seconds"]) if rows else 0.0  # before this start
        self.notes = start.notes if start else ()
        self.resumable = False
        self.losses = 0  # of workers, and updates to go back from
        self.stream = self.start.about.get("stream", 0) if self.start else 0  # how often it has gone back
        self.elastic = Elastic(job.deployment, lambda deployment: pipeline.check_deployment(
            deployment, job.base, job.config, job.strict))
        self.chaos = job.chaos  # what is still to go wrong
        self.newest: Checkpoint | None = None  # what there is to go on from
        self.before = self.start.env_steps if self.start else 0  # steps of the present seed that an earlier run made
        self.inherited = self.before  # the same of all seeds
        self.preload = Preload(self.folder is not None)
        self.profile = Profile() if job.profile else None
        self.curve: list[Update] = []
        self.earlier = self.reached = 0  # of these, before the present seed, and before what there is to go on from
        self.done: list[dict[str, Any]] = []  # per seed that has ended
        self.params: list[Any] = []
        self.returns: list[np.ndarray] = []
        self.compile_seconds = self.train_seconds = 0.0
        self.env_steps = 0
        self.stopped = self.announced = False
        self.score: float | None = None  # of the newest evaluation or, without any, episodes
        if self.start:
            self.done, self.env_steps = list(self.start.about["done"]), self.start.about["env_steps_done"]
            self.inherited = self.env_steps + self.before * self.start.about["seeds"]
            self.returns = [np.array(each, np.float32) for each in self.start.about["returns"]]
        self._latest: list[dict[str, Any]] = []  # what was learnt, as of the last copy
        self._copied_at, self._copy_seconds = 0.0, 0.0

    def __call__(self) -> Result:
        job = self.job
        if self.notes:
            self.display.say(*self.notes)
        try:
            with self.preload:
                if job.together:
                    self.program(job.seed, job.seeds)
                else:
                    for seed in range(job.seed + len(self.done), job.seed + job.seeds):
                        self.program(seed, 1)
                        if self.stopped:
                            break
        except BaseException as error:
            self.rescue(INTERRUPTED if isinstance(error, (KeyboardInterrupt, Stopped)) else FAILED)
            raise
        finally:
            self.display.end()
            if job.made:
                job.base.close()
            if self.checkpoints:
                self.checkpoints.close()
        result = self.result()
        if self.folder:
            self.trace()
            self.folder.close(result.status, result.summary())
        return result

    def program(self, seed: int, seeds: int) -> None:
        """Trains, keeps and evaluates `seeds` seeds from `seed` on. If a worker is lost, all go on from what was there
        last: a run whose instances wait for one another can only be rewound as a whole."""
        self.newest, self.earlier, self.reached = self.start, len(self.curve), len(self.curve)
        while True:
            try:
                return self.attempt(seed, seeds)
            except (LostError, RoomError, NonFiniteError) as problem:
                if self.stop() and not isinstance(problem, NonFiniteError):
                    raise self.given_up() from problem
                if isinstance(problem, RoomError) and not self.losses:
                    raise  # it never had what it needs
                lost = self.kept(problem) if isinstance(problem, NonFiniteError) else problem
                self.losses += 1
                if self.losses > self.job.restarts or (self.job.non_finite != "rollback" and lost is not problem):
                    raise lost from problem
                self.stream += lost is not problem  # or it would come to the same
                self.rewind(lost)
                if lost is problem:
                    time.sleep(min(BACK_OFF * 2 ** (self.losses - 1), MOST_BACK_OFF))  # what took one may take the next
            except Grown:
                self.rewind(None)
            self.fit()

    def given_up(self) -> Stopped:
        """It was asked to stop, and workers are gone: who stops a whole job may end them first."""
        if self.newest is not None and self.newest is not self.start and not self.job.checkpoint_every:
            self.store(self.newest)  # else it has been
        return Stopped(self.newest is not None and self.checkpoints is not None,
                       self.newest.env_steps if self.newest else 0)

    def fit(self) -> None:
        """Makes the run as large as the cluster, up to what was asked for."""
        before = self.elastic.now
        now = self.elastic.fit()
        if now != before:
            what = "actors" if now.actors != before.actors else "learners"
            self.display.say(f"room         for {getattr(now, what)} {what} ({getattr(self.elastic.asked, what)} were "
                             "asked for).")

    def kept(self, problem: NonFiniteError) -> NonFiniteError:
        """Writes down an update that was not finite, if there is a place for it: the error, which says where."""
        if self.folder and not self.folder.opened:
            self.open()
        return faults.kept(problem, self.folder.path if self.folder else None, self.job, len(self.done), self.stream)

    def rewind(self, lost: MsrlError | None) -> None:
        """To what was there last: a worker was lost, or an update was not finite, or a host came."""
        self.start, steps = self.newest, self.newest.env_steps if self.newest else 0
        made = max((update.env_steps for update in self.curve[self.earlier:]), default=0) // self.job.config.num_envs
        self.chaos = self.chaos.without(lost.fault if isinstance(lost, Killed) else None, made)
        if isinstance(self.job.base, HostEnv):
            self.job.base.close()  # those of workers that were in this process; what goes on opens its own
        self.before, self.inherited = steps, self.inherited + steps - self.before
        word = "grown" if lost is None else "back" if isinstance(lost, NonFiniteError) else "lost"
        times = f" ({self.losses} of {self.job.restarts} times)" if lost else ""
        self.display.say(f"{word:<13}{f'{lost.what} ' if lost else ''}Going on from {steps:,} steps{times}.")
        self.curve = self.curve[:self.reached]
        if self.folder and self.folder.opened:
            self.start, rows = rewound(self.start, self.folder.rows, self.done)
            self.folder.rewind(rows)

    def attempt(self, seed: int, seeds: int) -> None:
        job = self.job
        program = pipeline.compile(job.cls, job.base, seed=seed, seeds=seeds, strict=job.strict, config=job.config,
                                   deployment=self.elastic.now, start=self.start,
                                   checkpoint_every=(job.checkpoint_every or AT_END) if self.folder else 0,
                                   profile=self.profile.room if self.profile else None, chaos=self.chaos,
                                   non_finite=job.non_finite, stream=self.stream, own_process=job.own_process)
        self.elastic.seen(program.workers)
        if self.stop() and not self.done:  # else the seed that is next puts down what those before it have reached
            raise Stopped(self.start is not None, self.start.env_steps if self.start else 0)
        program.prepare(job.eval_episodes)
        self.preload.begin()  # now that the compiler works, and Python does not
        self.whole(program)

    def whole(self, program: Program) -> None:
        """Training, then keeping, then evaluating, so that whoever grows impatient loses no weights."""
        job, seed, seeds = self.job, program.seed, program.seeds
        self.announce(program)
        if self.folder and job.checkpoint_every and not self.folder.opened:
            self.open()  # so that there is something to resume, whenever it is killed
        self.display.begin(planned_steps(program))
        with traced(self.profile, program.tracks):
            self.train(program)
        self.display.end()
        ended = not self.stopped
        kept = snapshot(program)
        self.keep(seed, kept)
        self.env_steps += program.env_steps * seeds
        self.start, self.before, self.announced = None, 0, False  # the seeds after it begin at the beginning
        self.chaos = dataclasses.replace(self.chaos, faults=())  # which have happened, each once
        judged = self.judge(program) if ended else []
        self.display.end()
        for number, one in enumerate(kept):
            self.params.append(one["params"])
            self.done.append({"seed": seed + number, "env_steps": program.env_steps, "steps": program.accounts(),
                              "updates_skipped": int(program.skips.each[number]), **score_of(judged[number:number + 1]),
                              "weights_sha256": pipeline.weights_sha256(one["params"])})
        self.returns += [np.asarray(episodes.returns) for episodes in judged]

    def judge(self, program: Program) -> list[Episodes]:
        """Plays what was learnt; nothing if it is asked to stop meanwhile, as an evaluation can be made up for."""
        episodes = self.job.eval_episodes

        def watch(ended: int) -> bool:
            self.display.evaluate(ended, episodes * program.seeds)
            return not self.stop()

        if self.stop():
            return []
        with on_host(self.profile, "evaluate"), suppress(Abandoned):
            return program.evaluate(episodes, watch)
        return []

    def announce(self, program: Program) -> None:
        if self.announced:
            return
        self.announced = True
        self.display.say(*([f"seed {program.seed}"] if self.done else lines_of(program, self.job)))

    def train(self, program: Program) -> None:
        self.stop.hasten = program.ask_checkpoint if self.checkpoints else None  # or it would wait for a look
        try:
            with closing(program.run()) as running:
                spent = self.look(program, running)
        finally:
            self.stop.hasten = None
        self.compile_seconds += program.compile_seconds
        self.train_seconds += max(0.0, spent - program.run_compile_seconds)

    def look(self, program: Program, running: Iterator[Update]) -> float:
        """Lets the program run, and sees to it between chunks: the seconds that it ran."""
        spent, last = 0.0, 0
        latest: float | None = None
        updates = 0
        due = asked = False
        snapshot, before = time.perf_counter(), self.newest
        waits = growing = False  # for the snapshot that it has asked for: to ask again would put it off
        while True:
            started = time.perf_counter()
            update = next(running, None)
            spent += time.perf_counter() - started
            if update is None:
                self.save(program)
                return spent
            if update.env_steps == last and not update.metrics and not update.episodes:
                continue  # the last look, at what is known already
            last, updates = update.env_steps, updates + 1
            self.curve.append(update)
            latest = update.episode_return if update.episode_return is not None else latest
            self.display.update(State(update.env_steps, planned_steps(program), program.seeds,
                                      spent - program.run_compile_seconds, latest, loss_of(update.metrics),
                                      self.before, update.at[1]))
            due = due or bool(self.job.eval_every and updates % self.job.eval_every == 0)
            judged = []
            if due and self.complete(program):
                judged = self.judge(program)
            due = due and not judged
            with on_host(self.profile, "log"):
                self.record(program, update, judged)
            saved = self.save(program)  # after its row
            if self.complete(program) and self.stop():  # else there is not all to keep yet
                if not saved and not asked and self.checkpoints and program.ask_checkpoint():
                    asked = True
                elif saved or not asked or program.saving.refused:
                    self.stopped = True
                    return spent
            elif self.newest is not before:
                if growing and self.newest and not self.newest.about["last"]:
                    raise Grown
                snapshot, before, waits = time.perf_counter(), self.newest, False
            elif not waits and self.elastic.could_grow():
                growing = waits = program.ask_checkpoint()
            elif self.may_go_back and not waits and time.perf_counter() - snapshot > SNAPSHOT_SECONDS:
                waits = program.ask_checkpoint()

    @property
    def may_go_back(self) -> bool:
        """May it need what it had some time ago?"""
        return bool(self.job.restarts) and (self.job.deployment.backend != "inline"
                                            or self.job.non_finite == "rollback")

    def open(self) -> None:
        assert self.folder is not None
        self.folder.about["flags"] = surroundings.record()  # now that JAX runs
        self.folder.open({DEPLOYMENT: lasting_deployment(self.job).to_toml().encode()})
        self.opened(self.folder)

    def save(self, program: Program) -> bool:
        """Writes the checkpoint that the program has made, if it has."""
        made = program.taken()
        if made is None:
            return False
        point = program.point(made.loop, made.update)
        later = sum(update.at > point for update in self.curve[self.earlier:])
        rows = self.folder.rows[:len(self.folder.rows) - later] if self.folder else []
        self.newest = dataclasses.replace(made, about={**made.about, "rows": len(rows), "rows_sha256": seal(rows)})
        self.reached = len(self.curve) - later
        return bool(self.job.checkpoint_every or made.about["last"] or self.stop()) and self.store(self.newest)

    def store(self, made: Checkpoint) -> bool:
        """Writes a checkpoint of this run, if it has a place for them."""
        if self.checkpoints is None or self.folder is None:
            return False
        if not self.folder.opened:
            self.open()
        with on_host(self.profile, "checkpoint"):
            self.checkpoints.save(made.about["seed"], dataclasses.replace(made, about={
                **made.about, "score": self.score, "done": list(self.done), "env_steps_done": self.env_steps,
                "returns": [each.tolist() for each in self.returns],
                "run": {name: self.folder.about[name] for name in TOLD}}))
        self.resumable = True
        return True

    def record(self, program: Program, update: Update, judged: list[Episodes]) -> None:
        if not self.folder:
            return
        if not self.folder.opened:
            self.open()
        seconds = self.spent + time.perf_counter() - self.began
        row = row_of(program, update, seconds, judged, self.job.non_finite == "skip")
        self.folder.row(row)
        self.score = row.get("eval_return_mean", self.score if self.job.eval_every else update.episode_return)
        # For the case that the next chunk fails. Copies take a hundredth of the time, at most.
        now = time.perf_counter()
        if now - self._copied_at >= 100 * self._copy_seconds and self.complete(program):
            self._latest = snapshot(program)
            self._copied_at, self._copy_seconds = time.perf_counter(), time.perf_counter() - now

    def complete(self, program: Program) -> bool:
        """Are the states of all environments known? The place that learns may be looked at before those that act, and
        evaluations and copies need what the environments' wrappers have learnt."""
        return len(program.shard_states) == self.job.config.shards

    def keep(self, seed: int, kept: list[dict[str, Any]]) -> None:
        self._latest = []
        if self.folder:
            for number, one in enumerate(kept):
                self.folder.keep(seed + number, one)

    def rescue(self, status: str) -> None:
        """Keeps what there is of a run that cannot go on."""
        if self.folder and self.folder.opened and self.checkpoints:
            try:
                self.checkpoints.wait()  # for the one that is being written
                self.keep(self.job.seed + len(self.done), self._latest)
                self.trace()
            finally:
                self.folder.close(status)

    def trace(self) -> None:
        """Writes what there is of a profile."""
        if self.profile and self.profile.runs and self.folder and self.folder.opened:
            write(self.folder.path / FILE, self.profile.file())

    def result(self) -> Result:
        job, one = self.job, self.job.seeds == 1
        if self.folder and self.params:  # those of seeds that an earlier process has done are in the folder
            earlier = [each["seed"] for each in self.done[:len(self.done) - len(self.params)]]
            self.params = [weights.load(self.folder.path / "weights" / str(seed), {"params": self.params[-1]})["params"]
                           for seed in earlier] + self.params
        returns = np.concatenate(self.returns) if self.returns else None
        means = [seed["eval_return_mean"] for seed in self.done if seed["eval_return_mean"] is not None]
        return Result(
            algorithm=job.algorithm, env=job.env, env_id=job.base.spec.id,
            distribution=job.deployment.distribution, backend=job.deployment.backend, seed=job.seed, seeds=job.seeds,
            status=INTERRUPTED if self.stopped or len(self.done) < job.seeds else FINISHED,
            env_steps=self.env_steps, compile_seconds=round(self.compile_seconds, 3),
            train_seconds=round(self.train_seconds, 3), total_seconds=round(time.perf_counter() - self.began, 3),
            steps_per_second=round((self.env_steps - self.inherited) / max(self.train_seconds, SHORTEST), 1),
            eval_return_mean=float(returns.mean()) if returns is not None else None,
            eval_return_std=float(returns.std()) if returns is not None else None,
            eval_return_iqm=interquartile_mean(means) if means else None,
            eval_episodes=job.eval_episodes if means else 0,
            weights_sha256=self.done[0]["weights_sha256"] if one else pipeline.weights_sha256(self.params),
            per_seed=self.done, run_dir=str(self.folder.path) if self.folder else None, resumable=self.resumable,
            restarts=self.losses, updates_skipped=sum(each.get("updates_skipped", 0) for each in self.done),
            profile=self.profile.summary() if self.profile and self.profile.runs else None,
            params=self.params[0] if one else self.params, curve=self.curve)
