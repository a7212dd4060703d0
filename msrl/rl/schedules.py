"""Schedules: plain Python numbers from plain Python numbers.

In: a loop index. Out: a float. What always holds: no JAX, so that a training loop can evaluate them on its indices
before anything is traced, to the same double everywhere.
"""


def linear(index: int, *, start: float, end: float, steps: int) -> float:
    """From `start` at index 0 to `end` at index `steps`, and `end` ever after."""
    if index >= steps:
        return float(end)
    return start + (end - start) * max(index, 0) / steps
