"""Which values of a learn are not finite: what goes in, what it returns, and the parameters that it makes.

In: the arguments of a learn, its value and the learner's new state. Out: a flag for each array of floats among them,
in the order of `names_of`. It always holds that a flag is set if and only if its array has an infinity or a NaN.
Moments of the optimiser are not looked at: they are most of the numbers, and what spoils them spoils the parameters.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from msrl.api import Learner
from msrl.errors import NonFiniteError

MODES = ("stop", "skip", "rollback", "ignore")


@dataclass(frozen=True)
class Fault:
    """A learn that cannot be kept, as plain data: all that it takes to do it again."""

    site: str  # the learner's state that it makes, by its name in the graph
    update: int  # which learn it is, from 1
    names: tuple[str, ...]  # of the values that are not finite
    state: Any  # of the learner before the first of `batches`
    batches: list[tuple]  # arguments of the learns since then, the last one's included
    seed: int = 0  # which of several
    shards: tuple[int, int] = (0, 1)  # those that the batches are of: first and last but one
    agent_shards: tuple[int, int] = (0, 1)
    strict: bool = False
    env_steps: int = 0  # that were made before it, as far as is known


def floats(tree: Any) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]


def params_of(state: Any) -> Any:
    """What training is for, of one learner or of those of several agent shards."""
    return [each.params for each in state] if type(state) is tuple else state.params


def not_finite(args: tuple, out: Any, state: Any) -> jax.Array:
    """(n,) flags. A sum of zeros is 0 unless one of the factors is none: of all exact tests it compiles to the
    fastest code on CPUs. All sums are compared at once, as every kernel takes time to compile."""
    params = params_of(state)
    sums = [_zero(leaf) for leaf in floats((args, out))]
    if isinstance(params, list):  # agent shards one by one; elsewhere they are stacked, and have the same names
        sums += [sum(leaves) for leaves in zip(*(map(_zero, floats(each)) for each in params), strict=True)]
    else:
        sums += [_zero(leaf) for leaf in floats(params)]
    return jnp.stack(sums) != 0 if sums else jnp.zeros(0, bool)


def _zero(leaf: Any) -> jax.Array:
    """0, or NaN if one of its numbers is not finite."""
    return jnp.sum(jnp.asarray(leaf) * 0).astype(jnp.float32)


flags_of: Callable[..., jax.Array] = jax.jit(not_finite)


def names_of(learner: Learner, args: tuple, out: Any, state: Any) -> tuple[str, ...]:
    """What the flags are of: `batch.reward`, `metrics.loss`, `params/output/kernel`. Arguments are called as the
    learner's `learn` calls them."""
    wanted = list(inspect.signature(learner.learn).parameters.values())[2:]  # after state and key
    titles = [each.name for each in wanted if each.kind is not each.VAR_POSITIONAL]
    titles += [f"argument {number}" for number in range(len(titles), len(args))]
    params = params_of(state)
    named = [*((title, arg, ".") for title, arg in zip(titles, args, strict=False)), ("metrics", out, "."),
             ("params", params[0] if isinstance(params, list) else params, "/")]
    return tuple(joint.join([title, *_parts(path)]) for title, tree, joint in named
                 for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
                 if jnp.issubdtype(leaf.dtype, jnp.floating))


def _parts(path: tuple) -> list[str]:
    return [jax.tree_util.keystr((entry,), simple=True) for entry in path]


def mended(out: Any) -> Any:
    """What a learn that is skipped returns to the loop: 0 in place of what is not finite, as priorities or running
    means that the loop keeps would be spoilt for good."""

    def leaf(x: Any) -> Any:
        x = jnp.asarray(x)
        return jnp.where(jnp.isfinite(x), x, 0) if jnp.issubdtype(x.dtype, jnp.floating) else x

    return jax.tree.map(leaf, out)


def host(tree: Any) -> Any:
    """A copy that nothing overwrites."""

    def leaf(x: Any) -> Any:
        key = isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
        return jnp.copy(x) if key else np.array(x)

    return jax.tree.map(leaf, tree)


def error_of(fault: Fault) -> NonFiniteError:
    """Without the place, which whoever knows the line adds."""
    shown = ", ".join(fault.names[:4]) + (f" and {len(fault.names) - 4} more" if len(fault.names) > 4 else "")
    error = NonFiniteError(f"Update {fault.update} is not finite: {shown}.", docs="docs/non-finite.md",
                           why="What it would have made of the learner is not kept.")
    error.fault = fault
    return error
