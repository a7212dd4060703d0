"""What each pass of the optimiser buys: the same program with it and without it, alternating in one run.

python -m benchmarks.bench_passes [--rounds 15] [--seconds 1.0] [--only overlap ...]

A round runs each of the two for about `--seconds`; which goes first alternates. The ratio is that of environment steps
per second, on over off, as median and quartiles over the rounds. Both programs live through the whole run, so that
nothing is compiled twice. Between its turns, a program on threads is at rest after the pass it is in.
"""

import argparse
import statistics
import time
from dataclasses import dataclass, field
from typing import Any

import msrl
from msrl.algorithms import load
from msrl.backends.worker import LOOKS

PPO: Any = load("ppo")


class Rollouts(PPO):
    """PPO that never learns: what is left is what the shards do."""

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(self.config.updates):
            for _ in range(self.config.rollout):
                act = msrl.agent_act(obs)
                step = msrl.env_step(act.action)
                msrl.replay_buffer_insert(obs=obs, action=act.action, log_prob=act.log_prob, reward=step.reward,
                                          terminated=step.terminated, done=step.done, final_obs=step.final_obs)
                obs = step.obs
            msrl.report(reward=msrl.replay_buffer_sample().reward.mean())


@dataclass(frozen=True)
class Case:
    title: str
    algorithm: Any
    env: str
    steps: int  # of the environments, in one pass of the loop that trains
    passes: int  # between two looks of the host
    deployment: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


COARSE = dict(distribution="single-learner-coarse", backend="threads")
CASES = {
    "overlap": Case("PPO, CartPole, single-learner-coarse, threads, 1 actor of 64 environments", "ppo", "CartPole-v1",
                    64 * 128, 2, COARSE, dict(num_envs=64, rollout=128, epochs=4, minibatches=4)),
    "coalesce-moves": Case("DQN, CartPole, single-learner-coarse, threads, 2 actors", "dqn", "CartPole-v1", 16, 400,
                           dict(COARSE, actors=2), dict(num_envs=16, shards=2, warmup=256)),
    "fuse-instances": Case("PPO's rollouts, CartPole, local, 8 shards of 8 environments", Rollouts, "CartPole-v1",
                           64 * 128, 20, {}, dict(num_envs=64, shards=8, rollout=128)),
    "fuse-stretches": Case("PPO, CartPole of gymnasium, local, 8 environments", "ppo", "gymnasium:CartPole-v1", 8 * 64,
                           5, {}, dict(num_envs=8, rollout=64)),
}


class Running:
    """A program under way."""

    def __init__(self, case: Case, passes: str):
        self.program = msrl.compile(
            case.algorithm, case.env, total_steps=case.steps * case.passes * LOOKS, **case.settings,
            deployment=msrl.Deployment(**case.deployment, passes=passes))
        self.updates = self.program.run()
        self.steps = 0
        self.turn(0)

    def turn(self, seconds: float) -> float:
        """Environment steps per second."""
        began, before = time.perf_counter(), self.steps
        while True:
            self.steps = next(self.updates).env_steps
            taken = time.perf_counter() - began
            if taken >= seconds and self.steps > before:
                return (self.steps - before) / taken

    @property
    def messages(self) -> float:
        """Sent for a thousand environment steps."""
        return 1000 * sum(worker.sent for worker in self.program.workers) / max(1, self.steps)


def measure(name: str, rounds: int, seconds: float) -> None:
    case = CASES[name]
    print(f"{name}: {case.title}", flush=True)
    running = {sign: Running(case, f"{sign}{name}") for sign in "+-"}
    speeds: dict[str, list[float]] = {"+": [], "-": []}
    for number in range(rounds):
        for sign in "+-" if number % 2 else "-+":
            speeds[sign].append(running[sign].turn(seconds))
    ratios = [on / off for on, off in zip(speeds["+"], speeds["-"], strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    on, off = (statistics.median(speeds[sign]) / 1000 for sign in "+-")
    print(f"  on {on:.1f} k steps/s, off {off:.1f} k; ratio {statistics.median(ratios):.2f} (quartiles {low:.2f} to "
          f"{high:.2f}, {rounds} rounds)", flush=True)
    if len(running["+"].program.workers) > 1:
        print(f"  messages for a thousand steps: on {running['+'].messages:.1f}, off {running['-'].messages:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--only", nargs="+", choices=tuple(CASES), default=tuple(CASES))
    options = parser.parse_args()
    for name in options.only:
        measure(name, options.rounds, options.seconds)


if __name__ == "__main__":
    main()
