"""Works out the shape of every name before anything runs, and refuses what cannot be compiled.

In: a graph and its ops. Out: `Shapes`: the abstract value of every name, the item that each buffer holds, the metrics
of every report. Each loop is run once, abstractly. A value that changes shape or dtype from one pass to the next, or
between two branches, is an error that shows both lines.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import numpy as np

from msrl.api import Component, Record
from msrl.engines.blame import blame, title
from msrl.engines.library import Ops, Trace
from msrl.engines.ops import leaf_tree, split, strong, values
from msrl.engines.reference import metrics_of
from msrl.engines.scopes import Scopes
from msrl.engines.tables import Tabular, find_tabular, typical
from msrl.errors import Span, TypeCheckError
from msrl.ir.graph import Call, For, Graph, If, Pure, While, base, calls, definitions, is_resource, uses, walk
from msrl.ir.interp import Machine, Names, run_nodes
from msrl.tracebacks import author_span

DOCS = "docs/loop-language.md"


class Unknown:
    """The value of an op that reads a buffer whose contents have not been seen yet."""


UNKNOWN = Unknown()


def unknown(tree: Any) -> bool:
    return any(leaf is UNKNOWN for leaf in jax.tree.leaves(tree))


@dataclass
class Shapes:
    names: Names = field(default_factory=dict)
    items: dict[str, Record] = field(default_factory=dict)  # buffer → one whole item
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)  # report (by what it writes) → its metrics
    tabular: Tabular = field(default_factory=Tabular)
    learns: dict[str, Call] = field(default_factory=dict)  # learner's state → the op that makes it


def find_shapes(graph: Graph, ops: Ops) -> Shapes:
    shapes = Shapes(tabular=find_tabular(graph.nodes), learns={
        call.writes[0]: call for call in calls(graph.nodes) if (call.component, call.method) == ("learner", "learn")})
    # The first round finds what buffers hold, even if a sample stands before the insert; the second finds the rest.
    for _ in range(2):
        known = len(shapes.items)
        for axis in ops.layouts.leaf_axes:
            axis.begin(graph.nodes)
        run_nodes(graph.nodes, {}, _Abstract(shapes, graph, ops))
        if len(shapes.items) == known:
            break
    for node in walk(graph.nodes):
        if isinstance(node, Call) and graph.kind(node.component) == "buffer" and node.method != "init" \
                and node.component not in shapes.items:
            raise TypeCheckError(f"Nothing is ever inserted into `{node.component}`.", span=node.span, docs=DOCS,
                                 why="What it holds is known from the records inserted.",
                                 instead="Call `msrl.replay_buffer_insert(...)` for it in the loop. Data that is there "
                                         "from the start is a component: a method of it samples, by "
                                         f'`msrl.call("{node.component}", "{node.method}")`.')
    ops.layouts.confirm(shapes.names)
    return shapes


class _Abstract(Machine):
    def __init__(self, shapes: Shapes, graph: Graph, ops: Ops):
        self.shapes, self.graph, self.ops, self.world = shapes, graph, ops, ops.world
        self.inserted: dict[str, Span | None] = {}  # buffer → where it was first inserted into
        self.failed: tuple[str, ...] = ()  # what the op or expression that failed was given
        self.forms: Names = {}  # resource → its form, as the last op left it
        self.spans = {name: node.span for node in walk(graph.nodes) for name in definitions(node)}

    # -- ops and expressions -----------------------------------------------------------------------------------------

    def call(self, node: Call, args: tuple, kwargs: dict[str, Any], reads: tuple) -> tuple[Any, tuple]:
        out, written = self.attempt(node, lambda: self.abstract_call(node, strong(args), strong(kwargs), reads))
        if node.out:
            self.shapes.names[node.out] = out
        if not unknown((out, args, kwargs, reads)):
            self.find_axes(node, out, strong(args), kwargs, reads)
        self.shapes.names.update(zip(node.writes, written))
        self.forms.update((base(name), state) for name, state in zip(node.writes, written) if not unknown(state))
        after = {base(name): state for name, state in zip(node.writes, written)}
        for name, before in zip(node.reads, reads):
            if name.startswith("$") and base(name) in after and before is not None:
                self.same_state(node, before, after[base(name)])
        return out, written

    def abstract_call(self, node: Call, args: tuple, kwargs: dict[str, Any], reads: tuple) -> tuple[Any, tuple]:
        world, component, method = self.world, node.component, node.method
        counter = (jax.ShapeDtypeStruct((), np.dtype("int32")),) if any(r.startswith("#") for r in node.reads) else ()
        if component == "metrics":
            if method == "report" and not unknown((args, kwargs)):
                self.shapes.metrics[node.writes[0]] = metrics_of(args, kwargs)
            return None, (None,)
        if component in world.buffers:
            if method == "insert" and not unknown(kwargs):
                self.shapes.items.setdefault(component, Record(**jax.tree.map(_struct, kwargs)))
                self.inserted.setdefault(component, node.span)
                self.same_item(node, Record(**kwargs))
                self.ops.check_insert(component, self.shapes.items[component])
            if method in ("init", "insert"):
                return None, (None,)
            item = self.shapes.items.get(component)
            if item is None:
                return UNKNOWN, (None, *counter)
            self.ops.layouts.check(node)
            return self.ops.buffer_shape(node, item, args), (None, *counter)
        if unknown((args, kwargs, reads)):
            # What it returns depends on what it is given; its state keeps its form, or `same_state` will say so.
            return UNKNOWN, (*(self.forms.get(base(name), UNKNOWN) for name in node.writes if name[0] == "$"), *counter)
        self.ops.layouts.check(node)
        if (component, method) == ("learner", "learn") and world.config.learner_shards > 1:
            self.find_joined(node, args, reads[:-1])
        return self.ops.shape(node, reads[:-1] if counter else reads, args, kwargs, counter)

    def find_joined(self, node: Call, args: tuple, states: tuple) -> None:
        """Finds out which rows of a batch are in what several learners return: there are more of them if the batch has
        more."""
        layouts, op, count = self.ops.layouts, self.ops.op("learner", "learn"), self.world.config.learner_shards
        key, rows = jax.eval_shape(lambda: jax.random.key(0)), layouts.of(node).rows
        mine = jax.eval_shape(lambda args: split(args, leaf_tree(args, rows), 0, count), args)

        def learn(given: tuple) -> Any:
            return jax.eval_shape(lambda key, states, given: op.run(key, states, given, {})[0], key, states, given)

        layouts.find_joined(node, mine, learn(mine), learn)

    def check_rows(self, node: Call, args: tuple, weights: tuple) -> None:
        """Has all that an actor makes a row per environment, or does it only have as many entries as a shard has?"""
        layouts, op = self.ops.layouts, self.ops.op("actor", "act")
        rows, key = leaf_tree(args, layouts.of(node).rows), jax.eval_shape(lambda: jax.random.key(0))
        mine = jax.eval_shape(lambda args: split(args, rows, 0, self.world.shards), args)
        more = tuple(map(layouts.environments.lengthened, node.args, mine))
        try:
            one, other = (jax.eval_shape(lambda key, weights, given: op.run(key, weights, given, {})[0], key, weights,
                                         given) for given in (mine, more))
        except Exception:  # the user's code, on shapes that are not those of the run: it may say anything
            return
        for (path, leaf), longer in zip(jax.tree_util.tree_flatten_with_path(one)[0], jax.tree.leaves(other),
                                        strict=True):
            if leaf.shape[:1] and longer.shape[:1] == leaf.shape[:1]:
                raise TypeCheckError(
                    f"`{jax.tree_util.keystr(path).lstrip('.')}` of what `{node.component}.{node.method}` makes has no "
                    "row per environment.", span=node.span, docs=DOCS,
                    why=f"There are {self.world.shards} shards of the environments, and their values are joined row by "
                        f"row; this is {leaf.dtype}{list(leaf.shape)} for any number of environments.",
                    instead="Give it one entry per environment, or leave it out.")

    def find_axes(self, node: Call, out: Any, args: tuple, kwargs: dict[str, Any], reads: tuple) -> None:
        """Notes which leaves of what an op made follow environments, samples and agents."""
        layouts, own = self.ops.layouts, self.world.own.get(node.component)
        if node.component == "learner":
            return  # `find_joined` has, where there are several; else what it returns is whole
        if node.component == "actor" and layouts.environments.active and not self.ops.op("actor", "act").by_agent:
            self.check_rows(node, args, reads[:-1])
        for rows in layouts.row_axes:
            probe = None if own is None else partial(shape_of_own, rows.own(node.component), node.method)
            rows.call(node, out, args, probe)
        if node.component in self.world.buffers:
            layouts.agents.buffer(node, out, kwargs, self.ops.op(node.component, "sample").out_dim or 0)
        else:
            layouts.agents.call(node, out, args, partial(shape_of_own, own, node.method) if own is not None else None)

    def pure(self, node: Pure, inputs: dict[str, Any]) -> Any:
        plain = {name: jax.tree.map(_struct, value) for name, value in inputs.items()}

        def shape(given: dict[str, Any]) -> Any:
            traced = self.ops.tracing.trace(make(self.ops), given)
            trace = Trace("train", node.out, make, (given,), traced.jaxpr, node)
            self.ops.traces.setdefault((trace.component, trace.method), trace)
            return traced.out_info

        def make(ops: Ops) -> Callable[..., Any]:
            return lambda given: values(numbers(ops.scopes.evaluate(node, given)))

        def evaluate() -> Any:
            if node.out in self.shapes.tabular:
                return typical(node.out, self.shapes.tabular, self.ops.scopes)
            return UNKNOWN if unknown(inputs) else shape(plain)

        try:
            self.shapes.names[node.out] = found = self.attempt(node, evaluate)
        except TypeCheckError as problem:
            self.not_of_none(node, inputs, problem)
            raise
        if not unknown((found, inputs)):
            for axis in self.ops.layouts.leaf_axes:
                axis.pure(node, jax.tree.map(_struct, found), plain, shape_of_expression)
        return found

    def attempt(self, node: Call | Pure, work: Callable[[], Any]) -> Any:
        """Runs user code; what it raises is told in terms of the loop's line."""
        self.failed = tuple(uses(node))  # if it does
        with blame(node, TypeCheckError):
            try:
                return work()
            except OverflowError as problem:
                raise TypeCheckError(
                    f"{title(node)} has a whole number that does not fit 32 bits.", span=node.span, docs=DOCS,
                    why="Values of the loop are JAX's, whose whole numbers end at 2147483647.",
                    instead="Count in larger units, or use a float.") from problem
            except jax.errors.TracerArrayConversionError as problem:
                raise TypeCheckError(
                    f"{title(node)} takes NumPy to a value that is computed at run time.", span=node.span,
                    also=author_span(problem), docs=DOCS,
                    why="NumPy needs the numbers themselves, which are not there while the loop is being compiled.",
                    instead="Use `jax.numpy`, which has the same functions.") from problem
            except (jax.errors.ConcretizationTypeError, jax.errors.TracerIntegerConversionError) as problem:
                # In a component, as against a line of the loop, an `if` is Python's, too.
                decide, choose, indices = "`if`, ", "`jnp.where`, ", ""
                if isinstance(node, Pure):
                    decide = choose = ""
                    indices = " What depends on loop indices alone may stay as it is, on a line of its own."
                raise TypeCheckError(
                    f"{title(node)} needs a number while the loop is being compiled.", span=node.span,
                    also=author_span(problem), docs=DOCS,
                    why=f"Its input is computed at run time, and Python's {decide}`max`, `min`, `int`, `float`, "
                        "`round` and indices of lists look at the number itself.",
                    instead=f"Use the array form: {choose}`jnp.maximum`, `jnp.minimum`, `.astype(int)`, "
                            f"`jnp.array(list)[i]`.{indices}") from problem

    # -- control flow ------------------------------------------------------------------------------------------------

    def for_(self, node: For, names: Names) -> None:
        for bound in (node.start, node.stop, node.step):
            if isinstance(bound, str):
                self.whole_number(node, names[bound])
        number = jax.ShapeDtypeStruct((), np.dtype("int32"))
        self.loop(node, names, {node.index: number if node.trips is None else node.start})

    def while_(self, node: While, names: Names) -> None:
        self.loop(node, names, {})

    def loop(self, node: For | While, names: Names, extra: Names) -> None:
        phis = {c.phi: self.carried(names[c.init]) for c in node.carries if c.phi and c.init}
        self.shapes.names.update(phis)
        inits = {c.init: phis[c.phi] for c in node.carries if c.phi and c.init}
        axes = self.ops.layouts.leaf_axes
        for axis in axes:
            axis.start(node.carries)
        problem: TypeCheckError | None = None
        while True:
            here = {**names, **phis, **extra}
            for axis in axes:
                axis.enter(node.carries, inits)
            try:
                if isinstance(node, While):
                    run_nodes(node.test, here, self)
                    self.one_decision(node, here[node.condition])
                run_nodes(node.body, here, self)
            except TypeCheckError as found:
                problem = problem or found
                if any([axis.reject(node.carries, inits, self.failed) for axis in axes]):
                    continue
                raise problem from problem.__cause__
            if all([axis.leave(node.carries, partial(self.known_shape, here)) for axis in axes]):
                break
        for carry in node.carries:
            following = self.carried(here[carry.next])
            if carry.phi and not is_resource(carry.phi):
                self.same(here[carry.phi], following, carry.init or "", carry.next, carry.phi)
            names[carry.out] = self.shapes.names[carry.out] = following

    def if_(self, node: If, names: Names) -> None:
        self.one_decision(node, names[node.condition])
        sides = []
        for nodes in (node.then, node.orelse):
            here = dict(names)
            run_nodes(nodes, here, self)
            sides.append(here)
        for merge in node.merges:
            then, orelse = self.carried(sides[0][merge.then]), self.carried(sides[1][merge.orelse])
            if not is_resource(merge.out) and not unknown((then, orelse)):
                self.same(then, orelse, merge.then, merge.orelse, merge.out, branch=True)
            names[merge.out] = self.shapes.names[merge.out] = then
        for axis in self.ops.layouts.leaf_axes:
            axis.merge(node.merges, partial(self.known_shape, names))

    def known_shape(self, names: Names, name: str) -> Any:
        return None if unknown(names[name]) else jax.tree.map(_struct, names[name])

    def carried(self, value: Any) -> Any:
        return strong(jax.tree.map(_struct, value))

    # -- complaints --------------------------------------------------------------------------------------------------

    def one_decision(self, node: If | While, value: Any) -> None:
        if not unknown(value) and describe(value) not in SCALARS:
            raise TypeCheckError(
                f"The condition is {describe(value)}.", span=node.span, docs=DOCS,
                why="All environments go the same way through the loop, so it is decided by one number.",
                instead="Reduce it with `.any()` or `.all()`; or choose per environment with `jnp.where`.")

    def whole_number(self, node: For, value: Any) -> None:
        if not unknown(value) and describe(value) not in WHOLE:
            raise TypeCheckError(
                f"A bound of the `range` is {describe(value)}.", span=node.span, docs=DOCS,
                why="A loop runs a whole number of times.",
                instead="Give it one whole number: `.astype(int)` of a scalar.")

    def same(self, first: Any, second: Any, first_name: str, second_name: str, name: str, branch: bool = False) -> None:
        if unknown((first, second)):
            return
        difference = describe_difference(first, second)
        if not difference:
            return
        variable = name.rpartition(".")[0]
        where = "between the branches of an `if`" if branch else "from one pass of the loop to the next"
        number = difference == ("int32[]", "float32[]") and not branch
        raise TypeCheckError(
            f"`{variable}` changes {where}.", span=self.spans.get(first_name), also=self.spans.get(second_name),
            why=f"It is {difference[0]} at the first line and {difference[1]} at the second, and a compiled loop keeps "
                "each value in one place of one size.",
            instead="Begin with a float: `0.0` in place of `0`." if number else
                    "Give it the same form on both lines. To collect values, use a buffer.", docs=DOCS)

    def not_of_none(self, node: Pure, inputs: Names, problem: TypeCheckError) -> None:
        """An expression that fails for a variable that begins as None is told in terms of that."""
        for name, value in node.inputs:
            if inputs[name] is None and isinstance(problem.__cause__, (TypeError, AttributeError)):
                variable = value.rpartition(".")[0]
                begun = [span for each, span in self.spans.items() if span and each.rpartition(".")[0] == variable]
                raise TypeCheckError(
                    f"{title(node)} fails, as `{variable}` is None.", span=begun[0] if begun else None,
                    also=node.span, docs=DOCS,
                    why="A compiled loop is one program for all passes, in which a variable is None for ever or never, "
                        "and both sides of an `if` are compiled.",
                    instead=f"Begin with an array of the form that it has later: `{variable} = jnp.zeros_like(...)`; "
                            "and keep in a variable of its own whether it counts yet.") from problem

    def same_state(self, node: Call, before: Any, after: Any) -> None:
        if unknown((before, after)):
            return
        difference = describe_difference(before, after)
        if difference:
            raise TypeCheckError(
                f"`{node.component}.{node.method}` changes the form of its state.", span=node.span,
                why=f"Before it is {difference[0]}, after it {difference[1]}.",
                instead="Return a state of the same tree, shapes and dtypes as `init` makes.", docs=DOCS)

    def same_item(self, node: Call, item: Record) -> None:
        held = self.shapes.items[node.component]
        difference = describe_difference(held, item)
        if difference:
            raise TypeCheckError(
                f"Two inserts into `{node.component}` differ.", span=self.inserted[node.component], also=node.span,
                why=f"The first has {difference[0]}, the second {difference[1]}.",
                instead="Insert the same shapes and dtypes everywhere, or use two buffers.", docs=DOCS)


def shape_of_expression(node: Pure, inputs: dict[str, Any], scopes: Scopes) -> Any:
    return jax.eval_shape(lambda given: scopes.evaluate(node, given), inputs)


def shape_of_own(component: Component, method: str, args: tuple) -> Any:
    """What a component's method makes of such arguments."""
    if not component.traceable:
        return component.output_shape(method, *args)
    key = jax.eval_shape(lambda: jax.random.key(0))
    state = jax.eval_shape(component.init, key)
    return jax.eval_shape(lambda key, state, args: getattr(component, method)(state, key, *args)[1], key, state, args)


def numbers(value: Any) -> Any:
    """The value, if it is made of numbers and arrays."""
    for leaf in jax.tree.leaves(value):
        if not isinstance(leaf, (bool, int, float, np.ndarray, np.generic, jax.Array)):
            raise TypeCheckError(
                f"A value of the loop is {leaf!r}.", docs=DOCS,
                why="Values that change or cross a boundary are numbers and arrays, and tuples, lists, dicts and "
                    "records of these.",
                instead="Use numbers. Strings and objects belong in the configuration, or in a component.")
    return value


def _struct(leaf: Any) -> Any:
    if isinstance(leaf, (Unknown, jax.ShapeDtypeStruct)):
        return leaf
    leaf = strong(leaf)
    return jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype)


WHOLE = tuple(f"{kind}{bits}[]" for kind in ("int", "uint") for bits in (8, 16, 32, 64))
SCALARS = (*WHOLE, "bool[]", "float16[]", "bfloat16[]", "float32[]", "float64[]")


def describe(value: Any) -> str:
    """`float32[4, 2]`, or a tree of such."""
    forms = jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape)}", jax.tree.map(_struct, value))
    return str(forms).replace("'", "")


def describe_difference(first: Any, second: Any) -> tuple[str, str] | None:
    """How two abstract values differ, as two phrases; None if they do not."""
    one, one_tree = jax.tree_util.tree_flatten_with_path(first)
    two, two_tree = jax.tree_util.tree_flatten_with_path(second)
    if one_tree != two_tree:
        return describe(first), describe(second)
    for (path, a), (_, b) in zip(one, two):
        if a.shape != b.shape or a.dtype != b.dtype:
            at = jax.tree_util.keystr(path)
            return f"{a.dtype}{list(a.shape)}{' in ' + at if at else ''}", f"{b.dtype}{list(b.shape)}"
    return None

