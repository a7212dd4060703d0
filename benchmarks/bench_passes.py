"""What each pass of the optimiser buys: the same program with it and without it, alternating in one run.

python -m benchmarks.bench_passes [--rounds 15] [--seconds 1] [--quick]

Ratios are of environment steps per second, on over off: by the clock, and by the CPU time of this process, which others
on the machine disturb less, and which overlap does not save. Both programs live through the whole run, so that nothing
is compiled twice. fuse-instances is also held against one shard in a program of its own, that is, against shards as so
many programs; and it is workload 8: what 8 shards cost as one batch, of what they cost one after another.
"""

from dataclasses import dataclass, field
from typing import Any

import msrl
from benchmarks.ours import Ours
from benchmarks.parts import inference
from benchmarks.ratios import Effort, alternate, compare
from benchmarks.report import Report, command
from benchmarks.rollouts import Rollouts


@dataclass(frozen=True)
class Case:
    switch: str  # the pass
    title: str
    algorithm: Any
    env: str
    steps: int  # of the environments, in one pass of the loop that trains
    passes: int  # between two looks of the host
    deployment: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    alone: dict[str, Any] = field(default_factory=dict)  # of what is compared beside on and off


COARSE = dict(distribution="single-learner-coarse", backend="threads")
CASES = (
    Case("overlap", "PPO, CartPole, single-learner-coarse, threads, 1 actor of 64 environments", "ppo", "CartPole-v1",
         64 * 128, 2, COARSE, dict(num_envs=64, rollout=128, epochs=4, minibatches=4)),
    Case("decide-branches", "DQN, CartPole, local, 1 environment", "dqn", "CartPole-v1", 1, 2000, {},
         dict(num_envs=1, warmup=256)),
    Case("coalesce-moves", "DQN, CartPole, single-learner-coarse, threads, 2 actors", "dqn", "CartPole-v1", 16, 400,
         dict(COARSE, actors=2), dict(num_envs=16, shards=2, warmup=256)),
    Case("fuse-instances", "PPO's rollouts, CartPole, local, 8 shards of 8 environments", Rollouts, "CartPole-v1",
         64 * 128, 20, {}, dict(num_envs=64, shards=8, rollout=128), dict(num_envs=8, shards=1)),
    Case("call-back", "PPO, CartPole of gymnasium, local, 8 environments", "ppo", "gymnasium:CartPole-v1", 8 * 64,
         5, {}, dict(num_envs=8, rollout=64)),
    Case("call-back", "DQN, CartPole of gymnasium, local, 1 environment", "dqn", "gymnasium:CartPole-v1", 1, 200, {},
         dict(num_envs=1, warmup=256)),
    Case("fuse-stretches", "PPO, CartPole, local, 8 environments", "ppo", "CartPole-v1", 8 * 64, 5, {},
         dict(num_envs=8, rollout=64)),
    Case("fuse-stretches", "PPO, CartPole of gymnasium, local, 8 environments", "ppo", "gymnasium:CartPole-v1", 8 * 64,
         5, {}, dict(num_envs=8, rollout=64)),
)


def measure_case(case: Case, effort: Effort, report: Report) -> None:
    print(f"  {case.switch}: {case.title}", flush=True)

    def program(name: str, passes: str, settings: dict[str, Any], steps: int = case.steps) -> Ours:
        return Ours(name, case.algorithm, case.env, steps=steps, passes=case.passes, **settings,
                    deployment=msrl.Deployment(**case.deployment, passes=passes), own_process=False)

    on, off = (program(sign, f"{sign}{case.switch}", case.settings) for sign in "+-")
    settings = {**case.settings, **case.alone}
    alone = [program("alone", "", settings, settings["num_envs"] * settings["rollout"])] if case.alone else []
    speeds = alternate([on, off, *alone], effort)
    name = f"{case.switch}: {case.title}"
    report.add(compare(name, "without it", speeds["+"], speeds["-"]),
               compare(name, "without it, by CPU time", on.worked[1:], off.worked[1:]))  # the first is the warm-up
    if alone:
        batch, beside, apart = ([1e6 / speed for speed in speeds[name]] for name in ("+", "-", "alone"))
        for others, told in ((apart, "so many programs of one shard, one after another"),
                             (beside, "one after another in one program")):
            report.add(compare(f"{case.title}, as one batch", told, batch, others, 0.35, unit="µs/step",
                               at_least=False))
        whole, each = inference(case.settings["num_envs"], case.settings["shards"])
        report.limit(f"{case.title}: of that, a policy by hand takes {whole:.2f} µs/step as one batch and {each:.2f} "
                     f"one after another, {whole / each:.2f} of it; XLA runs several shards at a time, as they stand "
                     "beside each other.")
    if len(on.program.workers) > 1:
        report.limit(f"{name}: {on.messages:.1f} messages for a thousand steps, and {off.messages:.1f} without it.")
    for each in (on, off, *alone):
        each.close()


def measure(effort: Effort, report: Report) -> None:
    for case in CASES:
        measure_case(case, effort, report)


if __name__ == "__main__":
    command("passes", measure, __doc__, Effort(rounds=15, seconds=1.0))
