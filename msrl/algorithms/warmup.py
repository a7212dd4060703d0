"""What algorithms with a replay have in common: it is filled by random actions first, then learnt from.

In: a configuration's numbers, in environment steps. Out: the loop's numbers, in steps of all environments at once.
What always holds: at the first learning the replay has at least a batch, and there is at least one learning.
"""

from dataclasses import dataclass

from msrl.api import Config
from msrl.api.ranges import Count, Natural
from msrl.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class ReplayConfig(Config):
    """The fields are the algorithm's to declare, with its own defaults."""

    warmup: Natural
    capacity: Count
    batch_size: Count

    def check(self) -> None:
        for name in ("batch_size", "num_envs"):
            needed, flag = getattr(self, name), f"--{name.replace('_', '-')}"
            if needed > self.capacity:
                raise UsageError(
                    f"capacity is {self.capacity}, and {name} {needed}.",
                    why="The replay must hold a whole batch, and what all environments bring in one step.",
                    instead=f"Give --capacity {needed} or more, or {flag} {self.capacity} or less (in Python: "
                            f"capacity=, {name}=).")

    @property
    def warmup_iterations(self) -> int:
        return -(-max(self.warmup, self.batch_size) // self.num_envs)

    @property
    def iterations(self) -> int:
        return max(1, self.total_steps // self.num_envs - self.warmup_iterations)
