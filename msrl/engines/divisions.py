"""A reference machine that writes down which arguments it divides among shards and learners.

Whether an argument is divided is a matter of what it is, never of its size. So two runs of one loop, with different
numbers of environments, must divide the same ones (msrl/verifying.py).
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from msrl.engines.cut import Steps
from msrl.engines.reference import Reference
from msrl.errors import Span
from msrl.ir.graph import Call

Site = tuple[int, str, str]  # line of the loop, component, method


class Divisions(Reference):
    def __init__(self, *given: Any):
        super().__init__(*given)
        self.whole: Any = None  # what the op at hand is given
        self.span: Span | None = None
        self.found: dict[Site, dict[str, bool]] = {}  # by the path of a leaf: is it divided?
        self.spans: dict[Site, Span | None] = {}

    def call(self, node: Call, args: tuple, kwargs: dict[str, Any], reads: tuple) -> tuple[Any, tuple]:
        self.whole, self.span = {"arguments": args, "fields": kwargs}, node.span
        return super().call(node, args, kwargs, reads)

    def alone(self, component: str, method: str) -> Callable[..., tuple[Any, tuple]]:
        run = super().alone(component, method)

        def watched(root, shard, count, states, args, fields):
            self.note(component, method, args, fields)
            return run(root, shard, count, states, args, fields)

        return watched

    def learning(self, *given: Any) -> Steps:
        self.note("learner", "learn", given[-1], {})
        return super().learning(*given)

    def note(self, component: str, method: str, args: tuple, fields: dict[str, Any]) -> None:
        site = self.span.line if self.span else 0, component, method
        if site in self.found or self.whole is None:
            return
        mine = jax.tree.leaves({"arguments": args, "fields": fields})
        whole = jax.tree_util.tree_flatten_with_path(self.whole)[0]
        self.spans[site] = self.span
        self.found[site] = {jax.tree_util.keystr(path): np.shape(part) != np.shape(leaf)
                            for (path, leaf), part in zip(whole, mine, strict=True)}
