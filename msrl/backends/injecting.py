"""Faults on purpose, given to those whom they befall.

In: a run's `Chaos` and its workers. Out: which worker dies of what, and what its environments will go through; an
error, before anything runs, if this deployment cannot do that. It always holds that a worker dies at the head of the
pass that was named, whichever way it makes its passes, and nowhere else.
"""

import difflib
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from msrl.api import Env
from msrl.backends.schedule import Schedule
from msrl.backends.snapshots import loop_name, loop_of, loops_of
from msrl.backends.switchboard import Switchboard
from msrl.backends.worker import Worker
from msrl.errors import UsageError
from msrl.ir.graph import For
from msrl.runtime.chaos import DOCS, Chaos, Fault, Killed

Trouble = tuple[tuple[str, int], ...]  # as in Env.trouble


class Doomed:
    """The schedule of a worker that is to die. `die` is told of what."""

    def __init__(self, schedule: Schedule, loop: str, kills: Sequence[Fault], die: Callable[[Fault], None]):
        self.schedule, self.loop, self.kills, self.die = schedule, loop, tuple(kills), die

    def __getattr__(self, name: str) -> Any:
        return getattr(self.schedule, name)

    def passes(self, loop: str, done: int, count: int) -> int:
        for fault in self.kills if loop == self.loop else ():
            if fault.at == done + 1:
                self.die(fault)
            elif fault.at > done:  # so that no chunk goes past it
                count = min(count, fault.at - 1 - done)
        return self.schedule.passes(loop, done, count)


def doom(worker: Worker, kills: Sequence[Fault], die: Callable[[Fault], None]) -> None:
    if kills:
        worker.schedule = Doomed(worker.schedule, loops_of(worker.program)[-1], kills, die)  # type: ignore[assignment]


def inject(chaos: Chaos, backend: str, workers: list[Worker], env: Env) -> None:
    """In one process."""
    env.trouble(trouble(chaos, workers[0]))
    for number, kills in victims(chaos, backend, workers).items():
        worker = workers[number]
        title = f"instance {worker.instance} of fragment {worker.program.fragment.name}"

        def die(fault: Fault, title: str = title) -> NoReturn:
            raise Killed(fault, title)

        doom(worker, kills, die)


def trouble(chaos: Chaos, worker: Worker) -> Trouble:
    """What an environment will go through, in steps from where this run starts."""
    made = worker.given.counted if worker.given else 0
    return tuple((fault.kind, fault.at - made) for fault in chaos.of("hang", "raise") if fault.at > made)


def victims(chaos: Chaos, backend: str, workers: list[Worker]) -> dict[int, tuple[Fault, ...]]:
    """By number of the worker, of what it is to die. The first instance of a fragment stands for it."""
    found: dict[int, tuple[Fault, ...]] = {}
    for fault in chaos.of("kill"):
        if backend == "inline":
            raise UsageError(f"--chaos {fault} is not possible on inline.",
                             why="One thread runs everything there: with it, the whole run would be gone.",
                             instead="Add --backend threads, or --backend ray.", docs=DOCS)
        number = victim(fault, workers)
        check(fault, workers[number])
        found[number] = (*found.get(number, ()), fault)
    return found


def victim(fault: Fault, workers: list[Worker]) -> int:
    """A fragment by its name, or else by a component that lives in it."""
    fragments = [worker.program.fragment for worker in workers]
    for match in ([each.name == fault.what for each in fragments],
                  [fault.what in each.components for each in fragments]):
        if any(match):
            return match.index(True)
    names = list(dict.fromkeys(each.name for each in fragments))
    known = [*names, *(name for each in fragments for name in each.components)]
    near = difflib.get_close_matches(fault.what, known, 1, 0.5) or names
    raise UsageError(f"--chaos {fault}: there is no fragment {fault.what!r}.",
                     why=f"The fragments of this run: {', '.join(names)}.",
                     instead=f"For instance: kill:{near[0]}@{fault.at}", docs=DOCS)


def check(fault: Fault, worker: Worker) -> None:
    loops = loops_of(worker.program)
    if not loops or isinstance(worker, Switchboard):
        raise UsageError(f"--chaos {fault} would never happen.",
                         why="This fragment makes no passes of its own: it answers learners whenever they ask.",
                         instead=f"For instance: kill:learner@{fault.at}", docs=DOCS)
    last = next(loop for node in worker.program.nodes if (loop := loop_of(node)) and loop_name(loop) == loops[-1])
    trips = last.trips if isinstance(last, For) and not worker.endless else None  # else it is not known, or no bound
    if trips is not None and fault.at > trips:
        raise UsageError(f"--chaos {fault} would never happen.", why=f"The loop that trains makes {trips} passes.",
                         instead=f"For instance: kill:{fault.what}@{max(1, trips // 2)}", docs=DOCS)
