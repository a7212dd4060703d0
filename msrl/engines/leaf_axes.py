"""Which leaves of a value follow an axis (environments, samples or agents), and on which dimension.

In: what ops and expressions make, as `find_shapes` comes by it. Out: for every name the dimension of each of its
leaves; -1 where there is none, as of agents in `step.done`. Environments, actors and buffers declare it. Of anything
else it is found by asking for the shapes once more with a longer axis, and looking at what has grown: the size of a
dimension by itself says nothing, as a table may have as many rows as there are environments. Where that cannot be found
out, a name is in `unsure`. It always holds that a loop's name and what a pass hands on agree.
"""

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from msrl.engines.scopes import Scopes
from msrl.ir.axes import elementwise, ellipsis_indices, owners
from msrl.ir.graph import Call, Carry, For, Merge, Node, Pure, While, definitions, is_resource, walk
from msrl.ir.placed import same_form

LeafDims = tuple[int, ...]  # in the order of the tree's leaves; () if none follows the axis
Probe = Callable[[tuple], Any]  # the shapes that an op would make of other arguments
Evaluate = Callable[[Pure, dict[str, Any], Scopes], Any]  # the shapes that an expression makes of inputs


class LeafAxis(ABC):
    """One for all that share a graph."""

    title: str  # what it has an entry for each of
    usual: int  # the dimension on which it is, as a rule
    instead: str  # how to write a value of which it can be told whether it has

    def __init__(self, active: bool, hints: Mapping[str, int], scopes: Scopes):
        """`active`: is anything divided on this axis? `hints`: what the graph alone tells. `scopes`: of expressions."""
        self.active, self.hints, self.scopes = active, hints, scopes
        self.begin(())

    def longer_scopes(self) -> Scopes | None:
        """In which expressions see a longer axis, if they can see it otherwise than by their inputs."""
        return None

    @abstractmethod
    def longer(self, size: int) -> int:
        """The size of a dimension that follows the axis, if that were longer."""

    @abstractmethod
    def possible(self, size: int) -> bool:
        """Could a dimension of this size follow it?"""

    @abstractmethod
    def declared(self, node: Call, out: Any) -> list[int] | None:
        """The dimensions of what an op makes, if it declares them."""

    def start(self, carries: tuple[Carry, ...]) -> None:
        """Before a loop is gone through for the first time."""
        for carry in carries:
            self._tried.pop(carry.phi or "", None)

    def reject(self, carries: tuple[Carry, ...], names: Mapping[str, Any], given: tuple[str, ...]) -> bool:
        """Something in its body, which was `given` these names, did not work: may some of the loop's names be divided
        after all, that do not begin so?"""
        whole = [carry for carry in carries if self.active and carry.phi and carry.init
                 and not is_resource(carry.phi) and not self.of(carry.phi) and carry.phi not in self.unsure]
        again = False
        for carry in [carry for carry in whole if carry.phi in given] or whole:
            assert carry.phi and carry.init
            self._tried.setdefault(carry.phi, []).append(())
            again = bool(self.candidates(carry, names[carry.init])) or again
        return again

    def begin(self, nodes: tuple[Node, ...]) -> None:
        """Forgets what was found; `nodes` are the graph's."""
        self.known = {name for node in walk(nodes) for name in (*definitions(node), *phis(node))}
        self.found: dict[str, LeafDims] = {}
        self.unsure: set[str] = set()
        self.mixed: set[str] = set()  # expressions that cannot be computed for a part of the axis alone
        self._tried: dict[str, list[LeafDims]] = {}  # of loops' names, what their ends did not agree with

    def of(self, name: str) -> LeafDims:
        return self.found.get(self._known(name), ())

    def is_unsure(self, name: str) -> bool:
        return self._known(name) in self.unsure

    def _known(self, name: str) -> str:
        return name if name in self.known else same_form(name)

    # -- ops and expressions -----------------------------------------------------------------------------------------

    def call(self, node: Call, out: Any, args: tuple, probe: Probe | None) -> None:
        """`probe`: of an op that declares nothing, and may be asked."""
        if not self.active or not node.out:
            return
        dims = self.declared(node, out)
        if dims is not None:
            self.note(node.out, dims, out)
        elif probe is not None:
            self.note(node.out, first_of(self.grown(out, node.args, args, probe)), out)

    def pure(self, node: Pure, out: Any, inputs: dict[str, Any], evaluate: Evaluate) -> None:
        if not self.active:
            return
        names, values = tuple(value for _, value in node.inputs), tuple(inputs.values())
        longer = self.longer_scopes() if mentions_self(node.expr) else None
        if longer is None and not any(self.of(name) or self.is_unsure(name) for name in names):
            self.note(node.out, ())
            return
        self.mixed.discard(node.out)
        found = self.grown(out, names, values, lambda given: evaluate(
            node, dict(zip(inputs, given, strict=True)), longer or self.scopes))
        if found is None or any(len(dims) > 1 for dims in found) or (
                elementwise(node.expr) and not self.keeps_places(node, inputs, evaluate)):
            self.mixed.add(node.out)
        # Where it fails, it may hold an array with an entry for each, and take no more of them.
        self.note(node.out, first_of(found) if found is not None else self.aligned(node, out), out)

    def lengthened(self, name: str, tree: Any) -> Any:
        """The shapes of a name if the axis were longer."""
        leaves, form = jax.tree.flatten(tree)
        dims = self.of(name) or (-1,) * len(leaves)
        return jax.tree.unflatten(form, [
            leaf if dim < 0 else jax.ShapeDtypeStruct(
                (*leaf.shape[:dim], self.longer(leaf.shape[dim]), *leaf.shape[dim + 1:]), leaf.dtype)
            for leaf, dim in zip(leaves, dims, strict=True)])

    def grown(self, out: Any, names: tuple[str, ...], values: tuple, probe: Probe) -> list[list[int]] | None:
        """The dimensions of each leaf that follow the axis; None if that cannot be told."""
        if any(self.is_unsure(name) for name in names):
            return None
        try:
            other = probe(tuple(map(self.lengthened, names, values)))
        except Exception:  # the user's code, on shapes that are not those of the run: it may say anything
            return None
        if jax.tree.structure(out) != jax.tree.structure(other):
            return None
        return list(map(self.growing, jax.tree.leaves(out), jax.tree.leaves(other)))

    def growing(self, leaf: Any, longer: Any) -> list[int]:
        pairs = zip(np.shape(leaf), np.shape(longer), strict=False)
        return [at for at, (size, more) in enumerate(pairs)
                if size != more and self.possible(size) and more == self.longer(size)]

    def aligned(self, node: Pure, out: Any) -> list[int] | None:
        """Of an elementwise expression: where its inputs have the axis, so has what it makes."""
        names = [value for _, value in node.inputs]
        dims = {dim for name in names for dim in self.of(name)} - {-1}
        if len(dims) != 1 or not elementwise(node.expr) or any(map(self.is_unsure, names)):
            return None
        (at,) = dims
        return [at if any(map(self.possible, np.shape(leaf)[at:at + 1])) else -1 for leaf in jax.tree.leaves(out)]

    def keeps_places(self, node: Pure, inputs: dict[str, Any], evaluate: Evaluate) -> bool:
        """Of an expression that is elementwise by its looks: are its functions those of NumPy and JAX, and indices like
        `x[..., 0]` about other dimensions than the first?"""
        for owner in owners(node.expr):
            if not names_in(owner) & {*inputs}:
                module = self.scopes.value(owner, node.scope)
                if not any(module is known for known in (np, jnp, jax.lax)):
                    return False
        return all(np.ndim(leaf) > count for value, count in ellipsis_indices(node.expr)
                   for leaf in jax.tree.leaves(evaluate(replace(node, expr=value), inputs, self.scopes)))

    def note(self, name: str, dims: list[int] | LeafDims | None, tree: Any = None) -> None:
        """None: they are not known."""
        self.unsure.discard(name)
        self.found.pop(name, None)
        if dims is None:
            if any(self.possible(size) for leaf in jax.tree.leaves(tree) for size in np.shape(leaf)):
                self.unsure.add(name)
        elif any(dim >= 0 for dim in dims):
            self.found[name] = tuple(dims)

    def tree(self, dims: LeafDims, like: Any) -> Any:
        leaves, form = jax.tree.flatten(like)
        return jax.tree.unflatten(form, dims or [-1] * len(leaves))

    # -- control flow ------------------------------------------------------------------------------------------------

    def enter(self, carries: tuple[Carry, ...], names: Mapping[str, Any]) -> None:
        """Before a loop's body. `names`: the shapes of what the loop begins with."""
        for carry in carries if self.active else ():
            if carry.phi and carry.init and not is_resource(carry.phi):
                candidates = self.candidates(carry, names[carry.init])
                self.note(carry.phi, candidates[0] if candidates else None, names[carry.init])

    def candidates(self, carry: Carry, init: Any) -> list[LeafDims]:
        """What a loop's name may be, the likeliest first: as it begins, as the graph tells, as what is handed on, and,
        where none of these will do, by size: the initial value may have been written down as an array of zeros."""
        assert carry.init and carry.phi
        hint, leaves = self.hints.get(carry.phi), jax.tree.leaves(init)
        found = [self.of(carry.init)] if self.of(carry.init) or hint is None else []
        if hint is not None:
            found.append(tuple(hint if np.ndim(leaf) > hint else -1 for leaf in leaves))
        tried = self._tried.get(carry.phi, [])
        if tried:
            found.append(self.of(carry.next))
            by_size = [tuple(at if any(map(self.possible, np.shape(leaf)[at:at + 1])) else -1 for leaf in leaves)
                       for at in range(max(map(np.ndim, leaves), default=0))]
            found += sorted((dims for dims in by_size if max(dims) >= 0), key=lambda dims: self.usual not in dims)
        if self.is_unsure(carry.init):
            found = []
        return [dims for dims in found if dims not in tried
                and all(dim < 0 or any(map(self.possible, np.shape(leaf)[dim:dim + 1]))
                        for leaf, dim in zip(leaves, dims, strict=False))]

    def leave(self, carries: tuple[Carry, ...], shape: Callable[[str], Any]) -> bool:
        """After it: False if it has to be gone through again, as what is handed on is not divided as was thought.
        `shape`: of a name, or None if it is not known yet."""
        agreed = True
        for carry in carries:
            if not self.active or is_resource(carry.out):
                continue
            following = shape(carry.next)
            if carry.phi and carry.init and carry.phi not in self.unsure and following is not None:
                phi, init = self.of(carry.phi), self.of(carry.init)
                fits = not init or not phi or all(a in (-1, b) for a, b in zip(init, phi, strict=False))
                tried = self._tried.setdefault(carry.phi, [])
                if (carry.next in self.unsure or phi != self.of(carry.next) or not fits) and phi not in tried:
                    tried.append(phi)
                    agreed = False
            if carry.phi in self.unsure or carry.next in self.unsure:
                self.note(carry.out, None, following)
            else:
                self.note(carry.out, self.of(carry.phi or carry.next), following)
            self.mixed |= {carry.out} if carry.next in self.mixed else set()
        return agreed

    def merge(self, merges: tuple[Merge, ...], shape: Callable[[str], Any]) -> None:
        for merge in merges:
            if self.active and not is_resource(merge.out):
                then, orelse = self.of(merge.then), self.of(merge.orelse)
                sure = then == orelse and not {merge.then, merge.orelse} & self.unsure
                self.note(merge.out, then if sure else None, shape(merge.out))
                self.mixed |= {merge.out} if {merge.then, merge.orelse} & self.mixed else set()


def first_of(found: list[list[int]] | None) -> list[int] | None:
    """A leaf that follows the axis twice, like all pairs of environments, is divided on the first dimension."""
    return None if found is None else [dims[0] if dims else -1 for dims in found]


def mentions_self(expr: str) -> bool:
    return "self" in names_in(expr)


@cache
def names_in(expr: str) -> frozenset[str]:
    return frozenset(each.id for each in ast.walk(ast.parse(expr, mode="eval")) if isinstance(each, ast.Name))


def phis(node: Node) -> tuple[str, ...]:
    return tuple(carry.phi for carry in node.carries if carry.phi) if isinstance(node, (For, While)) else ()
