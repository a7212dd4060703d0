"""Workload 1: PPO on CartPole as one compiled program, with 64 environments × 128 steps, 4 epochs × 4 minibatches.

python -m benchmarks.bench_ppo [--rounds 9] [--seconds 2] [--quick]

Networks are 64-64. Against the same mathematics written by hand (hand_ppo.py), with our products of rows and weights
(msrl/rl/products.py) and with flax's own, a fused script in PureJaxRL's manner (pure_ppo.py), torch by hand
(peers/by_hand.py), Stable-Baselines3 and RLlib: in one process, which is faster here, and with two processes that step
the environments, as it is set by default. What limits it is found by timing its parts as programs of their own.
"""

import jax

from benchmarks import hand_ppo, pure_ppo
from benchmarks.ours import Ours, shares
from benchmarks.parts import ppo_parts
from benchmarks.peer import start
from benchmarks.ratios import Effort, Jitted, alternate, compare
from benchmarks.report import Report, command

NAME = "PPO CartPole, one program"
S = hand_ppo.Settings(updates=10_000)
SIZES = dict(env="CartPole-v1", envs=S.envs, rollout=S.rollout, epochs=S.epochs, hidden=[64, 64],
             minibatch=S.envs * S.rollout // S.minibatches)


def by_hand(name: str, make, *given) -> Jitted:
    init, update = make(S, *given)
    return Jitted(name, update, init(jax.random.key(0)), S.envs * S.rollout)


def measure(effort: Effort, report: Report) -> None:
    ours = Ours("ours", "ppo", "CartPole-v1", steps=S.envs * S.rollout, passes=4, num_envs=S.envs, rollout=S.rollout,
                epochs=S.epochs, minibatches=S.minibatches, learning_rate=S.learning_rate)
    compiling = ours.program.compile_seconds
    usual = by_hand("by hand, with flax's layers", hand_ppo.make, jax.lax.dot_general)
    same, pure = by_hand("by hand", hand_ppo.make), by_hand("PureJaxRL's manner", pure_ppo.make)
    sb3 = start(report, "SB3", "benchmarks.peers.sb3:ppo", **SIZES)
    rllib = start(report, "RLlib", "benchmarks.peers.rllib:ppo", **SIZES)
    apart = start(report, "RLlib with two env runners,", "benchmarks.peers.rllib:ppo", runners=2, **SIZES)
    torch = start(report, "by hand", "benchmarks.peers.by_hand:ppo", **SIZES)
    contestants = [each for each in (ours, same, usual, pure, torch, sb3, rllib, apart) if each is not None]
    speeds = alternate(contestants, effort)
    for other, target in ((same, 0.97), (usual, 0.97), (pure, 1.3), (torch, None), (sb3, 8.0), (rllib, 30.0),
                          (apart, 30.0)):
        if other is not None:
            report.add(compare(NAME, other.name, speeds["ours"], speeds[other.name], target))
    for each in contestants:
        each.close()
    report.limit(f"{NAME}: {shares(ppo_parts(S))} of an update, each as a program of its own; "
                 f"getting ready and compiling took {compiling:.1f} s.")


if __name__ == "__main__":
    command("ppo", measure, __doc__)
