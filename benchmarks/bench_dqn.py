"""Workload 4: DQN on CartPole, one environment, one learning per step, batches of 64, one hidden layer of 100.

python -m benchmarks.bench_dqn [--rounds 9] [--seconds 2] [--quick]

Once as one compiled program and once with Gymnasium's environment in Python, both against Stable-Baselines3 at the same
settings: plain Q-learning, a target that is copied every 10 000 steps, a random action in 20. And against JAX by hand
(hand_dqn.py), which says what is to be had with Gymnasium's environment.
"""

from benchmarks.hand_dqn import HandDQN
from benchmarks.ours import Ours, profiled, shares
from benchmarks.peer import start
from benchmarks.ratios import Effort, alternate, compare
from benchmarks.report import Report, command

BATCH, CAPACITY, WARMUP = 64, 100_000, 500
SETTINGS = dict(num_envs=1, batch_size=BATCH, hidden=(100,), capacity=CAPACITY, double=False, target_every=10_000,
                tau=1.0, anneal=False, epsilon_start=0.05, epsilon_end=0.05)


def measure(effort: Effort, report: Report) -> None:
    compiled = Ours("compiled", "dqn", "CartPole-v1", steps=1, passes=2000, warmup=WARMUP, **SETTINGS)
    stepped = Ours("gymnasium", "dqn", "gymnasium:CartPole-v1", steps=1, passes=200, warmup=WARMUP, **SETTINGS)
    sb3 = start(report, "SB3", "benchmarks.peers.sb3:dqn", env="CartPole-v1", batch=BATCH, hidden=[100],
                capacity=CAPACITY, warmup=WARMUP, quantum=2 * WARMUP)
    hand = HandDQN("JAX by hand", BATCH, *SETTINGS["hidden"], CAPACITY, WARMUP)
    contestants = [each for each in (compiled, stepped, hand, sb3) if each is not None]
    speeds = alternate(contestants, effort)
    if sb3 is not None:
        report.add(compare("DQN CartPole, compiled", sb3.name, speeds["compiled"], speeds[sb3.name], 15.0),
                   compare("DQN CartPole of Gymnasium", sb3.name, speeds["gymnasium"], speeds[sb3.name], 4.0),
                   compare("DQN CartPole of Gymnasium, by hand", sb3.name, speeds[hand.name], speeds[sb3.name]))
    report.add(compare("DQN CartPole of Gymnasium", hand.name, speeds["gymnasium"], speeds[hand.name]),
               compare("DQN CartPole, compiled", "ours with Gymnasium", speeds["compiled"], speeds["gymnasium"]))
    for each in contestants:
        each.close()
    parts = profiled("dqn", "gymnasium:CartPole-v1", WARMUP + 3000, warmup=WARMUP, **SETTINGS)
    report.limit(f"DQN CartPole of Gymnasium: {shares(parts)} of the time.")


if __name__ == "__main__":
    command("dqn", measure, __doc__)
