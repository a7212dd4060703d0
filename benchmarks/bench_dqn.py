"""Workload 4: DQN on CartPole, one environment, one learning per step, batches of 64, one hidden layer of 100.

python -m benchmarks.bench_dqn [--rounds 9] [--seconds 2] [--quick]

Once as one compiled program and once with Gymnasium's environment in Python, both against Stable-Baselines3 at the same
settings: plain Q-learning, a target that is copied every 10 000 steps, a random action in 20. And against JAX by hand
(hand_dqn.py), which says what is to be had with Gymnasium's environment. What a learn takes is timed as programs of
their own, called one by one as such a loop does it, and within a compiled loop.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import msrl
from benchmarks.ours import Ours, profiled, shares
from benchmarks.parts import medians
from benchmarks.peer import by_hand, start
from benchmarks.ratios import Effort, alternate, compare
from benchmarks.report import Report, command
from msrl.api import Record

BATCH, CAPACITY, WARMUP = 64, 100_000, 500
SETTINGS = dict(num_envs=1, batch_size=BATCH, hidden=(100,), capacity=CAPACITY, double=False, target_every=10_000,
                tau=1.0, anneal=False, epsilon_start=0.05, epsilon_end=0.05)


def learning() -> dict[str, float]:
    """Microseconds of a learn: from a batch at hand, with the replay's insert and sample in the same program, and the
    latter as a pass of a compiled loop."""
    world = msrl.compile("dqn", "CartPole-v1", total_steps=WARMUP + 1, warmup=WARMUP, **SETTINGS).world
    learner, replay, key, passes = world.agent.learner, world.buffers["replay"], jax.random.key(0), 500
    item = Record(obs=np.zeros((1, 4), np.float32), action=np.zeros(1, np.int32), reward=np.ones(1, np.float32),
                  terminated=np.zeros(1, bool), next_obs=np.zeros((1, 4), np.float32))
    batch = jax.tree.map(lambda x: np.repeat(x, BATCH, 0), item)

    def alone(store, state, count):
        return store, learner.learn(state, key, batch)[0], count + 1

    def stored(store, state, count):
        store, drawn = replay.sample(replay.insert(store, item), jax.random.fold_in(key, count))
        return store, learner.learn(state, key, drawn)[0], count + 1

    def looped(*carried):
        return jax.lax.fori_loop(0, passes, lambda at, carried: stored(*carried), carried)

    def called(program):
        run = jax.jit(program, donate_argnums=(0, 1, 2))
        carried = jax.tree.map(jnp.copy, (replay.init(item), learner.init(key), jnp.int32(0)))

        def some(calls):
            nonlocal carried
            for _ in range(calls):
                carried = jax.block_until_ready(run(*carried))

        return some

    each = {"from a batch at hand": partial(called(alone), passes), "with a replay": partial(called(stored), passes),
            "with a replay, in a compiled loop": partial(called(looped), 1)}
    return {name: seconds * 1e6 / passes for name, seconds in medians(each, 7).items()}


def measure(effort: Effort, report: Report) -> None:
    compiled = Ours("compiled", "dqn", "CartPole-v1", steps=1, passes=2000, warmup=WARMUP, **SETTINGS)
    stepped = Ours("gymnasium", "dqn", "gymnasium:CartPole-v1", steps=1, passes=200, warmup=WARMUP, **SETTINGS)
    sb3 = start(report, "SB3", "benchmarks.peers.sb3:dqn", env="CartPole-v1", batch=BATCH, hidden=[100],
                capacity=CAPACITY, warmup=WARMUP, quantum=2 * WARMUP)
    hand = by_hand("benchmarks.hand_dqn:HandDQN", batch=BATCH, hidden=SETTINGS["hidden"][0], capacity=CAPACITY,
                   warmup=WARMUP)
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
    took = ", ".join(f"{each:.0f} µs {name}" for name, each in learning().items())
    report.limit(f"DQN CartPole of Gymnasium: {shares(parts)} of the time. A learn called by itself takes {took}.")


if __name__ == "__main__":
    command("dqn", measure, __doc__)
