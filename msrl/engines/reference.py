"""The reference machine: every op of every shard is one compiled call at the shard's own shape; expressions are Python.

It defines strict mode: nothing is fused, shards run and are joined in order. Interpreter, inline execution and eager
Python all go through `Reference.apply`, and so give the same bits.
"""

from functools import cache
from typing import Any

import jax
import numpy as np

from msrl.api import Record
from msrl.engines.ops import World, call_key, join, make_op, op_key, split, strong
from msrl.engines.scopes import Scopes
from msrl.errors import TypeCheckError
from msrl.ir.graph import Call, Pure
from msrl.ir.interp import Host


class Reference(Host):
    def __init__(self, world: World, root: jax.Array):
        self.world = world
        self.root = root
        self.scopes = Scopes(world.trainer)
        self.reports: list[dict[str, float]] = []
        self._executable = cache(self._make_executable)

    def call(self, node: Call, args: tuple, kwargs: dict[str, Any], reads: tuple) -> tuple[Any, tuple]:
        return self.apply(node.component, node.method, args, kwargs, reads)

    def pure(self, node: Pure, inputs: dict[str, Any]) -> Any:
        return self.scopes.evaluate(node, inputs)

    def apply(self, component: str, method: str, args: tuple, kwargs: dict[str, Any],
              reads: tuple) -> tuple[Any, tuple]:
        """Runs one op on whole values. Per-shard states are tuples, one entry per shard."""
        if component == "metrics":
            return None, (self.report(method, args, kwargs, reads),)
        if component in self.world.buffers and method == "init":
            return None, (None,)  # what it holds is known at the first insert
        op, run = self._executable(component, method)
        shards = self.world.shards if op.sharded else 1
        states, count = (reads[:-1], reads[-1]) if op.keyed else (reads, 0)
        args, kwargs = strong(args), strong(kwargs)
        outs, written = [], []
        for shard in range(shards):
            mine = (split(args, shard, shards, self.world.config.num_envs),
                    split(kwargs, shard, shards, self.world.config.num_envs)) if op.sharded else (args, kwargs)
            own = tuple(state[shard] for state in states) if op.sharded and op.states else states
            if component in self.world.buffers and own[0] is None:
                own = (self._first(component, method, mine[1]),)
            out, after = run(np.int32(shard), np.int32(count), own, *mine)
            outs.append(out)
            written.append(after)
        states = tuple(zip(*written, strict=True)) if op.sharded and op.states else written[0]
        counter = (count + 1,) if op.keyed else ()
        return join(outs, op.out_dim), (*states, *counter)

    def report(self, method: str, args: tuple, kwargs: dict[str, Any], reads: tuple) -> int:
        if method == "init":
            return 0
        self.reports.append({name: float(value) for name, value in metrics_of(args, kwargs).items()})
        return reads[0] + 1

    def _first(self, component: str, method: str, fields: dict[str, Any]) -> Any:
        """The empty store, once the first record is at hand."""
        if method != "insert":
            raise TypeCheckError(f"`{component}` is asked for `{method}` before anything was inserted.",
                                 why="Until then it does not know what it holds.", instead="Insert first.")
        return self.world.buffers[component].init(Record(**fields))

    def _make_executable(self, component: str, method: str):
        op = make_op(self.world, component, method)
        base = op_key(self.root, component, method)
        key = jax.jit(lambda shard, count: call_key(base, shard, count))

        def run(shard, count, states, args, kwargs):
            return op.run(key(shard, count), states, args, kwargs)

        if not op.traceable:
            return op, run
        # States are linear (only the newest is ever read), so those an op replaces can be given away; weights cannot.
        return op, jax.jit(run, donate_argnums=(2,) if op.states else ())


def metrics_of(args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """A report's metrics by name: nested dicts are joined by `/`."""
    found: dict[str, Any] = {}
    for tree in (*args, kwargs):
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
            name = "/".join(str(getattr(p, "key", getattr(p, "name", getattr(p, "idx", p)))) for p in path) or "value"
            if np.shape(leaf) != ():
                raise TypeCheckError(f"The metric `{name}` has shape {np.shape(leaf)}.",
                                     why="A metric is one number.",
                                     instead="Reduce it first, for instance with `.mean()`.")
            found[name] = leaf
    return found
