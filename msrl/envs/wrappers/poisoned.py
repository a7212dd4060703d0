"""Poisoned: an environment that gives numbers which are none, in chosen steps, on purpose.

It stands in the place of EpisodeStats, whose state tells how many steps were made, so that a run's state has the same
form with it as without it. In the chosen steps the first environment of every shard gives NaN; statistics of episodes
and evaluations see the environment as it is. Steps that a reset has cut off are not counted.
"""

from typing import Any

import numpy as np

from msrl.api.env import Env, Step
from msrl.envs.wrappers.base import per_env
from msrl.envs.wrappers.episode_stats import EpisodeStats, Stats
from msrl.errors import UsageError


class Poisoned(EpisodeStats):
    """`rewards`, `observations`: the steps, counted from 1, in which these are NaN."""

    def __init__(self, env: Env, rewards: tuple[int, ...] = (), observations: tuple[int, ...] = ()):
        super().__init__(env)
        self.rewards, self.observations = rewards, observations
        if observations and np.dtype(env.spec.observation.dtype).kind != "f":
            raise UsageError(f"--chaos nan:observation cannot befall {env.spec.id}.",
                             why=f"Its observations are of {env.spec.observation.dtype}, which has no NaN.",
                             instead="Rewards have: nan:reward.", docs="docs/reliability.md#faults-on-purpose")

    def on_step(self, own: Stats, step: Step) -> tuple[Stats, Step]:
        made = (own.length_sum + own.running_length).sum(dtype="int32") // own.running_length.shape[0] + 1
        own, step = super().on_step(own, step)
        first = self.xp.arange(own.running_length.shape[0]) == 0  # (B,)

        def poisoned(value: Any, steps: tuple[int, ...]) -> Any:
            if not steps:
                return value
            hit = (self.xp.asarray(steps) == made).any()
            return self.xp.where(per_env(hit & first, value), self.xp.asarray(self.xp.nan, value.dtype), value)

        return own, step.replace(reward=poisoned(step.reward, self.rewards), obs=poisoned(step.obs, self.observations),
                                 final_obs=poisoned(step.final_obs, self.observations))


def observed(env: Env, rewards: tuple[int, ...] = (), observations: tuple[int, ...] = ()) -> EpisodeStats:
    """An environment with statistics of its episodes, and with whatever is to be wrong with what it gives."""
    return Poisoned(env, rewards, observations) if rewards or observations else EpisodeStats(env)
