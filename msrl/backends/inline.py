"""The inline backend: one thread steps the program, in a fixed order.

`run` is a generator: it yields the live resources at points where the host may look (between chunks of a top-level
loop) and must not be resumed before the looker is done, as the next chunk overwrites them in place.
"""

import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from msrl.engines.host import HostEngine, traceable
from msrl.engines.library import Ops
from msrl.engines.ops import strong
from msrl.engines.reference import Reference
from msrl.engines.shapes import Shapes
from msrl.engines.xla import Chunk, no_metrics, zeros
from msrl.ir.graph import For, Graph, While, base, free, is_resource, nexts
from msrl.ir.interp import Names

LOOKS = 200  # how often a loop of known length lets the host look, at most
WHILE_SECONDS = 0.2  # how long a chunk of any other loop should take, at least


class Inline:
    """One run; or several at once through one program, if `root` is an array of keys."""

    def __init__(self, graph: Graph, shapes: Shapes, ops: Ops, root: jax.Array, strict: bool):
        self.graph, self.shapes, self.ops, self.root, self.strict = graph, shapes, ops, root, strict
        self.seeds = root.shape[0] if root.ndim else None
        self.engine = Reference(ops, root, shapes.items) if strict else HostEngine(ops, shapes, root)
        self.compile_seconds = 0.0

    def run(self) -> Iterator[Names]:
        names: Names = {}
        pending: list[Any] = []
        for at, node in enumerate(self.graph.nodes):
            if isinstance(node, (For, While)):
                self.before(tuple(pending), names, self.graph.nodes[at:])
                pending = []
                yield from self.loop(node, names)
            else:
                pending.append(node)
        self.before(tuple(pending), names, ())
        yield {base(result): self.whole(names[result]) for result in self.graph.results}

    def before(self, nodes: tuple, names: Names, rest: tuple) -> None:
        """Runs what stands between top-level loops."""
        began = time.perf_counter()
        tail = tuple(free(rest, self.graph.results))
        if isinstance(self.engine, HostEngine):
            self.engine.block(nodes, names, tail, once=True)
        else:
            self.engine.block(nodes, names, tail)
        self.compile_seconds += time.perf_counter() - began

    def loop(self, node: For | While, names: Names) -> Iterator[Names]:
        if self.strict or not traceable(node, self.ops):
            yield from self.stepped(node, names)
        elif self.seeds and isinstance(node, For) and node.trips is None:
            # Each seed has a number of passes of its own: all of them in one program.
            self.engine.block((node,), names, tuple(carry.out for carry in node.carries))
        else:
            yield from self.compiled(node, names)

    def stepped(self, node: For | While, names: Names) -> Iterator[Names]:
        """Pass by pass on the host."""
        carried = {carry.phi: names[carry.init] for carry in node.carries if carry.phi and carry.init}
        passes = self.passes(node, names, carried)
        size = chunk_size(len(passes)) if isinstance(passes, range) else 1
        here: Names = {}
        for number, index in enumerate(passes, 1):
            here = {**names, **carried, **({node.index: index} if isinstance(node, For) else {})}
            self.engine.block(node.body, here, nexts(node))
            carried.update({carry.phi: here[carry.next] for carry in node.carries if carry.phi})
            if number % size == 0:
                yield self.look(node, names, carried)
                self.forget_metrics(names)
                self.forget_metrics(carried)
        for carry in node.carries:
            names[carry.out] = carried[carry.phi] if carry.phi else here[carry.next]

    def passes(self, node: For | While, names: Names, carried: Names) -> Any:
        if isinstance(node, For):
            return range(*(int(names[b]) if isinstance(b, str) else b for b in (node.start, node.stop, node.step)))

        def going() -> Iterator[None]:
            while True:
                here = {**names, **carried}
                self.engine.block(node.test, here, (node.condition,))
                if not bool(here[node.condition]):
                    return
                yield None
        return going()

    def compiled(self, node: For | While, names: Names) -> Iterator[Names]:
        """Chunk by chunk in one compiled program."""
        total = None
        if isinstance(node, For):
            total = len(self.passes(node, names, {}))
        chunk = Chunk(node, chunk_size(total) if total else 1, self.ops, self.shapes, self.seeds)
        carried = tuple(self.enter(names[c.init], c.init) if c.init else self.blank(c.out) for c in node.carries)
        run, done, count = None, 0, chunk.size
        while total is None or done < total:
            count = count if total is None else min(chunk.size, total - done)
            arguments = chunk.arguments(carried, self.wide(names, chunk.constants), done, count, self.root)
            if run is None:
                began = time.perf_counter()
                run = chunk.run.lower(*arguments).compile()
                self.compile_seconds += time.perf_counter() - began
            began = time.perf_counter()
            carried, passes = run(*arguments)
            passes = int(np.max(passes))
            done += passes
            if total is None:
                if passes < count:
                    break
                # How long a `while` runs is not known, so it lets the host look by the clock.
                count = count * 2 if time.perf_counter() - began < WHILE_SECONDS else count
            phis = {c.phi or c.out: value for c, value in zip(node.carries, carried, strict=True)}
            yield self.look(node, names, phis)
            self.forget_metrics(names)
            self.forget_metrics(phis)
            carried = tuple(phis.values())
        names.update(zip((c.out for c in node.carries), carried, strict=True))

    # -- values on their way into a compiled loop ------------------------------------------------------------------

    def enter(self, value: Any, name: str) -> Any:
        """A carry's first value. The loop will write over it, so what others may still read is copied."""
        value = jax.tree.map(self.widen, strong(value))
        return value if is_resource(name) else jax.tree.map(jnp.array, value)

    def blank(self, name: str) -> Any:
        return jax.tree.map(lambda x: self.widen(x, always=True), zeros(self.shapes.names[name]))

    def widen(self, x: Any, always: bool = False) -> Any:
        """A host value once per seed, if there are several."""
        host = always or isinstance(x, (bool, int, float, np.generic))
        return np.broadcast_to(strong(x), (self.seeds, *np.shape(x))) if self.seeds and host else x

    def wide(self, names: Names, wanted: tuple[str, ...]) -> Names:
        return {**names, **{name: jax.tree.map(self.widen, names[name]) for name in wanted}} if self.seeds else names

    def forget_metrics(self, names: Names) -> None:
        """Metrics start from zero after each look."""
        for name in names:
            if base(name) == "$metrics" and not self.strict:
                names[name] = jax.tree.map(lambda x: self.widen(x, always=True), no_metrics(self.shapes))

    def look(self, node: For | While, names: Names, carried: Names) -> Names:
        """All resources as they are now."""
        live = {base(name): value for name, value in names.items() if is_resource(name)}
        live.update({base(name): value for name, value in carried.items() if name and is_resource(name)})
        return {name: self.whole(value) for name, value in live.items()}

    def whole(self, value: Any) -> Any:
        """A resource for the one who looks: once per seed, even if the program has not touched it yet."""
        return jax.tree.map(self.widen, value) if self.seeds else value


def chunk_size(passes: int) -> int:
    return max(1, -(-passes // LOOKS))
