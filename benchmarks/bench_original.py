"""Workload 3: PPO on HalfCheetah at the sizes of the original MSRL: 32 environments × 200 steps, 25 full-batch epochs.

python -m benchmarks.bench_original [--rounds 7] [--seconds 3] [--quick]

Networks are 200-100. The original was seen at 3.3 k steps/s on a machine of this kind, which is no ratio of one run.
What is measured here is how much slower the whole is than EnvPool alone and the 25 epochs alone, written by hand, one
after the other.
"""

import msrl
from benchmarks.hand_epochs import Stepping, make_epochs
from benchmarks.ours import Ours, profiled, shares
from benchmarks.ratios import Effort, Jitted, alternate, compare, figure, spread
from benchmarks.report import Report, command

NAME, ENV = "PPO HalfCheetah, the original's sizes", "envpool:HalfCheetah-v4"
ENVS, ROLLOUT, EPOCHS, HIDDEN = 32, 200, 25, (200, 100)
STEPS = ENVS * ROLLOUT
SIZES = dict(num_envs=ENVS, rollout=ROLLOUT, epochs=EPOCHS, minibatches=1, hidden=HIDDEN, learning_rate=3e-4,
             anneal=False, gae_lambda=0.95, entropy_coef=0.0)
ORIGINAL = 3300.0  # steps/s of the original, seen once


def measure(effort: Effort, report: Report) -> None:
    coarse = msrl.Deployment("single-learner-coarse", "threads")
    ours = Ours("ours", "ppo", ENV, steps=STEPS, passes=1, deployment=coarse, **SIZES)
    stepping = Stepping("EnvPool alone", ENVS)
    state, update = make_epochs(STEPS, EPOCHS, 1, HIDDEN)
    learning = Jitted("25 epochs alone", update, state, STEPS)
    speeds = alternate([ours, stepping, learning], effort)
    in_turn = [1 / (1 / a + 1 / b) for a, b in zip(speeds[stepping.name], speeds[learning.name], strict=True)]
    report.add(compare(NAME, "EnvPool alone, then 25 epochs alone", speeds["ours"], in_turn, 1 / 1.1))
    for each in (ours, stepping, learning):
        each.close()
    parts = profiled("ppo", ENV, 10 * STEPS, deployment=coarse, **SIZES)
    report.limit(f"{NAME}: {figure(spread(speeds['ours'])[1])} steps/s, where the original had {figure(ORIGINAL)}; "
                 f"{shares(parts)} of the time.")


if __name__ == "__main__":
    command("original", measure, __doc__, Effort(rounds=7, seconds=3.0))
