"""Where several learners come to agree: the mean of a value over all of them.

`agree` is the identity for one learner and a collective where learners are batched or spread over a mesh. Otherwise it
leaves a marker, a JAX primitive, at which a learner's program is cut: whoever runs the parts gathers what each learner
has, and hands the mean back.
"""

import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

LEARNERS = "learners"  # a batched axis: several learners in one program
DEVICES = "devices"  # a mesh axis: one program on several devices

agree_p = Primitive("agree")
agree_p.multiple_results = True
agree_p.def_impl(lambda *leaves: list(leaves))
agree_p.def_abstract_eval(lambda *leaves: list(leaves))
mlir.register_lowering(agree_p, lambda context, *leaves: list(leaves))
# Any other axis (several seeds) is of no concern to it.
batching.primitive_batchers[agree_p] = lambda leaves, dims: (agree_p.bind(*leaves), dims)


def agree(tree: Any) -> Any:
    """The mean over all learners, the same for each of them."""
    axes = [axis for axis in (LEARNERS, DEVICES) if in_scope(axis)]
    for axis in axes:
        tree = together(tree) if axis == DEVICES else jax.lax.pmean(tree, axis)
    leaves, form = jax.tree.flatten(tree)
    return tree if axes or not leaves else jax.tree.unflatten(form, agree_p.bind(*leaves))


def together(tree: Any) -> Any:
    """The mean over devices, by one collective for each dtype: it costs a meeting, however little it carries."""
    leaves, form = jax.tree.flatten(tree)
    found = list(leaves)
    for dtype in dict.fromkeys(leaf.dtype for leaf in leaves):
        mine = [number for number, leaf in enumerate(leaves) if leaf.dtype == dtype]
        whole = jax.lax.pmean(jnp.concatenate([leaves[number].ravel() for number in mine]), DEVICES)
        ends = np.cumsum([leaves[number].size for number in mine])[:-1]
        for number, part in zip(mine, jnp.split(whole, ends), strict=True):
            found[number] = part.reshape(leaves[number].shape)
    return jax.tree.unflatten(form, found)


def apply_gradients(optimiser: optax.GradientTransformation, params: Any, opt: Any, grads: Any) -> tuple[Any, Any]:
    """(params, opt) after one step on the gradients that all learners agree on. A program of its own within a
    learner's, known by its name: what keeps parameters in one place for all learners runs it there."""
    update = optimiser.update
    try:
        program = _PROGRAMS.get(update) or _PROGRAMS.setdefault(update, _make_program(weakref.ref(update)))
    except TypeError:  # it has no hash or no weak references, so it is traced every time
        program = _make_program(lambda: update)
    return program(params, opt, grads)


# By an optimiser's `update`, which none of them keeps alive. An optimiser that was a static argument of one `jit` for
# all would stay in JAX's caches, with all that was traced for it, and so would those of every earlier run.
_PROGRAMS: "weakref.WeakKeyDictionary[Callable[..., Any], Callable[..., Any]]" = weakref.WeakKeyDictionary()


def _make_program(find_update: Callable[[], Any]) -> Callable[..., Any]:
    def apply_gradients(params: Any, opt: Any, grads: Any) -> tuple[Any, Any]:
        updates, opt = find_update()(agree(grads), opt, params)
        return optax.apply_updates(params, updates), opt

    return jax.jit(apply_gradients)


def in_scope(axis: str) -> bool:
    """Is this traced along the axis?"""
    try:
        jax.lax.axis_index(axis)
    except NameError:
        return False
    return True
