"""Workload 11: which distribution is fastest, as moves take longer and the work between them changes.

python -m benchmarks.bench_crossover [--rounds 3] [--seconds 1.5] [--quick]

PPO on CartPole on threads, spread out in three ways over two instances, with every message delayed by 0 to 20 ms
(`chaos="delay:moves=5ms"`: the channel holds it back, and nobody computes for it). The numbers of environments and
epochs and the size of the networks vary one at a time. The plot has a panel for each; the table names who wins where.
Beside them stands device-only, which has no messages: it takes an environment that compiles. Who wins among the others
is what counts where the environment is on the host.
"""

import inspect
from typing import Any

import msrl
from benchmarks.ours import Ours
from benchmarks.plots import panels_plot
from benchmarks.ratios import Effort, alternate, figure, spread
from benchmarks.report import RESULTS, Report, command
from msrl.runtime import cache

DELAYS = (0, 1, 5, 20)  # milliseconds
BASE = dict(num_envs=64, rollout=32, epochs=4, minibatches=4, hidden=(64, 64))
CASES: dict[str, dict] = {
    "64 environments, 64-64, 4 epochs": {},
    "8 environments": dict(num_envs=8),
    "512 environments": dict(num_envs=512),
    "networks of 512-512": dict(hidden=(512, 512)),
    "1 epoch": dict(epochs=1),
    "16 epochs": dict(epochs=16),
}
SPREADS = {
    "coarse": (dict(distribution="single-learner-coarse", actors=2), dict(shards=2)),
    "fine": (dict(distribution="single-learner-fine", actors=2), dict(shards=2)),
    "multi-learner": (dict(distribution="multi-learner", learners=2), dict(shards=2, learner_shards=2)),
}
ALONE = "device-only"


def measure(effort: Effort, report: Report) -> None:
    if "chaos" not in inspect.signature(msrl.compile).parameters:
        report.leave_out("the crossover of distributions, as moves cannot be delayed here")
        return
    cache.enable()  # a program with other delays is the same program
    cases = dict(list(CASES.items())[:1]) if effort.rounds < 3 else CASES
    found: dict[str, dict[str, list[float]]] = {}
    for case, changed in cases.items():
        settings = {**BASE, **changed}
        found[case] = {name: [] for name in (*SPREADS, ALONE)}

        def program(name: str, deployment: msrl.Deployment, settings: dict = settings, **more: Any) -> Ours:
            quick = name in ("coarse", ALONE) and (settings["num_envs"] < 64 or settings["epochs"] < 4)
            return Ours(name, "ppo", "CartPole-v1", steps=settings["num_envs"] * settings["rollout"],
                        passes=4 if quick else 1, deployment=deployment, **settings, **more)

        for delay in DELAYS:
            programs = [program(name, msrl.Deployment(backend="threads", **how), chaos=chaos(delay), **shards)
                        for name, (how, shards) in SPREADS.items()]
            if not delay:
                programs.append(program(ALONE, msrl.Deployment(ALONE)))
            speeds = alternate(programs, effort)
            for each in programs:
                found[case][each.name].append(spread(speeds[each.name])[1])
                each.close()
        found[case][ALONE] *= len(DELAYS)  # nobody sends anything
        apart = {name: found[case][name] for name in SPREADS}
        report.limit(f"{case}: " + "; ".join(winner(apart, at) for at in range(len(DELAYS))) +
                     f"; {ALONE}, without messages, {figure(found[case][ALONE][0])} steps/s.")
    report.figures.update(delays=DELAYS, speeds=found)
    RESULTS.mkdir(exist_ok=True)
    panels_plot(DELAYS, found, RESULTS / "crossover.png", "ms that a message is delayed", "environment steps/s")


def chaos(delay: int) -> str:
    return f"delay:moves={delay}ms" if delay else ""


def winner(speeds: dict[str, list[float]], at: int) -> str:
    """Who is fastest at one delay, and by how much."""
    first, second = sorted(speeds, key=lambda name: -speeds[name][at])[:2]
    ahead = speeds[first][at] / speeds[second][at]
    return f"at {DELAYS[at]} ms {first} ({figure(speeds[first][at])} steps/s, {ahead:.1f} × {second})"


if __name__ == "__main__":
    command("crossover", measure, __doc__, Effort(rounds=3, seconds=1.5))
