"""A component of one's own: a bonus for states that are rarely seen, added to the reward by the loop.

    python examples/reward_shaping.py           a few seconds of PPO on MountainCar, with the bonus
    python examples/reward_shaping.py 65536     the same for 65 536 environment steps

MountainCar's own reward is -1 a step until the flag, so a policy that never gets there has nothing to learn from. The
component keeps counts of the states seen in its state, which the system threads through the loop like any other.
"""

import sys
from dataclasses import dataclass

import jax.numpy as jnp

import msrl
from msrl.algorithms.ppo import PPO, PPOConfig
from msrl.api import Component


class Novelty(Component):
    """Counts visits to the cells of a grid over two normalised features, each within ±REACH."""

    REACH = 2.5

    def __init__(self, cells: int):
        self.cells = cells

    def init(self, key):
        return jnp.zeros((self.cells, self.cells))

    def bonus(self, counts, key, obs):
        """obs (B, 2) → bonus (B,): 1 / sqrt(visits to the same cell)."""
        cell = ((obs / self.REACH + 1) / 2 * self.cells).astype(int).clip(0, self.cells - 1)  # (B, 2)
        at = cell[:, 0], cell[:, 1]
        counts = counts.at[at].add(1.0)
        return counts, 1.0 / jnp.sqrt(counts[at])


@dataclass(frozen=True)
class ShapedConfig(PPOConfig):
    total_steps: int = 300_000
    """Environment steps to train for."""
    learning_rate: float = 1e-3
    """Step size of Adam."""
    normalise_obs: bool = True
    """The grid is laid over normalised observations, so this stays on."""
    bonus: float = 10.0
    """Weight of the bonus against the environment's reward."""
    cells: int = 24
    """Cells of the grid along each feature."""


class ShapedPPO(PPO):
    Config = ShapedConfig

    def components(self):
        return {"novelty": Novelty(self.config.cells)}

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(self.config.updates):
            for _ in range(self.config.rollout):
                act = msrl.agent_act(obs)
                step = msrl.env_step(act.action)
                bonus = msrl.call("novelty", "bonus", step.final_obs)
                msrl.replay_buffer_insert(
                    obs=obs, action=act.action, log_prob=act.log_prob, done=step.done, terminated=step.terminated,
                    reward=step.reward + self.config.bonus * bonus, final_obs=step.final_obs,
                )
                obs = step.obs
            msrl.report(msrl.agent_learn(msrl.replay_buffer_sample()))
            msrl.report(bonus=bonus.mean())


def main(total_steps: int = ShapedConfig.total_steps) -> None:
    program = msrl.compile(ShapedPPO, "MountainCar-v0", total_steps=total_steps)
    for update in program.run():
        if update.episodes:  # the cars start together, so most updates see no episode end
            print(f"{update.env_steps:>8} steps, return {update.episode_return:6.1f}, "
                  f"bonus {update.metrics.get('bonus', 0.0):.3f}")
    seen = int((program.resources["$novelty"] > 0).sum())
    print(f"{seen} of {program.trainer.config.cells ** 2} cells of the state space were seen")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
