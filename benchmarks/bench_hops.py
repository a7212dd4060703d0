"""Workload 7, on threads: what a step's two messages cost where environments and actors are in different threads.

python -m benchmarks.bench_hops [--rounds 15] [--seconds 1] [--quick]

PPO's rollouts with EnvPool's CartPole, 64 environments: once in one place, once finely cut. Both do the same work step
by step, with the same compiled calls (in one place the loop could be compiled, and is kept from it: -call-back); what
the second takes longer for a step is two hops, there and back. A bare hop is half of what two threads of Python take to
hand a number there and back through queues. For Ray, see bench_ray_hop.
"""

import time
from queue import SimpleQueue
from threading import Thread

import msrl
from benchmarks.ours import Ours, profiled, shares
from benchmarks.ratios import Effort, Row, alternate, compare, spread
from benchmarks.report import Report, command
from benchmarks.rollouts import Rollouts

ENV, ENVS, ROLLOUT, MOST = "envpool:CartPole-v1", 64, 128, 100e-6
SIZES = dict(num_envs=ENVS, rollout=ROLLOUT)
FINE = msrl.Deployment("single-learner-fine", "threads")


class Bare:
    """A contestant: hops per second of two threads that do nothing else."""

    name = "a bare hop"

    def __init__(self) -> None:
        self.there: SimpleQueue[int | None] = SimpleQueue()
        self.back: SimpleQueue[int] = SimpleQueue()
        self.thread = Thread(target=self._echo, daemon=True)
        self.thread.start()

    def turn(self, seconds: float) -> float:
        began, hops = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            self.there.put(hops)
            hops = self.back.get() + 2
        return hops / (time.perf_counter() - began)

    def close(self) -> None:
        self.there.put(None)
        self.thread.join()

    def _echo(self) -> None:
        while (given := self.there.get()) is not None:
            self.back.put(given)


def measure(effort: Effort, report: Report) -> None:
    together = Ours("in one place", Rollouts, ENV, steps=ENVS * ROLLOUT, passes=1,
                    deployment=msrl.Deployment(passes="-call-back"), **SIZES)
    apart = Ours("fine on threads", Rollouts, ENV, steps=ENVS * ROLLOUT, passes=1, deployment=FINE, **SIZES)
    bare = Bare()
    speeds = alternate([together, apart, bare], effort)
    hops = [(ENVS / b - ENVS / a) / 2 for a, b in zip(speeds[together.name], speeds[apart.name], strict=True)]
    low, middle, high = (each / MOST for each in spread(hops))
    report.add(Row("a hop between threads", "100 µs", f"{middle * 100:.0f} µs", "100 µs", middle, low, high, 1.0,
                   at_least=False),
               compare("a hop between threads", "two threads of Python that do nothing else",
                       [hop * 1e6 for hop in hops], [1e6 / speed for speed in speeds[bare.name]], unit="µs",
                       at_least=False))
    for each in (together, apart, bare):
        each.close()
    step = {name: ENVS / spread(column)[1] * 1e6 for name, column in speeds.items() if name != bare.name}
    parts = profiled(Rollouts, ENV, 20 * ENVS * ROLLOUT, deployment=FINE, **SIZES)
    report.limit(f"a hop between threads: a step of 64 environments takes {step[together.name]:.0f} µs in one place "
                 f"and {step[apart.name]:.0f} µs finely cut; there, {shares(parts)} of the time.")


if __name__ == "__main__":
    command("hops", measure, __doc__, Effort(rounds=15, seconds=1.0))
