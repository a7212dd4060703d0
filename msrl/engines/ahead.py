"""Programs compiled in the background, from the shapes of their arguments alone.

In: jitted functions, arguments or their shapes. Out: `Ahead`, which gives the executable when it is asked for. What
always holds: an executable is compiled once; what goes wrong while it is compiled is raised where it is asked for.

Tracing and lowering are Python's work and are done by whoever calls. XLA's compiler leaves Python to others, so that
several programs are compiled at once, while Python traces the next or imports what is needed late.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
from jax.stages import Compiled, Traced

# Shared by all runs of a process. The interpreter waits for its threads: no process should end amid a compilation.
_COMPILING = ThreadPoolExecutor(2, thread_name_prefix="msrl-compile")


class Ahead:
    """A program that has been traced. `begin` lowers it and lets it be compiled; `result` waits for the executable."""

    def __init__(self, function: Any, *arguments: Any):
        self._traced: Traced = function.trace(*arguments)
        self._compiled: Future[Compiled] | None = None

    @property
    def returns(self) -> Any:
        """The shapes of what it returns."""
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type),
                            self._traced.out_info)

    def begin(self) -> None:
        if self._compiled is None:
            self._compiled = _COMPILING.submit(self._traced.lower().compile)

    def result(self) -> Compiled:
        self.begin()
        assert self._compiled is not None
        return self._compiled.result()
