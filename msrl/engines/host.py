"""The host engine: Python around compiled stretches.

In: a local program with its stretches marked (msrl/passes/fuse_stretches.py). Each is compiled on first use; ops of
components that live on the host run as Python, once per shard. What can be compiled and is not marked is compiled by
itself, op by op, and the loops around it are stepped by Python.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from msrl.engines.blame import blame
from msrl.engines.calls import HostCalls
from msrl.engines.finite import error_of
from msrl.engines.guard import Guard, Misfit, fault_in, new_guard, skipped
from msrl.engines.library import Ops
from msrl.engines.ops import strong
from msrl.engines.reference import Reference
from msrl.engines.shapes import Shapes
from msrl.engines.world import make_buffers
from msrl.engines.xla import CompiledStretch
from msrl.errors import RunError
from msrl.ir.graph import Call, Flush, Node, Pure, Recv, Send, Stretch, calls, definitions, is_resource, walk
from msrl.ir.interp import Host, Names, run_nodes
from msrl.ir.placed import LocalProgram
from msrl.passes.fuse_stretches import is_selection

Step = Callable[[Names], None]


class HostEngine(Host):
    def __init__(self, ops: Ops, shapes: Shapes, root: jax.Array, compiled: Callable[[float], None]):
        """`compiled` is told the seconds that each compilation took."""
        self.ops, self.shapes, self.root, self.world, self.compiled = ops, shapes, root, ops.world, compiled
        self.reference = Reference(ops, root, shapes.items, fused=True)
        self.calls = HostCalls(lambda *given: self.reference.call(*given))
        self.seeds = root.shape[0] if root.ndim else None
        # By identity, which is cheap; the nodes are kept, so that no others can take their place in memory.
        self._programs: dict[int, tuple[Node, CompiledStretch | None]] = {}
        self._steps: dict[int, tuple[tuple[Node, ...], list[Step]]] = {}
        self._guards: dict[str, Guard] = {}  # by the state that a learn makes
        self._unsettled: dict[str, Call] = {}  # by the same, learns that nobody has looked at since
        self._forms: dict[str, tuple] = {}  # of what a learn was given, where it is not the graph's

    def call(self, node: Call, args: tuple, kwargs: dict[str, Any], reads: tuple) -> tuple[Any, tuple]:
        self.settle()
        return self.reference.call(node, args, kwargs, reads)

    def pure(self, node: Pure, inputs: dict[str, Any]) -> Any:
        value = self.reference.pure(node, inputs)
        # A counter is a 32-bit number from the start, or the first call of a stretch would compile it twice.
        return np.int32(value) if is_resource(node.out) else value

    def block(self, nodes: tuple[Node, ...], names: Names, tail: tuple[str, ...] = (), once: bool = False) -> None:
        for step in self.steps(nodes, once):
            step(names)

    def steps(self, nodes: tuple[Node, ...], once: bool) -> list[Step]:
        """A block as functions of the names in scope. They are made once: in a loop that Python steps, to find out what
        is to be done must not take longer than to do it."""
        if id(nodes) not in self._steps:
            self._steps[id(nodes)] = nodes, [self.step(node, once) for node in nodes]
        return self._steps[id(nodes)][1]

    def step(self, node: Node, once: bool) -> Step:
        program = self.program(node, once)
        if program is not None:
            return partial(self.run, program)
        if isinstance(node, Pure) and is_selection(node) and not is_resource(node.out):
            return self.selecting(node)
        return lambda names: run_nodes((node,), names, self)

    def run(self, program: CompiledStretch, names: Names) -> None:
        if not program.learns:
            names.update(program(self.wide(names, program.inputs), self.root, {})[0])
            return
        made, guards = self.watched(program.learns, lambda guards: program(
            self.wide(names, program.inputs), self.root, guards))
        names.update(made)
        self.take_back(program.learns, guards)

    def selecting(self, node: Pure) -> Step:
        select, out, given = self.ops.scopes.function(node), node.out, [value for _, value in node.inputs]

        def step(names: Names) -> None:
            try:
                names[out] = select(*[names[value] for value in given])
            except Exception:
                with blame(node, RunError):
                    raise

        return step

    def program(self, node: Node, once: bool) -> CompiledStretch | None:
        """What a node compiles to; None for one that Python takes. An op that no stretch holds is its own program."""
        if id(node) not in self._programs:
            program = None
            if isinstance(node, Stretch) or self.alone(node):
                nodes = node.nodes if isinstance(node, Stretch) else (node,)
                program = CompiledStretch(nodes, tuple(definitions(node)), self.ops, self.shapes, self.seeds, once,
                                          self.compiled, self.calls)
            self._programs[id(node)] = node, program
        return self._programs[id(node)][1]

    def alone(self, node: Node) -> bool:
        match node:
            case Call():
                return traceable(node, self.ops)
            case Pure():
                return node.out not in self.shapes.tabular and not is_selection(node)
        return False

    # -- learns ------------------------------------------------------------------------------------------------------

    def watched(self, learns: tuple[Call, ...], use: Callable[[dict[str, Guard]], Any]) -> Any:
        """What `use` makes of the guards of these learns, which fit what it traces."""
        while True:
            try:
                return use(self.guards(learns))
            except Misfit as found:
                assert found.site not in self._forms, "a learn has one form"
                self._forms[found.site] = found.args
                del self._guards[found.site]

    def guards(self, learns: tuple[Call, ...]) -> dict[str, Guard]:
        """What a program with these learns is given beside its names."""
        for node in learns:
            if node.writes[0] not in self._guards:
                count = self.ops.devices.mesh.size if self.ops.devices else self.seeds
                guard = new_guard(node, self.ops, self.shapes, self._forms.get(node.writes[0]))
                self._guards[node.writes[0]] = guard if not count else jax.tree.map(
                    lambda x, count=count: jax.numpy.broadcast_to(x, (count, *np.shape(x))), guard)
        return {node.writes[0]: self._guards[node.writes[0]] for node in learns}

    def take_back(self, learns: tuple[Call, ...], guards: dict[str, Guard]) -> None:
        self._guards.update(guards)
        self._unsettled.update((node.writes[0], node) for node in learns)

    def settle(self) -> None:
        """Raises if a learn was not finite and the run is not to go on. Until then nobody waits for learns: they go on
        while Python does other things. It must be called before anything leaves this engine, for an environment too."""
        if self._unsettled:
            learns, self._unsettled = self._unsettled, {}
            fault = fault_in({site: self._guards[site] for site in learns}, self.ops, self.seeds)
            if fault is not None:
                raise error_of(fault).retold(span=learns[fault.site].span)

    @property
    def skipped(self) -> Any:
        """Learns that were not applied; of several seeds, of each."""
        found = skipped(self._guards)
        return self.reference.skipped + (np.max(found) if self.ops.devices else found)

    def foresee(self, nodes: tuple[Node, ...], names: Names) -> list[CompiledStretch] | None:
        """The programs of a block that will run once, traced, with the shapes of what they make added to the names;
        None if it depends on what the host does."""
        found = []
        for node in nodes:
            program = self.program(node, once=True)
            if program is not None:
                names.update(self.watched(program.learns, lambda guards, program=program: program.foresee(
                    self.wide(names, program.inputs), self.root, guards)))
                found.append(program)
            elif isinstance(node, Pure):
                run_nodes((node,), names, self)
            else:
                return None
        return found

    def wide(self, names: Names, inputs: tuple[str, ...]) -> Names:
        """With several seeds, host numbers once per seed."""
        if not self.seeds:
            return names
        return {**names, **{name: jax.tree.map(self.widen, names[name]) for name in inputs}}

    def widen(self, x: Any) -> Any:
        host = isinstance(x, (bool, int, float, np.generic))
        return np.broadcast_to(strong(x), (self.seeds, *np.shape(x))) if host and self.seeds else x


def traceable(node: Node, ops: Ops) -> bool:
    """Can the node be part of a compiled program? Ops on the host cannot, and moves only among devices."""
    return all(ops.world.traceable(inner.component) if isinstance(inner, Call) else
               ops.devices is not None or not isinstance(inner, (Send, Recv, Flush)) for inner in walk((node,)))


def callable_back(node: Node, ops: Ops) -> bool:
    """Is it an op on the host that a compiled program may call?"""
    match node:
        case Call(component="env", method="step"):
            return ops.world.env.called_back and not ops.world.env.draws
        case Call(method="insert") if node.component in ops.world.buffers:
            buffer = ops.world.buffers[node.component]
            return buffer.called_back and not buffer.traceable
    return False


def compiled_buffers(ops: Ops) -> Ops:
    """The ops, with buffers where compiled loops would have them."""
    moved = make_buffers(ops.world.trainer, compiled=True)
    return ops.with_buffers(moved) if moved != ops.world.buffers else ops


def filled_by_calls(program: LocalProgram, ops: Ops) -> Ops:
    """The ops of a program whose loops that call the host are marked. A buffer that only loops fill that step an
    environment there is where they are, so that a record does not leave the program on its way; all others are where
    they were. What a loop calls apart from that may depend on where buffers are, and does not count."""
    loops = [node.nodes for node in walk(program.nodes) if isinstance(node, Stretch)
             and any(call.component == "env" and callable_back(call, ops) for call in calls(node.nodes))]
    inserts = Counter(call.component for call in calls(program.nodes) if call.method == "insert")
    inside = Counter(call.component for nodes in loops for call in calls(nodes) if call.method == "insert")
    filled = {name: buffer for name, buffer in compiled_buffers(ops).world.buffers.items()
              if inside[name] == inserts[name] > 0 and buffer != ops.world.buffers[name]}
    return ops.with_buffers(filled) if filled else ops
