"""A3C: asynchronous advantage actor-critic (Mnih et al., 2016, https://arxiv.org/abs/1602.01783).

What one of the paper's actor-learners does: a short rollout, returns within it, one gradient, one step of the RMSProp
that all share. Several of them, and that none waits for another, is a matter of how the program is deployed; in one
place this is A2C with the paper's sizes, and the departures are those of A2C.
"""

from dataclasses import dataclass

from msrl.algorithms.a2c import A2C, A2CConfig
from msrl.api.ranges import Count, NotNegative


@dataclass(frozen=True)
class A3CConfig(A2CConfig):
    num_envs: Count = 16
    """Environments that step side by side. The paper has 16 actor-learners with one each."""
    rollout: Count = 5
    """Steps of each environment between two updates, the paper's t_max: how many rewards a return has at most."""
    learning_rate: NotNegative = 2e-3
    """Step size of RMSProp. The paper draws it from 1e-4 to 1e-2, anew for each of its runs."""


class A3C(A2C):
    Config = A3CConfig
