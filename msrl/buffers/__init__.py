"""Stores of records: rollouts for on-policy algorithms, replays for off-policy ones, on the device or on the host."""

from msrl.buffers.n_step import NStep
from msrl.buffers.prioritised import PrioritisedReplay
from msrl.buffers.replay import Replay
from msrl.buffers.rollout import Rollout

__all__ = ["NStep", "PrioritisedReplay", "Replay", "Rollout"]
