"""What each pass of the optimiser buys: the same program with it and without it, alternating in one run.

python -m benchmarks.bench_passes [--rounds 15] [--seconds 1.0] [--only overlap ...]

A round runs each of the two for about `--seconds`; which goes first alternates. Ratios are of environment steps per
second, on over off, as median and quartiles over the rounds; once by the clock, and once by the CPU time of this
process, which others on the machine disturb less, and which overlap does not save. Both programs live through the whole
run, so that nothing is compiled twice. Between its turns, a program on threads is at rest after the pass it is in.
fuse-instances is also held against one shard in a program of its own: that is, against shards as so many programs.
"""

import argparse
import statistics
import time
from dataclasses import dataclass, field
from typing import Any

import msrl
from msrl.algorithms import load
from msrl.backends.worker import LOOKS
from msrl.passes import NAMES

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
    Case("coalesce-moves", "DQN, CartPole, single-learner-coarse, threads, 2 actors", "dqn", "CartPole-v1", 16, 400,
         dict(COARSE, actors=2), dict(num_envs=16, shards=2, warmup=256)),
    Case("fuse-instances", "PPO's rollouts, CartPole, local, 8 shards of 8 environments", Rollouts, "CartPole-v1",
         64 * 128, 20, {}, dict(num_envs=64, shards=8, rollout=128), dict(num_envs=8, shards=1)),
    Case("fuse-stretches", "PPO, CartPole, local, 8 environments", "ppo", "CartPole-v1", 8 * 64, 5, {},
         dict(num_envs=8, rollout=64)),
    Case("fuse-stretches", "PPO, CartPole of gymnasium, local, 8 environments", "ppo", "gymnasium:CartPole-v1", 8 * 64,
         5, {}, dict(num_envs=8, rollout=64)),
)


class Running:
    """A program under way."""

    def __init__(self, case: Case, passes: str, **other: Any):
        self.program = msrl.compile(
            case.algorithm, case.env, total_steps=case.steps * case.passes * LOOKS, **{**case.settings, **other},
            deployment=msrl.Deployment(**case.deployment, passes=passes))
        self.updates = self.program.run()
        self.steps = 0
        self.turn(0)

    def turn(self, seconds: float) -> tuple[float, float]:
        """Environment steps per second: by the clock, and by CPU time."""
        began, worked, before = time.perf_counter(), time.process_time(), self.steps
        while True:
            self.steps = next(self.updates).env_steps
            taken, work = time.perf_counter() - began, time.process_time() - worked
            if taken >= seconds and self.steps > before:
                return (self.steps - before) / taken, (self.steps - before) / work

    @property
    def messages(self) -> float:
        """Sent for a thousand environment steps."""
        return 1000 * sum(worker.outbox.sent for worker in self.program.workers) / max(1, self.steps)


def measure(case: Case, rounds: int, seconds: float) -> None:
    print(f"{case.switch}: {case.title}", flush=True)
    running = {sign: Running(case, f"{sign}{case.switch}") for sign in "+-"}
    if case.alone:
        running["alone"] = Running(case, "", **case.alone)
    speeds: dict[str, list[tuple[float, float]]] = {sign: [] for sign in running}
    for number in range(rounds):
        for sign in running if number % 2 else reversed(running):
            speeds[sign].append(running[sign].turn(seconds))
    for other in list(running)[1:]:
        for at, by in enumerate(("by the clock", "by CPU time")):
            ratios = [on[at] / off[at] for on, off in zip(speeds["+"], speeds[other], strict=True)]
            low, _, high = statistics.quantiles(ratios, n=4)
            on, off = (statistics.median(speed[at] for speed in speeds[sign]) / 1000 for sign in ("+", other))
            print(f"  {by}: ratio {statistics.median(ratios):.2f} (quartiles {low:.2f} to {high:.2f}); "
                  f"on {on:.1f} k steps/s, {'off' if other == '-' else other} {off:.1f} k", flush=True)
    if len(running["+"].program.workers) > 1:
        print(f"  messages for a thousand steps: on {running['+'].messages:.1f}, off {running['-'].messages:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    options = parser.parse_args()
    for case in CASES:
        if case.switch in options.only:
            measure(case, options.rounds, options.seconds)


if __name__ == "__main__":
    main()
