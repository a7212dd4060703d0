"""Workload 3: PPO on HalfCheetah at the sizes of the original MSRL: 32 environments × 200 steps, 25 full-batch epochs.

python -m benchmarks.bench_original [--rounds 7] [--seconds 3] [--quick]

Networks are 200-100. The original was seen at 3.3 k steps/s on a machine of this kind, which is no ratio of one run.
What is measured here is how much slower the whole is than EnvPool alone and the 25 epochs alone, written by hand, one
after the other; and how much faster where the next steps are made while these are learnt from (+overlap). As in
bench_cheetah, there is the sum once more with a millisecond of other work between EnvPool's steps.
"""

import msrl
from benchmarks.hand_epochs import Stepping, in_turn, make_epochs
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
    ours, ahead = (Ours(name, "ppo", ENV, steps=STEPS, passes=1, deployment=coarse.replace(passes=passes), **SIZES)
                   for name, passes in (("ours", ""), ("ours with overlap", "+overlap")))
    stepping, paused = Stepping("EnvPool alone", ENVS), Stepping("EnvPool, between other work", ENVS, pause=1e-3)
    state, update = make_epochs(STEPS, EPOCHS, 1, HIDDEN)
    learning = Jitted("25 epochs alone", update, state, STEPS)
    contestants = [ours, ahead, stepping, paused, learning]
    speeds = alternate(contestants, effort)
    bound, busy = (in_turn(speeds[each.name], speeds[learning.name]) for each in (stepping, paused))
    report.add(compare(NAME, "EnvPool alone, then 25 epochs alone", speeds["ours"], bound, 1 / 1.1),
               compare(NAME, "the same, with other work between EnvPool's steps", speeds["ours"], busy),
               compare(f"{NAME}, +overlap", "EnvPool alone, then 25 epochs alone", speeds[ahead.name], bound, 1.0))
    for each in contestants:
        each.close()
    parts = profiled("ppo", ENV, 10 * STEPS, deployment=coarse, **SIZES)
    report.limit(f"{NAME}: {figure(spread(speeds['ours'])[1])} steps/s, where the original had {figure(ORIGINAL)}; "
                 f"{shares(parts)} of the time.")


if __name__ == "__main__":
    command("original", measure, __doc__, Effort(rounds=7, seconds=3.0))
