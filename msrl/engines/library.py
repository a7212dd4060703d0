"""A world's ops, each made once and shared by all that run or study them.

`alone` runs an op for one shard at the shard's own shape, `fused` for all shards at once on whole values; the rest
tells what ops return without running them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from msrl.api import Buffer, Record
from msrl.engines.agents import Agents
from msrl.engines.by_agent import cut_agents, fuse_by_agent
from msrl.engines.cut import Cut
from msrl.engines.declared import Declared
from msrl.engines.layouts import Layouts
from msrl.engines.ops import Layout, Op, alone, call_key, fuse, leaf_tree, make_op, op_key
from msrl.engines.scopes import Scopes
from msrl.engines.work import Tracing
from msrl.engines.world import World
from msrl.errors import TypeCheckError
from msrl.ir.graph import Call, Graph, Pure


def make_ops(world: World, graph: Graph, batched: bool = True, non_finite: str = "ignore") -> "Ops":
    """The ops of a graph. `batched` and `non_finite` as in `Ops`."""
    return Ops(world, Layouts(world, graph), batched, non_finite)


@dataclass(frozen=True)
class Trace:
    """A method as it was traced for the first time."""

    component: str
    method: str
    make: Callable[["Ops"], Callable[..., Any]]  # what was traced, for ops that have traced nothing yet
    given: tuple
    jaxpr: Any
    node: Pure | None = None  # an expression of the loop


class Ops:
    """One per world. Functions are cached, so that JAX traces and compiles each op once."""

    def __init__(self, world: World, layouts: Layouts, batched: bool = True, non_finite: str = "ignore"):
        """`layouts`: how the graph's values are divided. `batched`: do shards that are fused run as one batch, or one
        after another in one program? `non_finite`: what becomes of a learn that is not finite (docs/non-finite.md)."""
        self.world, self.layouts, self.batched, self.non_finite = world, layouts, batched, non_finite
        self.watched: dict[str, tuple[str, ...]] = {}  # by learn, what is looked at (msrl/engines/guard.py)
        self.scopes = Scopes(world.trainer, {"part_": self.rows_part, "agents_part_": self.agents_part})
        self.op: Callable[[str, str], Op] = cache(lambda component, method: make_op(world, component, method))
        self.alone = cache(lambda component, method: alone(self.op(component, method), component, method))
        self.fused = cache(self._fused)
        self.learning = self._learning()
        self.devices: Any = None  # a `Devices`, if its programs run on several
        self.tracing = Tracing()
        self._declared: dict[tuple[str, str], Declared] = {}
        self.traces: dict[tuple[str, str], Trace] = {}  # the first of each op that is compiled

    @property
    def axes(self) -> Mapping[str, int]:
        """The dimension on which a name of the graph is divided by environment, of those that are."""
        return self.layouts.axes

    @property
    def agents(self) -> Agents:
        return self.layouts.agents

    @property
    def tabular(self) -> frozenset[str]:
        """The names that Python computes (msrl/engines/tables.py)."""
        return self.layouts.tabular

    def part(self, shards: range, batched: bool | None = None) -> "Ops":
        """The same ops for some of the shards. What runs one shard alone is shared."""
        return self._shared(self.world.part(shards), self.batched if batched is None else batched)

    def part_of_agents(self, shards: range) -> "Ops":
        """The same for some of the agents' shards."""
        return self._shared(self.world.part_of_agents(shards), self.batched)

    def with_buffers(self, buffers: Mapping[str, Buffer]) -> "Ops":
        """The same ops, with these in the place of buffers of the same names."""
        world = replace(self.world, buffers={**self.world.buffers, **buffers})
        return Ops(world, self.layouts, self.batched, self.non_finite)

    def _shared(self, world: World, batched: bool) -> "Ops":
        other = Ops(world, self.layouts, batched, self.non_finite)
        other.op, other.alone, other.learning = self.op, self.alone, self.learning
        return other

    def weights(self, state: Any) -> Any:
        """What actors need of a learner's state, as fast execution keeps it."""
        weights = self.world.agent.learner.weights
        return jax.vmap(weights)(state) if self.world.agent_shards > 1 else weights(state)

    def rows_part(self, whole: Any, of: str | int) -> Any:
        """What belongs to this world's shards of a whole value that is divided as the name is, or all leaves of which
        are divided on this dimension."""
        return self.world.cut(whole, of if isinstance(of, int) else leaf_tree((whole,), (self.layouts.rows(of),))[0])

    def agents_part(self, whole: Any, name: str) -> Any:
        """What belongs to this world's agents of a value that is divided as the name is."""
        return cut_agents(whole, self.agents.of(name), self.world)

    def _fused(self, component: str, method: str, layout: Layout = Layout(),  # noqa: B008 (frozen)
               settled: bool = True) -> Callable[..., tuple[Any, tuple]]:
        op = self.op(component, method)
        run = fuse(op, len(self.world.span(op.over)), self.world.num_envs, layout, self.batched)
        return fuse_by_agent(op, run, self.world, layout.agents, settled) if op.by_agent else run

    def _learning(self) -> Callable[..., Cut]:
        """The program of one of several learners, cut at agreements, for arguments like these: (root key, learner, call
        number, states, arguments)."""
        programs: dict[Any, Cut] = {}

        def learn(root, learner, count, states, args):
            key = call_key(op_key(root, "learner", "learn"), learner, count)
            return self.op("learner", "learn").run(key, states, args, {})

        def program(*given: Any) -> Cut:
            leaves, form = jax.tree.flatten(given)
            known = form, tuple((np.shape(leaf), leaf.dtype) for leaf in leaves)
            if known not in programs:
                programs[known] = Cut(learn, *jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), x.dtype), given))
            return programs[known]

        return program

    def keys_shape(self, op: Op) -> jax.ShapeDtypeStruct:
        key = jax.eval_shape(lambda: jax.random.key(0))
        counts = (len(self.world.span("agent")) if op.by_agent else 1, len(self.world.span(op.over)))
        return jax.ShapeDtypeStruct(tuple(count for count in counts if count > 1), key.dtype)

    def shape(self, node: Call, states: tuple, args: tuple, kwargs: dict, counter: tuple):
        """(value, resources written) of an op, abstractly."""
        component, method = node.component, node.method
        op = self.op(component, method)
        if op.traceable:
            out, written = self._trace((component, method, self.layouts.of(node)), self.keys_shape(op), states, args,
                                       kwargs)
        else:
            out, written = self.host_shape(component, method, args), states or (None,)
        return out, (*written, *counter)

    def host_shape(self, component: str, method: str, args: tuple) -> Any:
        num_envs = self.world.num_envs
        match component, method:
            case _, "init":
                return None
            case "env", "reset":
                return self.world.env.obs_shape(num_envs)
            case "env", "step":
                return self.world.env.step_shape(num_envs)
        return self.world.own[component].output_shape(method, *args)

    def shard_item(self, item: Record, component: str) -> Record:
        """What one of the component's stores is given of a buffer's item."""
        count = len(self.world.span(self.world.over(component)))
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct((x.shape[0] // count, *x.shape[1:]), x.dtype), item) \
            if count > 1 else item

    def new_buffer(self, component: str, item: Record | None) -> Any:
        """An empty store for all shards or learners: stacked if traceable, a tuple of stores on the host. Without an
        item, None: the loop does not use it."""
        if item is None:
            return None
        buffer, over = self.world.buffers[component], self.world.over(component)
        part, count = self.shard_item(item, component), len(self.world.span(over))
        if over is None:
            return buffer.init(part)
        if not buffer.traceable:
            return tuple(buffer.init(part) for _ in range(count))
        state = buffer.init(part)
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), state) if count > 1 else state

    def declared(self, component: str, method: str, item: Record) -> Declared:
        """What a buffer on the host is to return, one for a shard or learner."""
        buffer, part = self.world.buffers[component], self.shard_item(item, component)
        return self._declared.setdefault((component, method), Declared(
            type(buffer).__name__, method, partial(buffer.output_shape, method, part)))

    def check_insert(self, component: str, item: Record) -> None:
        """Lets the buffer say what it thinks of such records. One on the host is not asked: it would allocate."""
        if self.world.over(component):
            check_rows(component, item, self.world.config.num_envs)
        if self.world.buffers[component].traceable:
            op, state = self.op(component, "insert"), jax.eval_shape(lambda: self.new_buffer(component, item))
            given = self.keys_shape(op), (state,), (), item.asdict()
            traced = jax.jit(partial(self.fused(component, "insert"))).trace(*given)
            self._keep((component, "insert"), given, traced.jaxpr)

    def buffer_shape(self, node: Call, item: Record, args: tuple) -> Any:
        component, method = node.component, node.method
        buffer = self.world.buffers[component]
        if not buffer.traceable:
            return buffer.output_shape(method, item, *args)
        op = self.op(component, method)
        state = jax.eval_shape(lambda: self.new_buffer(component, item))
        return self._trace((component, method, self.layouts.of(node)), self.keys_shape(op), (state,), args, {})[0]

    def _trace(self, function: tuple, *given: Any) -> Any:
        traced = self.tracing.trace(self.fused(*function), *given)
        self._keep(function, given, traced.jaxpr)
        return traced.out_info

    def _keep(self, function: tuple, given: tuple, jaxpr: Any) -> None:
        self.traces.setdefault(function[:2], Trace(*function[:2], lambda ops: ops.fused(*function), given, jaxpr))


def check_rows(component: str, item: Record, num_envs: int) -> None:
    """Each shard is given its rows of a record."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(item)[0]:
        if leaf.shape[:1] != (num_envs,):
            field = jax.tree_util.keystr(path).lstrip(".")
            raise TypeCheckError(
                f"`{component}` is given a field without a row per environment: {field} is "
                f"{leaf.dtype}{list(leaf.shape)}.",
                why=f"There are {num_envs} environments in several shards, and each keeps the rows of its own.",
                instead=f"Give {field} one entry per environment: `jnp.full(self.config.num_envs, ...)`.")
