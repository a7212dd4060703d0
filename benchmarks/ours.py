"""One of our programs as a contestant: compiled once, and led on from look to look.

A turn begins at a look of the place that learns and ends at another, so that it has whole passes of the loop and
nothing that was done beforehand; it is cut short where the program ends. Between its turns a program on threads is at
rest: its actors go on until they need what is learnt next, and that is waited for.
"""

import time
from collections.abc import Iterator
from typing import Any

import msrl
from msrl import pipeline
from msrl.backends.worker import LOOKS
from msrl.pipeline import Program, Update
from msrl.runtime.profile import Profile


class Ours:
    """`steps` environment steps in a pass of the loop that trains, and `passes` of them between two looks."""

    def __init__(self, name: str, algorithm: Any, env: Any, *, steps: int, passes: int, warmup: int = 0,
                 deployment: msrl.Deployment = msrl.Deployment(), own_process: bool = True,  # noqa: B008 (frozen)
                 **settings: Any):
        """`own_process`: has this process but one kind of program, so that it may have the threads that `msrl train`
        would give it?"""
        if warmup:
            settings["warmup"] = warmup
        self.name, self.steps, self.warmup = name, steps, warmup
        self.recipe = dict(algorithm=algorithm, env=env, deployment=deployment, own_process=own_process,
                           total_steps=warmup + steps * passes * LOOKS, **settings)
        self.looks_per_second = 0.0
        self.worked: list[float] = []  # steps per second of CPU time, turn by turn
        self.program, self.updates, self.looks = self._begin()

    def turn(self, seconds: float) -> float:
        if self.looks > 1 and self.looks + self.looks_per_second * seconds * 1.5 + 3 > LOOKS:  # it would end too soon
            self.close()
            self.program, self.updates, self.looks = self._begin()
        self._look()
        began, worked, first, before = time.perf_counter(), time.process_time(), self.looks, self._passes()
        while self.looks == first or (time.perf_counter() - began < seconds and self.looks < LOOKS):
            self._look()
        taken = time.perf_counter() - began
        self.looks_per_second = (self.looks - first) / taken
        made = (self._passes() - before) * self.steps
        self.worked.append(made / (time.process_time() - worked))
        if len(self.program.workers) > 1:
            settle()
        return made / taken

    @property
    def messages(self) -> float:
        """Sent for a thousand environment steps."""
        sent = sum(worker.outbox.sent for worker in self.program.workers)
        return 1000 * sent / (self.warmup + self._passes() * self.steps)

    def close(self) -> None:
        self.updates.close()
        self.program.env.close()

    def _begin(self) -> tuple[Program, Any, int]:
        program = msrl.compile(**self.recipe)
        updates: Iterator[Update] = program.run()
        while next(updates).env_steps <= self.warmup:
            pass
        return program, updates, 1

    def _look(self) -> None:
        next(self.updates)
        self.looks += 1

    def _passes(self) -> int:
        assert self.program.lead.at is not None
        return self.program.lead.at[1]


def settle(most: float = 5.0) -> None:
    """Waits until the threads of this process are at rest."""
    end = time.perf_counter() + most
    while time.perf_counter() < end:
        before = time.process_time()
        time.sleep(0.02)
        if time.process_time() - before < 0.002:
            return


def profiled(algorithm: Any, env: Any, total_steps: int, **settings: Any) -> dict[str, float]:
    """Where the time of a short run goes, as `msrl train --profile` tells it: the parts of it that each op, the moves
    and the waiting of all instances take. Instances at work at the same time can add up to more than one."""
    program = pipeline.compile(algorithm, env, total_steps=total_steps, profile=200_000, **settings)
    for _ in program.run():
        pass
    program.env.close()
    profile = Profile()
    profile.add(program.tracks())
    told, parts = profile.summary(), {}
    for each in told["instances"][:-1]:  # the last is the host
        for name, seconds in each["ops"].items():
            name = name if name.count(" + ") < 3 else f"a compiled stretch of {name.count(' + ') + 1} ops"
            parts[name] = parts.get(name, 0.0) + seconds / told["seconds"]
        parts["moves"] = parts.get("moves", 0.0) + each["move"]
        rest = 1.0 - each["compute"] - each["move"] - each["idle"]
        parts["Python between ops"] = parts.get("Python between ops", 0.0) + rest
    return dict(sorted(parts.items(), key=lambda item: -item[1]))


def shares(parts: dict[str, float], least: float = 0.02) -> str:
    """For people: the parts that are worth naming."""
    return ", ".join(f"{name} {part:.0%}".replace("%", " %") for name, part in parts.items() if part >= least)
