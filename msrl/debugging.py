"""`msrl.eager`: an algorithm's loop as plain Python, for those who look for a mistake in it.

In: an algorithm, an environment, settings. Out: what the loop leaves. The loop is read by the compiler, which says how
its values are divided, but lines that are there for people (`print`, `breakpoint()`, logging) are left to Python.
"""

from typing import Any

from msrl import algorithms, envs
from msrl.api import Config, Env, Trainer
from msrl.backends.eager import Eager, run_eagerly
from msrl.engines.library import make_ops
from msrl.engines.ops import roots
from msrl.engines.reference import Reference
from msrl.engines.shapes import find_shapes
from msrl.engines.world import make_world
from msrl.envs.host import HostEnv
from msrl.envs.wrappers import observed
from msrl.errors import Span
from msrl.frontend.lower import lower
from msrl.ir.interp import Names


def eager(algorithm: str | type[Trainer], env: str | Env, *, seed: int = 0, config: Config | None = None,
          **fields: Any) -> tuple[Names, list[dict[str, float]]]:
    """Runs an algorithm's loop as plain Python, in which `breakpoint()`, `print` and a debugger work: the resources and
    the reports that it leaves. What a compiled run computes is the same, in strict mode to the bit."""
    cls = algorithms.load(algorithm) if isinstance(algorithm, str) else algorithm
    settings = algorithms.configured(cls, config, fields)
    original = envs.make(env) if isinstance(env, str) else env
    if isinstance(original, HostEnv):
        original.exact = True
    try:
        wrapped = cls.wrap(observed(original), settings)
        trainer, folded = cls(settings, wrapped.spec), set[tuple[str, Span]]()
        world = make_world(trainer, wrapped)
        graph = lower(trainer, tuple(world.buffers), tuple(world.own), eager=True, folded=folded)
        ops = make_ops(world, graph, non_finite="stop")
        machine = Reference(ops, roots(seed, 1), find_shapes(graph, ops).items)
        return run_eagerly(trainer, Eager(machine, graph), folded)
    finally:
        if isinstance(env, str):
            original.close()
