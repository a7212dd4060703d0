"""Time per step of a compiled loop that inserts and samples, against capacity and number of environments.

    python benchmarks/bench_replay.py [--quick]

Every step inserts B CartPole transitions and samples 128; the prioritised one also updates the priorities of what it
sampled. The rings are full before the clock starts, so that no page is touched for the first time. What to look for:
the times grow with the capacity as random reads leave the caches, which the rows that only sample show by themselves.
Inserting must add next to nothing to these; a copy of a million transitions would add milliseconds.
"""

import argparse
import time

import jax
import jax.numpy as jnp

from msrl.api import Buffer, Record
from msrl.buffers import NStep, PrioritisedReplay, Replay

BATCH = 128


def transitions(count: int, fill) -> Record:
    obs, flag = jnp.full((count, 4), fill), jnp.zeros(count, bool)
    return Record(obs=obs, action=jnp.ones(count, jnp.int32), reward=jnp.full(count, fill), terminated=flag,
                  truncated=flag, final_obs=obs)


def time_per_step(buffer: Buffer, num_envs: int, inserts_to_fill: int, steps: int, repeats: int,
                  write: bool = True) -> float:
    """Seconds per step, the best of `repeats` runs of a compiled loop."""

    def step(i, carry):
        state, total = carry
        key = jax.random.fold_in(jax.random.key(0), i)
        if write:
            state = buffer.insert(state, transitions(num_envs, total * 1e-9))
        state, batch = buffer.sample(state, key)
        if "weight" in batch.asdict():
            state, _ = buffer.update(state, key, batch.index, jnp.abs(jnp.sin(batch.index + total)))
        return state, total + sum(leaf.astype(jnp.float32).sum() for leaf in jax.tree.leaves(batch))

    def loop(state):
        return jax.lax.fori_loop(0, steps, step, (state, jnp.float32(0)))

    def filled():
        state = buffer.init(transitions(num_envs, 0.0))
        return jax.lax.fori_loop(0, inserts_to_fill, lambda i, s: buffer.insert(s, transitions(num_envs, 1.0)), state)

    run, best = jax.jit(loop, donate_argnums=0), float("inf")
    state = jax.jit(filled)()
    for _ in range(repeats + 1):  # the first compiles
        start = time.perf_counter()
        state, _ = jax.block_until_ready(run(state))
        best = min(best, time.perf_counter() - start)
    return best / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    steps, repeats = (200, 2) if parser.parse_args().quick else (2000, 5)
    print(f"{'buffer':<28}{'capacity':>10}{'envs':>6}{'us/step':>10}")
    for num_envs in (8, 64, 512):
        for capacity in (10_000, 100_000, 1_000_000):
            for name, buffer in (("Replay, sampling only", Replay(capacity, BATCH)),
                                 ("Replay", Replay(capacity, BATCH)),
                                 ("PrioritisedReplay", PrioritisedReplay(capacity, BATCH)),
                                 ("NStep(Replay)", NStep(Replay(capacity, BATCH), n=3, gamma=0.99)),
                                 ("NStep(PrioritisedReplay)", NStep(PrioritisedReplay(capacity, BATCH), 3, 0.99))):
                seconds = time_per_step(buffer, num_envs, -(-capacity // num_envs) + 3, steps, repeats,
                                        write="only" not in name)
                print(f"{name:<28}{capacity:>10}{num_envs:>6}{seconds * 1e6:>10.1f}", flush=True)


if __name__ == "__main__":
    main()
