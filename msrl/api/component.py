"""A component of the user's own: a reward model, a safety shield, a data source."""

from abc import ABC, abstractmethod
from typing import Any

import jax


class Component(ABC):
    """Called from the loop by `msrl.call("name", "method", *args)`.

    A method takes (state, key, *args) and returns (state, out). One that is not traceable runs as Python on the host,
    and says what it returns in `output_shape`, so that what follows it can be compiled.
    """

    traceable: bool = True
    replicable: bool = False
    """On the host: may each instance of what it lives with have one of its own? Its methods then run once in each, on
    the same values. If not, it is in one place, and what it does (writing, asking, counting) is done once."""

    @abstractmethod
    def init(self, key: jax.Array) -> Any:
        """The state before the first call; None if there is none."""

    def output_shape(self, method: str, *args: Any) -> Any:
        """The pytree of ShapeDtypeStructs that `method` returns. Only asked of components that are not traceable, which
        are held to it."""
        raise TypeError(
            f"{type(self).__name__} is not traceable and does not say what {method!r} returns: "
            f"give it an output_shape(self, method, *args) that returns jax.ShapeDtypeStructs"
        )
