"""The reference machine: every op of every shard is one compiled call at the shard's own shape; expressions are Python.

It defines strict mode: nothing is fused, shards run and are joined in order. Interpreter, inline execution and eager
Python all go through `Reference.apply`, and so give the same bits.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from msrl.api import Record
from msrl.engines.blame import blame
from msrl.engines.library import Ops
from msrl.engines.ops import join, split, strong
from msrl.errors import RunError, TypeCheckError
from msrl.ir.graph import Call, Pure
from msrl.ir.interp import Host


class Reference(Host):
    def __init__(self, ops: Ops, root: jax.Array, items: Mapping[str, Record]):
        """`items` says what each buffer holds; one that holds nothing is not used by the loop."""
        self.ops, self.world, self.root, self.items = ops, ops.world, root, items
        self.reports: list[dict[str, float]] = []

    def call(self, node: Call, args: tuple, kwargs: dict[str, Any], reads: tuple) -> tuple[Any, tuple]:
        with blame(node, RunError):
            return self.apply(node.component, node.method, args, kwargs, reads)

    def pure(self, node: Pure, inputs: dict[str, Any]) -> Any:
        with blame(node, RunError):
            return self.ops.scopes.evaluate(node, inputs)

    def apply(self, component: str, method: str, args: tuple, kwargs: dict[str, Any],
              reads: tuple) -> tuple[Any, tuple]:
        """Runs one op on whole values. Per-shard states are tuples, one entry per shard."""
        if component == "metrics":
            return None, (self.report(method, args, kwargs, reads),)
        if component in self.world.buffers and method == "init":
            return None, (self.new_buffer(component),)
        op, run = self.ops.op(component, method), self.ops.alone(component, method)
        shards = self.world.shards if op.sharded else 1
        states, count = (reads[:-1], reads[-1]) if op.keyed else (reads, 0)
        args, kwargs = strong(args), strong(kwargs)
        outs, written = [], []
        for shard in range(shards):
            mine = (split(args, shard, shards, self.world.config.num_envs),
                    split(kwargs, shard, shards, self.world.config.num_envs)) if op.sharded else (args, kwargs)
            own = tuple(state[shard] for state in states) if op.sharded and op.states else states
            out, after = run(self.root, np.int32(shard), np.int32(count), own, *mine)
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

    def new_buffer(self, component: str) -> Any:
        """An empty store, or one per shard."""
        if component not in self.items:
            return None
        buffer, item = self.world.buffers[component], self.ops.shard_item(self.items[component], component)
        if not self.world.sharded(component):
            return buffer.init(item)
        return tuple(buffer.init(item) for _ in range(self.world.shards))


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
