"""Which parts of a value have one entry per agent, and on which dimension.

In: what ops and expressions make, as `find_shapes` comes by it. Out: for every name the dimension of each of its
leaves; -1 where there is none, as in `step.done`. Environments, actors and buffers declare it; of anything else it is
found by asking for the shapes once more with one agent more, and looking at what has grown. It always holds that a
loop's name and what a pass hands on agree.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from msrl.api import Config, Env, Record
from msrl.errors import UsageError
from msrl.ir.axes import elementwise
from msrl.ir.graph import Call, Carry, For, Merge, Node, Pure, While, definitions, is_resource, walk
from msrl.ir.placed import same_form

LeafDims = tuple[int, ...]  # in the order of the tree's leaves; () if no leaf has agents
BY_AGENT = ("obs", "reward", "final_obs")  # of a Step


class Agents:
    """One for all that share a graph. Without agents there is nothing to find."""

    def __init__(self, count: int, num_envs: int, hints: Mapping[str, int]):
        """`count`: agents of an environment, or 0. `hints`: what the graph alone tells."""
        self.count, self.num_envs, self.hints = count, num_envs, hints
        self.begin(())

    def begin(self, nodes: tuple[Node, ...]) -> None:
        """Forgets what was found; `nodes` are the graph's."""
        self.known = {name for node in walk(nodes) for name in (*definitions(node), *phis(node))}
        self.found: dict[str, LeafDims] = {}
        self.items: dict[str, dict[str, int]] = {}  # buffer → path in a record → dimension
        self.whole: set[str] = set()  # loops' names whose ends do not agree

    def of(self, name: str) -> LeafDims:
        return self.found.get(name if name in self.known else same_form(name), ())

    def spread(self) -> dict[str, int]:
        """The names that have agents anywhere, with the first dimension on which they do."""
        return {name: next(dim for dim in dims if dim >= 0) for name, dims in self.found.items()
                if not is_resource(name)}

    def divisible(self) -> frozenset[str]:
        """Of these, the names that can be computed for some of the agents alone."""
        return frozenset(name for name, dims in self.found.items() if {*dims} - {-1} == {self.hints.get(name)})

    # -- ops and expressions -----------------------------------------------------------------------------------------

    def call(self, node: Call, out: Any, kwargs: dict[str, Any], buffer_dim: int | None,
             probe: Callable[[tuple], Any] | None, args: tuple) -> None:
        """`buffer_dim`: of a buffer, the dimension on which environments lie in what it gives. `probe`: what the op
        would make of other arguments."""
        if not self.count:
            return
        if buffer_dim is not None:
            self.buffer(node, out, kwargs, buffer_dim)
        elif (node.component, node.method) == ("env", "step"):
            self.note(node.out, [1 if path[0].name in BY_AGENT else -1 for path, _ in _flat(out)])
        elif node.component in ("env", "actor"):
            self.note(node.out, [1] * len(jax.tree.leaves(out)))
        elif probe is not None:
            self.note(node.out, self.grown(out, lambda: probe(tuple(map(self.widened, node.args, args)))))

    def buffer(self, node: Call, out: Any, kwargs: dict[str, Any], dim: int) -> None:
        """What goes in by a name comes out by it."""
        if node.method == "insert":
            named = {field: self.tree(self.of(name), kwargs[field]) for field, name in node.kwargs}
            self.items[node.component] = {jax.tree_util.keystr(path): at for path, at in _flat(Record(**named))}
        elif node.method == "sample":
            held = self.items.get(node.component, {})
            places = [(held.get(jax.tree_util.keystr(path), -1), leaf) for path, leaf in _flat(out)]
            self.note(node.out, [at + dim if at >= 0 and leaf.shape[at + dim:at + dim + 1] == (self.count,) else -1
                                 for at, leaf in places])

    def pure(self, node: Pure, out: Any, inputs: dict[str, Any], evaluate: Callable[[dict], Any]) -> None:
        dims = {dim for _, name in node.inputs for dim in self.of(name)} - {-1}
        if not self.count or not dims:
            return
        wide = {local: self.widened(name, inputs[local]) for local, name in node.inputs}
        grown = self.grown(out, lambda: evaluate(wide))
        if grown is None and len(dims) == 1 and elementwise(node.expr):
            # It holds an array with a row per agent, and takes no more of them.
            grown = self.placed(out, dims.pop())
        self.note(node.out, grown)

    def widened(self, name: str, tree: Any) -> Any:
        """The shapes of a name if there were one agent more."""
        leaves, form = jax.tree.flatten(tree)
        dims = self.of(name) or (-1,) * len(leaves)
        return jax.tree.unflatten(form, [
            leaf if dim < 0 else
            jax.ShapeDtypeStruct((*leaf.shape[:dim], self.count + 1, *leaf.shape[dim + 1:]), leaf.dtype)
            for leaf, dim in zip(leaves, dims, strict=True)])

    def grown(self, out: Any, probe: Callable[[], Any]) -> list[int] | None:
        """The first dimension of each leaf that follows the number of agents; None if that number cannot change."""
        try:
            other = probe()
        except Exception:  # the user's code, on shapes that are not the environment's: it may say anything
            return None
        if jax.tree.structure(out) != jax.tree.structure(other):
            return None

        def dim(leaf: Any, wider: Any) -> int:
            pairs = list(zip(np.shape(leaf), np.shape(wider), strict=False))
            return next((at for at, pair in enumerate(pairs) if pair == (self.count, self.count + 1)), -1)

        return [dim(*pair) for pair in zip(jax.tree.leaves(out), jax.tree.leaves(other), strict=True)]

    def placed(self, tree: Any, dim: int) -> list[int]:
        return [dim if np.shape(leaf)[dim:dim + 1] == (self.count,) else -1 for leaf in jax.tree.leaves(tree)]

    def note(self, name: str | None, dims: list[int] | LeafDims | None) -> None:
        if name and dims and any(dim >= 0 for dim in dims):
            self.found[name] = tuple(dims)
        elif name:
            self.found.pop(name, None)

    def tree(self, dims: LeafDims, like: Any) -> Any:
        leaves, form = jax.tree.flatten(like)
        return jax.tree.unflatten(form, dims or [-1] * len(leaves))

    # -- control flow ------------------------------------------------------------------------------------------------

    def enter(self, carries: tuple[Carry, ...], names: Mapping[str, Any]) -> None:
        """Before a loop's body: what is handed on decides, and an initial whole value can be divided."""
        for carry in carries:
            if self.count and carry.phi and carry.init and not is_resource(carry.phi):
                hint, init = self.hints.get(carry.phi), names[carry.init]
                dims = self.of(carry.init) if hint is None else self.placed(init, hint)
                # Zeros of the right shape are likely where something is kept for each agent; `leave` will see.
                likely = [1 if np.shape(leaf)[:2] == (self.num_envs, self.count) else -1
                          for leaf in jax.tree.leaves(init)]
                self.note(carry.phi, () if carry.phi in self.whole else dims or likely)

    def leave(self, carries: tuple[Carry, ...], known: Callable[[str], bool]) -> bool:
        """After it: False if it has to be gone through again, as what is handed on is not divided as was thought."""
        agreed = True
        for carry in carries:
            if not self.count or is_resource(carry.out):
                continue
            if carry.phi and carry.init and carry.phi not in self.whole and known(carry.next):
                phi, init = self.of(carry.phi), self.of(carry.init)
                fits = not init or not phi or all(a in (-1, b) for a, b in zip(init, phi, strict=True))
                if phi != self.of(carry.next) or not fits:
                    self.whole.add(carry.phi)
                    agreed = agreed and not phi  # of one that was whole already, nothing that was made of it changes
                    self.note(carry.phi, ())
            self.note(carry.out, self.of(carry.phi or carry.next))
        return agreed

    def merge(self, merges: tuple[Merge, ...]) -> None:
        for merge in merges:
            if self.count and not is_resource(merge.out):
                then, orelse = self.of(merge.then), self.of(merge.orelse)
                self.note(merge.out, then if then == orelse else ())


def phis(node: Node) -> tuple[str, ...]:
    return tuple(carry.phi for carry in node.carries if carry.phi) if isinstance(node, (For, While)) else ()


def _flat(tree: Any) -> list[tuple[Any, Any]]:
    return jax.tree_util.tree_flatten_with_path(tree)[0]


def check_agent_shards(config: Config, env: Env) -> None:
    """Refuses a number of agent shards that the environment's agents cannot be divided into."""
    agents, shards = len(env.spec.agents), config.agent_shards
    if shards == 1:
        return
    if not agents:
        raise UsageError(
            f"{env.spec.id} cannot be divided into {shards} agent shards.",
            why="Each has some of the agents, and this environment has one.",
            instead="Leave out --agent-shards, or use an environment with several agents, like --env simple_spread.")
    if agents % shards:
        raise UsageError(
            f"{agents} agents cannot be divided into {shards} agent shards.",
            why="All agent shards have the same number of agents, so that they run the same program.",
            instead=f"Use --agent-shards with a divisor of {agents}.")
    if config.learner_shards > 1:
        raise UsageError(
            f"{shards} agent shards and {config.learner_shards} learner shards cannot be had at once.",
            why="Learners of agent shards learn apart, and those of learner shards agree on every gradient.",
            instead="Leave out --agent-shards or --learner-shards.")
