"""Wrappers around environments, one per file."""

from msrl.envs.wrappers.base import Wrapped, Wrapper
from msrl.envs.wrappers.episode_stats import EpisodeStats, Stats, stats
from msrl.envs.wrappers.frame_stack import FrameStack
from msrl.envs.wrappers.normalise_obs import NormaliseObs
from msrl.envs.wrappers.normalise_reward import NormaliseReward
from msrl.envs.wrappers.poisoned import Poisoned, observed
from msrl.envs.wrappers.scale_actions import ScaleActions

__all__ = [
    "EpisodeStats", "FrameStack", "NormaliseObs", "NormaliseReward", "Poisoned", "ScaleActions", "Stats", "Wrapped",
    "Wrapper", "observed", "stats",
]
