"""PPO CartPole as one compiled program against the hand-written one, alternating in one run.

python -m benchmarks.bench_ppo [--rounds 100] [--updates 2]
"""

import argparse
import statistics
import time

import jax

import msrl
from benchmarks.hand_ppo import Settings, make


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--updates", type=int, default=2, help="updates per round and program")
    options = parser.parse_args()
    if options.rounds > 198:
        parser.error("at most 198 rounds: a run lets the host look 200 times, and each round takes a look")
    settings = Settings(updates=(options.rounds + 2) * options.updates)
    steps = settings.envs * settings.rollout

    init, update = make(settings)
    state, _ = update(init(jax.random.key(0)))
    jax.block_until_ready(state)

    program = msrl.compile("ppo", "CartPole-v1", total_steps=steps * settings.updates, num_envs=settings.envs,
                           rollout=settings.rollout, epochs=settings.epochs, minibatches=settings.minibatches)
    run = program.run()
    done = next(run).env_steps

    ratios, ours_all, hand_all = [], [], []
    for number in range(options.rounds):
        def hand() -> float:
            nonlocal state
            began = time.perf_counter()
            for _ in range(options.updates):
                state, metrics = update(state)
            jax.block_until_ready((state, metrics))
            return options.updates * steps / (time.perf_counter() - began)

        def ours() -> float:
            nonlocal done
            began, before = time.perf_counter(), done
            while done - before < options.updates * steps:
                done = next(run).env_steps
            return (done - before) / (time.perf_counter() - began)

        first, second = (hand, ours) if number % 2 else (ours, hand)
        speeds = {first.__name__: first(), second.__name__: second()}
        ours_all.append(speeds["ours"])
        hand_all.append(speeds["hand"])
        ratios.append(speeds["ours"] / speeds["hand"])
        print(f"round {number + 1:2d}: ours {speeds['ours'] / 1e3:6.1f} k steps/s, by hand "
              f"{speeds['hand'] / 1e3:6.1f} k, ratio {ratios[-1]:.3f}", flush=True)
    low, _, high = statistics.quantiles(ratios, n=4)
    print(f"median ratio {statistics.median(ratios):.3f} (quartiles {low:.3f} to {high:.3f}); target 0.97; "
          f"ours {statistics.median(ours_all) / 1e3:.1f} k, by hand {statistics.median(hand_all) / 1e3:.1f} k steps/s")


if __name__ == "__main__":
    main()
