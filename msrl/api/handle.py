"""A handle: a Python object in a component's state that is no array, such as a batch of environments on the host."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np


class Handle(ABC):
    """What a state may hold besides arrays, if a run with it is to be saved and resumed."""

    @abstractmethod
    def save(self) -> dict[str, np.ndarray]:
        """All that `restore` needs, by name. Nobody writes to these arrays later."""

    @abstractmethod
    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """Makes a new handle, as `init` gives it, what the saved one was."""
