"""What an algorithm's author writes against."""

from msrl.api.agent import Actor, Agent, Learner, LearnerState
from msrl.api.buffer import Buffer
from msrl.api.component import Component
from msrl.api.env import Env, EnvSpec, Step
from msrl.api.handle import Handle
from msrl.api.interaction import Interaction
from msrl.api.ranges import Count, Natural, NotNegative, Portion, Positive, Range, Widths
from msrl.api.record import Record
from msrl.api.spaces import Box, Discrete, MultiDiscrete, Space
from msrl.api.trainer import Config, Trainer

__all__ = [
    "Actor", "Agent", "Box", "Buffer", "Component", "Config", "Count", "Discrete", "Env", "EnvSpec", "Handle",
    "Interaction",
    "Learner", "LearnerState", "MultiDiscrete", "Natural", "NotNegative", "Portion", "Positive", "Range", "Record",
    "Space", "Step", "Trainer", "Widths",
]
