"""Imports what the end of a run needs while its beginning waits for the compiler, which leaves Python to others.

Drawing and saving take two seconds to import, and nobody needs them before the first update.
"""

import importlib
import threading

MODULES = ("tensorboardX", "matplotlib.backends.backend_agg", "matplotlib.figure", "orbax.checkpoint")


class Preload:
    """`with Preload():` imports in the background, and waits at the end, as no process should end amid an import."""

    def __init__(self, wanted: bool = True):
        self.thread = threading.Thread(target=self._load, name="msrl-preload", daemon=True) if wanted else None

    def __enter__(self) -> None:
        if self.thread:
            self.thread.start()

    def __exit__(self, *_: object) -> None:
        if self.thread:
            self.thread.join()

    @staticmethod
    def _load() -> None:
        for name in MODULES:
            importlib.import_module(name)
