"""A sum tree: numbers at the leaves, sums above, so that a leaf is drawn in proportion to its number in log2 steps.

In: leaf numbers (float32, 0 or positive and not subnormal, which XLA takes for 0 and NumPy does not) and leaf indices.
Out: the tree, or leaves that were found. Always: the tree is one array (2 * width,) with the root at 1, the children of
node i at 2i and 2i + 1, leaf k at width + k; every inner node is exactly the float32 sum of its two children; entry 0
is unused. Device and host add the same pairs, and so agree to the bit.

Levels are `fori_loop`s of one gather and one scatter: if they are unrolled, or written by slices, XLA goes through the
whole tree in every step of a surrounding loop. The functions are compiled by themselves for eager callers, who would
otherwise compile these loops anew in every call.
"""

import jax
import jax.numpy as jnp
import numpy as np


def width(capacity: int) -> int:
    """The number of leaves: the power of two that holds `capacity`."""
    return 1 << (capacity - 1).bit_length()


def depth(tree: jax.Array | np.ndarray) -> int:
    return (tree.shape[0] // 2).bit_length() - 1


@jax.jit
def update(tree: jax.Array, index: jax.Array, value: jax.Array) -> jax.Array:
    """Sets leaves `index` (K,) to `value` (K,). Of values for the same leaf the largest counts."""
    inside = "promise_in_bounds"
    node = index + tree.shape[0] // 2
    # Clear, then take the maximum: the result does not depend on the order in which a device scatters duplicates.
    tree = tree.at[node].set(0, mode=inside).at[node].max(value, mode=inside)

    def add_up(_, carry):
        tree, node = carry
        node = node >> 1
        pair = tree.reshape(-1, 2).at[node].get(mode=inside)  # (K, 2)
        return tree.at[node].set(pair[:, 0] + pair[:, 1], mode=inside), node  # duplicates write the same sum

    return jax.lax.fori_loop(0, depth(tree), add_up, (tree, node))[0]


@jax.jit
def find(tree: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(K,) int32 and (K,) float32: the leaves in whose share of the running sum each `target` (K,) falls, and what
    these hold. A leaf of 0 is never found, whatever the rounding, unless all are."""
    pairs = tree.reshape(-1, 2)  # (width, 2): the children of node i

    def descend(_, carry):
        node, target, _ = carry
        pair = pairs.at[node].get(mode="promise_in_bounds")
        left, right = pair[:, 0], pair[:, 1]
        go_right = (target >= left) & (right > 0)
        node = 2 * node + go_right.astype(jnp.int32)
        return node, jnp.where(go_right, target - left, target), jnp.where(go_right, right, left)

    start = jnp.ones(target.shape, jnp.int32), target, jnp.full(target.shape, tree[1])
    node, _, value = jax.lax.fori_loop(0, depth(tree), descend, start)
    return node - tree.shape[0] // 2, value


def host_update(tree: np.ndarray, index: np.ndarray, value: np.ndarray) -> None:
    """`update`, in place."""
    node = index + tree.shape[0] // 2
    tree[node] = 0
    np.maximum.at(tree, node, value)
    for _ in range(depth(tree)):
        node = node >> 1
        tree[node] = tree[2 * node] + tree[2 * node + 1]


def host_find(tree: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`find`, on the host."""
    node = np.ones(target.shape, np.int32)
    for _ in range(depth(tree)):
        left, right = tree[2 * node], tree[2 * node + 1]
        go_right = (target >= left) & (right > 0)
        node, target = 2 * node + go_right.astype(np.int32), np.where(go_right, target - left, target)
    return node - tree.shape[0] // 2, tree[node]
