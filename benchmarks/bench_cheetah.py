"""Workload 2: PPO on EnvPool's HalfCheetah, coarse on threads, 64 environments and SB3's usual sizes for MuJoCo.

python -m benchmarks.bench_cheetah [--rounds 7] [--seconds 3] [--quick]

An update has SB3's 2048 steps, 32 of each environment; 10 epochs in minibatches of 64; 64-64 networks. Against torch
by hand, SB3 and RLlib, with Gymnasium's environments, which is what they have. The bound is what the environments
alone and the learning alone, written by hand, would take one after another; where actors act while the learner learns
(+overlap), the longer of the two. EnvPool's steps take longer where a program does anything between two of them, as one
that acts has to: so there is the bound once more with a millisecond of other work there, which itself does not count.
"""

import msrl
from benchmarks.hand_epochs import Stepping, in_turn, make_epochs
from benchmarks.ours import Ours, profiled, shares
from benchmarks.peer import start
from benchmarks.ratios import Effort, Jitted, alternate, compare
from benchmarks.report import Report, command

NAME, ENV = "PPO HalfCheetah, coarse on threads", "envpool:HalfCheetah-v4"
ENVS, ROLLOUT, EPOCHS, MINIBATCH = 64, 32, 10, 64
STEPS = ENVS * ROLLOUT
SIZES = dict(num_envs=ENVS, rollout=ROLLOUT, epochs=EPOCHS, minibatches=STEPS // MINIBATCH, hidden=(64, 64),
             learning_rate=3e-4, anneal=False, gae_lambda=0.95, entropy_coef=0.0)
THEIRS = dict(env="HalfCheetah-v5", envs=ENVS, rollout=ROLLOUT, epochs=EPOCHS, minibatch=MINIBATCH, hidden=[64, 64])


def coarse(passes: str = "") -> msrl.Deployment:
    return msrl.Deployment("single-learner-coarse", "threads", passes=passes)


def measure(effort: Effort, report: Report) -> None:
    ours = Ours("ours", "ppo", ENV, steps=STEPS, passes=2, deployment=coarse(), **SIZES)
    ahead = Ours("ours with overlap", "ppo", ENV, steps=STEPS, passes=2, deployment=coarse("+overlap"), **SIZES)
    stepping, paused = Stepping("EnvPool alone", ENVS), Stepping("EnvPool, between other work", ENVS, pause=1e-3)
    state, update = make_epochs(STEPS, EPOCHS, STEPS // MINIBATCH, (64, 64))
    learning = Jitted("learning alone", update, state, STEPS)
    sb3 = start(report, "SB3", "benchmarks.peers.sb3:ppo", **THEIRS)
    rllib = start(report, "RLlib", "benchmarks.peers.rllib:ppo", **THEIRS)
    torch = start(report, "by hand", "benchmarks.peers.by_hand:ppo", **THEIRS)
    contestants = [each for each in (ours, ahead, stepping, paused, learning, torch, sb3, rllib) if each is not None]
    speeds = alternate(contestants, effort)
    for other, target in ((torch, None), (sb3, 3.0), (rllib, 4.0)):
        if other is not None:
            report.add(compare(NAME, other.name, speeds["ours"], speeds[other.name], target))
    bound, busy = (in_turn(speeds[each.name], speeds[learning.name]) for each in (stepping, paused))
    longer = list(map(min, speeds[stepping.name], speeds[learning.name]))
    report.add(compare(NAME, "the bound: EnvPool alone, then learning alone", speeds["ours"], bound, 0.9),
               compare(NAME, "the bound, with other work between EnvPool's steps", speeds["ours"], busy),
               compare(f"{NAME}, +overlap", "the bound: the slower of both", speeds["ours with overlap"], longer),
               compare(f"{NAME}, +overlap", "ours without", speeds["ours with overlap"], speeds["ours"]))
    for each in contestants:
        each.close()
    parts = profiled("ppo", ENV, 40 * STEPS, deployment=coarse(), **SIZES)
    report.limit(f"{NAME}: {shares(parts)} of the time.")


if __name__ == "__main__":
    command("cheetah", measure, __doc__, Effort(rounds=7, seconds=3.0))
