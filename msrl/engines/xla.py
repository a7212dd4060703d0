"""The xla engine: a stretch of nodes, loops and branches included, as one compiled program.

`Traced` walks nodes with JAX tracers: a `for` becomes `lax.fori_loop`, a `while` a `lax.while_loop`, an `if` a
`lax.cond`. `CompiledStretch` compiles a block; `Chunk` compiles several passes of a loop, so that the host gets a word
in between. Resources that a program replaces are donated.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from msrl.api.agreement import DEVICES
from msrl.engines.ahead import Ahead
from msrl.engines.calls import HostCalls, hosted
from msrl.engines.guard import Guard, Misfit, fits, guarded, into_branch, is_learn, learns, out_of_branch
from msrl.engines.library import Ops
from msrl.engines.ops import fold_in, op_keys, strong, values
from msrl.engines.reference import metrics_of
from msrl.engines.shapes import Shapes
from msrl.engines.tables import Table, fill, tables_of
from msrl.ir.graph import (
    Call,
    Flush,
    For,
    If,
    Node,
    Pure,
    Recv,
    Send,
    While,
    base,
    before,
    calls,
    definitions,
    free,
    is_resource,
    nexts,
)
from msrl.ir.interp import Machine, Names, run_nodes

# A program that runs once costs more to optimise than it saves: a third of the compile time.
RUN_ONCE = {"xla_backend_optimization_level": 0}


class Traced(Machine):
    def __init__(self, ops: Ops, shapes: Shapes, nodes: tuple[Node, ...], root: jax.Array,
                 tables: dict[str, tuple[Table, Any]], guards: dict[str, Guard], host: HostCalls):
        """`guards`: one for each learn that is watched; they change with every learn, as tracers do with every loop.
        `host`: who takes ops that cannot be traced."""
        self.guards, self.host = guards, host
        self.moves = ops.devices.moves if ops.devices else {}
        if ops.devices:
            ops, shapes = ops.devices.ops, ops.devices.shapes
        self.ops, self.shapes, self.tables, self.world = ops, shapes, tables, ops.world
        self.positions: dict[str, Any] = {}  # loop index → which pass of it this is
        self.sent: dict[str, Any] = {}  # by move
        # Made here, outside all loops, as they are the same on every pass.
        methods = {(call.component, call.method): ops.op(call.component, call.method) for call in calls(nodes)
                   if call.component != "metrics" and self.world.traceable(call.component)
                   and not (call.component in self.world.buffers and call.method == "init")}
        self.keys = op_keys(root, methods, self.world) if methods else {}

    def call(self, node: Call, args: tuple, kwargs: dict[str, Any], reads: tuple) -> tuple[Any, tuple]:
        component, method = node.component, node.method
        if component == "metrics":
            return None, (self.report(node, args, kwargs, reads),)
        if component in self.world.buffers and method == "init":
            return None, (self.ops.new_buffer(component, self.shapes.items.get(component)),)
        op = self.ops.op(component, method)
        states, count = (reads[:-1], reads[-1]) if op.keyed else (reads, 0)
        if not op.traceable:
            shape = None if component in self.world.buffers else self.ops.host_shape(component, method, args)
            out, token = self.host.trace(node, strong(args), strong(kwargs), states[0], self.halted(), shape)
            return out, (token, *((count + 1,) if op.keyed else ()))
        keys = fold_in(self.keys[component, method], count)
        run = self.ops.fused(component, method, self.ops.layouts.of(node))
        args, kwargs = strong(args), strong(kwargs)
        if is_learn(node) and (site := node.writes[0]) in self.guards:
            if not fits(self.guards[site], args):
                raise Misfit(site, args)
            out, written, guard = guarded(lambda state: run(keys, (state,), args, kwargs), self.ops,
                                          self.guards[site], count, states[0], args)
            self.guards = {**self.guards, site: guard}
        else:
            out, written = run(keys, states, args, kwargs)
        return out, (*written, *((count + 1,) if op.keyed else ()))

    def halted(self) -> Any:
        """Has a learn gone wrong that ends the run? Then nothing may leave the program any more."""
        found = jnp.bool_(False)
        for guard in self.guards.values() if self.ops.non_finite != "skip" else ():
            found = found | (guard["at"] >= 0) if guard else found
        return found

    def report(self, node: Call, args: tuple, kwargs: dict[str, Any], reads: tuple) -> Any:
        """Sums and counts, so that a report costs the same however often a compiled loop makes it."""
        if node.method == "init":
            return no_metrics(self.shapes)
        total, count = reads[0][node.writes[0]]
        new = {name: total[name] + jnp.asarray(value, jnp.float32) for name, value in metrics_of(args, kwargs).items()}
        return {**reads[0], node.writes[0]: (new, count + 1)}

    def pure(self, node: Pure, inputs: dict[str, Any]) -> Any:
        if node.out in self.tables:
            table, entries = self.tables[node.out]
            at = tuple(self.positions[loop.index] for loop in table.loops)
            return jax.tree.map(lambda column: column[at], entries)
        if node.out in self.shapes.tabular:
            return None  # read by other tabular names only, which are in tables
        return values(self.ops.scopes.evaluate(node, inputs))

    def move(self, node: Send | Recv | Flush, names: Names) -> None:
        """Among devices: each sends its part, and receives the whole."""
        if isinstance(node, Send):
            self.sent[node.move] = names[node.value]
            return
        assert isinstance(node, Recv), "nothing is held for oneself"
        dim = self.moves[node.move].dim
        names[node.out] = jax.tree.map(
            lambda x: lax.all_gather(x, DEVICES, axis=dim, tiled=True) if jnp.ndim(x) > dim else x,
            self.sent[node.move])

    def for_(self, node: For, names: Names) -> None:
        start, stop, step = (names[b] if isinstance(b, str) else b for b in (node.start, node.stop, node.step))
        trips = node.trips if node.trips is not None else jnp.maximum(0, -(-(stop - start) // step))
        carried = lax.fori_loop(0, trips, lambda at, c: self.one_pass(node, names, c, at, start + at * step),
                                self.enter(node, names))
        self.left(node, names, carried)

    def one_pass(self, node: For, names: Names, carried: tuple, position: Any, index: Any) -> tuple:
        """The carries go in and come out with the guards behind them."""
        self.guards = carried[-1]
        here = {**names, **{c.phi: value for c, value in zip(node.carries, carried) if c.phi},
                node.index: jnp.int32(index)}
        self.positions[node.index] = position
        run_nodes(node.body, here, self)
        return self.leave(node, here)

    def while_(self, node: While, names: Names) -> None:
        going, body = self.while_parts(node, names)
        carried = lax.while_loop(going, body, self.enter(node, names))
        self.left(node, names, carried)

    def while_parts(self, node: While, names: Names) -> tuple[Any, Any]:
        def inside(carried: tuple) -> Names:
            self.guards = carried[-1]
            return {**names, **{c.phi: value for c, value in zip(node.carries, carried) if c.phi}}

        def going(carried: tuple) -> Any:
            here = inside(carried)
            run_nodes(node.test, here, self)
            return jnp.asarray(here[node.condition], bool)

        def body(carried: tuple) -> tuple:
            here = inside(carried)
            run_nodes(node.test, here, self)  # the body may read what the test made
            run_nodes(node.body, here, self)
            return self.leave(node, here)

        return going, body

    def bounded_while(self, node: While, names: Names, carried: tuple, most: Any) -> tuple[tuple, Any]:
        """At most `most` passes: (carries, how many passes there were)."""
        going, body = self.while_parts(node, names)
        return lax.while_loop(lambda state: (state[1] < most) & going(state[0]),
                              lambda state: (body(state[0]), state[1] + 1), (carried, jnp.int32(0)))

    def if_(self, node: If, names: Names) -> None:
        def side(nodes: tuple[Node, ...], picks: list[str]) -> Any:
            def run() -> tuple:
                here, self.guards = dict(names), guards
                run_nodes(nodes, here, self)
                return (*(self.settled(here[pick]) for pick in picks), self.guards)
            return run

        outside, guards = into_branch(self.guards, tuple(filter(is_learn, calls((node,)))), names)

        out = lax.cond(jnp.asarray(names[node.condition], bool), side(node.then, [m.then for m in node.merges]),
                       side(node.orelse, [m.orelse for m in node.merges]))
        *out, inside = out
        self.guards = out_of_branch(outside, inside)
        names.update(zip((merge.out for merge in node.merges), out))

    def enter(self, node: For | While, names: Names) -> tuple:
        """The carries before the first pass. What is first made inside the loop starts as zeros."""
        return (*(self.settled(names[c.init]) if c.init else
                  jax.tree.map(jnp.asarray, zeros(self.shapes.names[c.out])) for c in node.carries), self.guards)

    def leave(self, node: For | While, here: Names) -> tuple:
        return (*(self.settled(here[carry.next]) for carry in node.carries), self.guards)

    def left(self, node: For | While, names: Names, carried: tuple) -> None:
        """After the loop."""
        names.update(zip((carry.out for carry in node.carries), carried))
        self.guards = carried[-1]

    def settled(self, value: Any) -> Any:
        """The value without weak types, so that it fits where a loop keeps it."""
        return jax.tree.map(lambda x: jnp.asarray(x, jnp.result_type(x)), strong(value))


def numbers(name: str, value: Any) -> Any:
    """What a program is given of the host: Python's numbers have their 32 bits before they meet others."""
    plain = isinstance(value, (bool, int, float))
    return strong(value) if plain or (type(value) in (tuple, list, dict) and not is_resource(name)) else value


def zeros(shape: Any) -> Any:
    return jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shape)


def no_metrics(shapes: Shapes) -> dict[str, Any]:
    return {site: ({name: np.float32(0) for name in names}, np.int32(0)) for site, names in shapes.metrics.items()}


class CompiledStretch:
    """A block compiled as one program. Called with the names in scope; returns those that are needed after it. A call
    that compiles, as the first one does, tells `compiled` how many seconds it took."""

    def __init__(self, nodes: tuple[Node, ...], outputs: tuple[str, ...], ops: Ops, shapes: Shapes,
                 seeds: int | None, once: bool, compiled: Callable[[float], None], host: HostCalls):
        self.nodes, self.ops, self.shapes, self.compiled, self.host = nodes, ops, shapes, compiled, host
        self.hosted = hosted(nodes, ops.world.traceable)
        self.began: float | None = None  # when the call that is compiling began to
        self.tables = tables_of(nodes, outputs, shapes.tabular)
        tabled = {table.name for table in self.tables}
        inputs = [name for name in free(nodes, outputs) if name not in tabled]
        written = {resource for call in calls(nodes) for resource in call.writes}
        gone = {base(name) for name in written}
        self.given = tuple(n for n in inputs if is_resource(n) and base(n) in gone and n not in outputs
                           and not self.remembered(base(n)))
        self.kept = tuple(name for name in inputs if name not in self.given)
        self.inputs = (*self.given, *self.kept)
        self.outputs, self.learns = outputs, learns(nodes, ops)
        program = self.program
        if ops.devices:
            program = ops.devices.spread(program, (self.given, self.kept), 2, outputs)
        program = jax.vmap(program, (0, 0, None, 0, 0)) if seeds else program
        self.run = jax.jit(program, donate_argnums=(0, 4), compiler_options=RUN_ONCE if once else None)
        self.ahead: Ahead | None = None

    def foresee(self, names: Names, root: jax.Array, guards: dict[str, Guard]) -> dict[str, Any]:
        """Traces it for names of which shapes are known; returns the shapes of those that it makes."""
        self.ahead = Ahead(self.run, *self.arguments(names, root), guards)
        return dict(zip(self.outputs, self.ahead.returns[:-1], strict=True))

    def remembered(self, resource: str) -> bool:
        """Does a loop hand on what it was a pass ago? Then others may still read what is replaced."""
        return any(base(name) == before(resource) for name in self.shapes.names)

    def program(self, given: tuple, kept: tuple, tables: tuple, root: jax.Array, guards: dict[str, Guard]) -> tuple:
        self.began = time.perf_counter()  # Python is here only while JAX traces, so other calls have no clock to read
        self.host.first = self.count_compiling
        names = dict(zip((*self.given, *self.kept), (*given, *kept), strict=True))
        machine = Traced(self.ops, self.shapes, self.nodes, root,
                         {t.name: (t, e) for t, e in zip(self.tables, tables)}, guards, self.host)
        run_nodes(self.nodes, names, machine)
        return (*(names[name] for name in self.outputs), machine.guards)

    def arguments(self, names: Names, root: jax.Array) -> tuple:
        tables = tuple(fill(t, self.shapes.tabular, self.ops.scopes, names, {}) for t in self.tables)
        if self.hosted:
            names = {name: self.host.enter(name, names[name]) if base(name) in self.hosted else names[name]
                     for name in self.inputs}
        return tuple(names[n] for n in self.given), tuple(numbers(n, names[n]) for n in self.kept), tables, root

    def __call__(self, names: Names, root: jax.Array, guards: dict[str, Guard]
                 ) -> tuple[dict[str, Any], dict[str, Guard]]:
        """The names and the guards."""
        *made, guards = (self.ahead.result() if self.ahead else self.run)(*self.arguments(names, root), guards)
        self.count_compiling()
        found = dict(zip(self.outputs, made, strict=True))
        if self.hosted:
            jax.block_until_ready(made)
            self.host.check()
            found.update((name, self.host.leave(name)) for name in self.outputs if base(name) in self.hosted)
        return found, guards

    def count_compiling(self) -> None:
        """Once for each time that it is compiled: after that, or as soon as the host is called."""
        if self.began is not None:
            self.compiled(time.perf_counter() - self.began)
            self.began = None


class Chunk:
    """Up to `size` passes of a loop compiled as one program, which says how many it made. With `seeds`, all names and
    the root key have a leading seed dimension."""

    def __init__(self, loop: For | While, size: int, ops: Ops, shapes: Shapes, seeds: int | None, host: HostCalls):
        self.loop, self.size, self.ops, self.shapes, self.host = loop, size, ops, shapes, host
        self.hosted = hosted((loop,), ops.world.traceable)
        self.tables = tables_of((loop,), (), shapes.tabular)
        tabled = {table.name for table in self.tables}
        own = {*(carry.phi for carry in loop.carries), *tabled, loop.index if isinstance(loop, For) else None}
        bounds = (loop.start, loop.step) if isinstance(loop, For) else ()
        read = {**self.read(), **{bound: None for bound in bounds if isinstance(bound, str)}}
        self.constants = tuple(name for name in read if name not in own)
        program = self.program
        if ops.devices:
            carried = tuple(carry.phi or carry.out for carry in loop.carries)
            program = ops.devices.spread(program, (carried, self.constants), 4, (*carried, "passes"))
        program = jax.vmap(program, (0, 0, None, None, None, 0, 0)) if seeds else program
        self.run = jax.jit(program, donate_argnums=(0, 6))
        self.learns = learns((loop,), ops)
        self.ahead: Ahead | None = None

    def foresee(self, *arguments: Any) -> tuple:
        """Traces it for arguments of which shapes are known; returns the shapes of the carries."""
        self.ahead = Ahead(self.run, *arguments)
        return self.ahead.returns[:-2]

    def ready(self, arguments: tuple) -> Any:
        """The executable for such arguments."""
        self.ahead = self.ahead or Ahead(self.run, *arguments)
        return self.ahead.result()

    def enter(self, carried: tuple) -> tuple:
        """The carries for the program: of what stays on the host, tokens."""
        return tuple(self.host.enter(carry.out, value) if base(carry.out) in self.hosted else value
                     for carry, value in zip(self.loop.carries, carried, strict=True))

    def leave(self, carried: Sequence[Any]) -> tuple:
        """The carries after the program, which is done. Raises what the host has raised."""
        self.host.check()
        return tuple(self.host.leave(carry.out) if base(carry.out) in self.hosted else value
                     for carry, value in zip(self.loop.carries, carried, strict=True))

    def read(self) -> dict[str, None]:
        read = free(self.loop.body, nexts(self.loop))
        if isinstance(self.loop, While):
            made = {name for node in self.loop.test for name in definitions(node)}
            read = {name: None for name in read if name not in made} | free(self.loop.test, (self.loop.condition,))
        return read

    def program(self, carried: tuple, constants: tuple, tables: tuple, begin: Any, count: Any, root: jax.Array,
                guards: dict[str, Guard]) -> Any:
        names = dict(zip(self.constants, constants, strict=True))
        machine = Traced(self.ops, self.shapes, (self.loop,), root,
                         {t.name: (t, e) for t, e in zip(self.tables, tables)}, guards, self.host)
        if isinstance(self.loop, While):
            (*carried, guards), passes = machine.bounded_while(self.loop, names, (*carried, guards), count)
            return *carried, passes, guards
        loop = self.loop
        start, step = (names[bound] if isinstance(bound, str) else bound for bound in (loop.start, loop.step))

        def one_pass(at: Any, state: tuple) -> tuple:
            return machine.one_pass(loop, names, state, at, start + (begin + at) * step)

        *carried, guards = lax.fori_loop(0, count, one_pass, (*carried, guards))
        return *carried, count, guards

    def arguments(self, carried: tuple, names: Names, begin: int, count: int, root: jax.Array,
                  guards: dict[str, Guard]) -> tuple:
        """`begin` counts passes, not indices. Tables are padded to `size`, so that all chunks run one program."""
        loop, ranges = self.loop, {}
        if isinstance(loop, For) and loop.trips is not None:
            ranges = {loop.index: range(loop.start, loop.stop, loop.step)[begin:begin + count]}  # type: ignore[arg-type]
        filled = []
        for table in self.tables:
            entries = fill(table, self.shapes.tabular, self.ops.scopes, names, ranges)
            if any(inner.index in ranges for inner in table.loops):
                entries = jax.tree.map(lambda x: np.pad(x, [(0, self.size - count)] + [(0, 0)] * (x.ndim - 1)), entries)
            filled.append(entries)
        constants = tuple(numbers(name, names[name]) for name in self.constants)
        return carried, constants, tuple(filled), np.int32(begin), np.int32(count), root, guards
