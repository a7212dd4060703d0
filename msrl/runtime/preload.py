"""What takes long to import, and is needed late: drawing, saving, TensorBoard.

`late` imports a module when it is used. `Preload` imports them all in the background while a run waits for the
compiler, which leaves Python to others; without it the end of a run would wait two seconds more.
"""

import importlib
import threading
from typing import Any

MODULES = ("tensorboardX", "matplotlib.backends.backend_agg", "matplotlib.figure", "orbax.checkpoint")


def late(name: str) -> Any:
    """One of MODULES."""
    assert name in MODULES, name
    return importlib.import_module(name)


class Preload:
    """`with Preload() as preload:` waits at its end, as no process should end amid an import."""

    def __init__(self, wanted: bool = True):
        self.thread = threading.Thread(target=self._load, name="msrl-preload", daemon=True) if wanted else None
        self.begun = False

    def begin(self) -> None:
        """Starts to import. Calls after the first do nothing."""
        if self.thread and not self.begun:
            self.begun = True
            self.thread.start()

    def __enter__(self) -> "Preload":
        return self

    def __exit__(self, *_: object) -> None:
        if self.thread and self.begun:
            self.thread.join()

    @staticmethod
    def _load() -> None:
        for name in MODULES:
            late(name)
