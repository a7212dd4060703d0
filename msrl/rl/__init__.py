"""The mathematics of reinforcement learning as pure functions: returns, losses, distributions, schedules, products."""

from msrl.rl.distributions import Categorical, DiagonalNormal, Distribution, MultiCategorical, TanhNormal
from msrl.rl.losses import clipped_surrogate, clipped_value_loss, huber, pick, polyak, q_error
from msrl.rl.products import rows_times_weights
from msrl.rl.returns import VTrace, discounted_returns, gae, n_step_returns, vtrace
from msrl.rl.schedules import linear
from msrl.rl.shuffle import permutation

__all__ = [
    "Categorical", "DiagonalNormal", "Distribution", "MultiCategorical", "TanhNormal", "VTrace", "clipped_surrogate",
    "clipped_value_loss", "discounted_returns", "gae", "huber", "linear", "n_step_returns", "permutation", "pick",
    "polyak", "q_error", "rows_times_weights", "vtrace",
]
