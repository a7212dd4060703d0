"""How the values of a graph are divided: among shards of the environments, among learners, and among agents.

In: a graph and its world; `find_shapes` fills it. Out: for every op a `Layout`, and the names of which an instance with
some of the shards has a part. It never depends on a size that two dimensions happen to share.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from msrl.engines.agents import Agents
from msrl.engines.by_agent import seen_whole
from msrl.engines.leaf_axes import LeafAxis, Probe
from msrl.engines.ops import ArgDims, Layout, LeafDims
from msrl.engines.rows import Environments, Rows, Samples
from msrl.engines.scopes import Scopes
from msrl.engines.tables import find_tabular
from msrl.engines.world import World
from msrl.errors import TypeCheckError
from msrl.ir.axes import find_agent_axes, find_axes
from msrl.ir.graph import Call, Graph, is_resource

DOCS = "docs/loop-language.md#what-has-a-row-per-environment"


class Layouts:
    """One for all that share a graph."""

    def __init__(self, world: World, graph: Graph):
        self.world, self.graph, self.tabular = world, graph, frozenset(find_tabular(graph.nodes).loops)
        self.stores = {name: over for name in world.buffers if (over := world.over(name))}
        scopes, agents = Scopes(world.trainer, {}), len(world.env.spec.agents)
        self.axes = find_axes(graph, self.stores)  # until `confirm` has seen the shapes, what the graph alone tells
        self.environments = Environments(world, self.axes, scopes)
        self.samples = Samples(world, scopes)
        self.agents = Agents(agents, find_agent_axes(graph, self.stores) if agents else {}, scopes)
        self.seen_whole = seen_whole(world.agent)
        self.joined: dict[str, LeafDims] = {}  # learner's state → how what the learn that makes it returns is joined

    @property
    def row_axes(self) -> tuple[Rows, Rows]:
        return self.environments, self.samples

    @property
    def leaf_axes(self) -> tuple[LeafAxis, ...]:
        return self.environments, self.samples, self.agents

    def rows(self, name: str) -> LeafDims:
        """The dimension of each leaf on which its rows lie, of environments or of samples."""
        first, second = self.environments.of(name), self.samples.of(name)
        return tuple(map(max, first, second)) if first and second else first or second

    def of(self, node: Call) -> Layout:
        return Layout(self._rows(node), self._agents(node), self.joined.get(node.writes[0], ()) if node.writes else ())

    def _rows(self, node: Call) -> ArgDims:
        match node.component:
            case "env":
                return (None,) * len(node.args)
            case "actor":
                # An observation has a row for each environment, whatever was computed to get it.
                return tuple(None if at == 0 and self.environments.is_unsure(name) else self.environments.of(name)
                             for at, name in enumerate(node.args))
            case "learner" if self.world.config.learner_shards > 1:
                return tuple(map(self.rows, node.args))
            case component if component in self.stores:
                return tuple(map(self.rows, node.args))
        return ()

    def _agents(self, node: Call) -> ArgDims:
        whole = self.seen_whole.get(node.component)
        return () if whole is None else tuple(() if at in whole else self.agents.of(name)
                                              for at, name in enumerate(node.args))

    def find_joined(self, node: Call, args: tuple, out: Any, learn: Probe) -> None:
        """Notes how what several learners return becomes one value. `args` and `out`: the shapes of a learner's part of
        the batch, and of what it returns of it; `learn`: what it would return of another."""
        paths, forms = jax.tree_util.tree_flatten_with_path(out)[0], dict[Rows, list[int]]()
        names = [jax.tree_util.keystr(path) for path, _ in paths]
        if any(np.ndim(leaf) for _, leaf in paths):
            for axis in self.row_axes:
                if any(map(axis.of, node.args)):
                    forms[axis] = rows_of(axis, node, args, out, learn, names)
        found = [tuple(dims) for dims in forms.values()]
        dims = tuple(max(each) for each in zip(*found, strict=True)) if found else ()
        self.joined[node.writes[0]] = dims if any(dim >= 0 for dim in dims) else ()
        if node.out:
            for axis in self.row_axes:
                axis.note(node.out, forms.get(axis, ()))

    # -- what find_shapes asks for at its end ------------------------------------------------------------------------

    def check(self, node: Call) -> None:
        """Refuses arguments of which it is not known whether they are to be divided."""
        acts = node.component == "actor"
        axes: tuple[LeafAxis, ...] = ()
        if acts or (node.component == "learner" and self.world.config.learner_shards > 1) \
                or (node.component in self.stores and node.method != "insert"):
            axes = (self.environments,) if acts else self.row_axes
        if node.component in self.seen_whole and self.world.config.agent_shards > 1:
            axes = (*axes, self.agents)
        whole = self.seen_whole.get(node.component, ())
        for axis, (at, name) in ((axis, each) for axis in axes for each in enumerate(node.args)):
            given = axis is self.agents and at in whole
            if axis.is_unsure(name) and not (acts and at == 0 and axis is self.environments) and not given:
                raise TypeCheckError(
                    f"It cannot be told whether `{variable(name)}` has an entry for each of the "
                    f"{axis.title}.", span=node.span, docs=DOCS,
                    why="It is divided among shards if it has, and given to each whole if not. It has as many entries "
                        f"as there are {axis.title}, but what makes it does not work with another number of them.",
                    instead=axis.instead)
        if acts and any(self.samples.of(name) for name in node.args):
            name = next(name for name in node.args if self.samples.of(name))
            raise TypeCheckError(
                f"`agent_act` is given `{variable(name)}`, which has one row per sample of a replay.", span=node.span,
                why="With several learner shards, each has its own part of every sample, and actors none.",
                instead="Reduce it to what all actors are to know, or train with one learner shard.", docs=DOCS)

    def confirm(self, shapes: Mapping[str, Any]) -> None:
        """Keeps of the names that are divided by the graph's telling those whose shapes agree: each leaf follows the
        rows on that dimension and on no other."""
        if not self.environments.active:
            return
        whole: set[str] = set()
        while refuted := {name for name in self.axes if name in shapes and not is_resource(name)
                          and not self._agrees(name, shapes[name])}:
            whole |= refuted
            self.axes = find_axes(self.graph, self.stores, whole)
            assert not whole & {*self.axes}, "what an op declares always holds"

    def _agrees(self, name: str, shape: Any) -> bool:
        hint, leaves = self.axes[name], jax.tree.leaves(shape)
        if any(name in axis.mixed or axis.is_unsure(name) for axis in self.row_axes):
            return False
        dims = self.rows(name) or (-1,) * len(leaves)
        return all(dim == hint if np.ndim(leaf) > hint else dim < 0 for leaf, dim in zip(leaves, dims, strict=True))


def rows_of(axis: Rows, node: Call, args: tuple, out: Any, learn: Probe, names: list[str]) -> list[int]:
    """The dimension on which each leaf of what a learner returns has rows of its batch; -1 if it has none."""
    sizes = {np.shape(leaf)[dim] for name, arg in zip(node.args, args, strict=True)
             for leaf, dim in zip(jax.tree.leaves(arg), axis.of(name), strict=False) if dim >= 0}
    problem: Exception | None = None
    try:
        more = jax.tree.leaves(learn(tuple(map(axis.lengthened, node.args, args))))
    except Exception as found:  # the user's code, on a batch that no learner is given
        more, problem = [None] * len(names), found
    dims = []
    for name, leaf, other in zip(names, jax.tree.leaves(out), more, strict=True):
        shape = np.shape(leaf)
        now = np.shape(other) if other is not None else (-1,) * len(shape)
        longer = [at for at, pair in enumerate(zip(shape, now, strict=False)) if pair[0] != pair[1]]
        if len(now) != len(shape) or len(longer) > 1 or any(
                shape[at] not in sizes or now[at] != axis.longer(shape[at]) for at in longer):
            raise TypeCheckError(
                f"What `learn` returns{' in ' + name if name else ''} cannot be put together.",
                why="There are several learner shards, each with its part of the batch. What has one row per sample or "
                    "environment is joined, of all else the mean is taken; this depends on the batch in another way.",
                instead="Keep the batch's rows on a dimension of their own, or return numbers.",
                docs="docs/distributions.md#what-learn-returns") from problem
        dims.append(longer[0] if longer else -1)
    return dims


def variable(name: str) -> str:
    return name.rpartition(".")[0]
