"""Trees laid end to end in few arrays, and back."""

import jax
import jax.numpy as jnp
import numpy as np

from msrl.engines.laid import SMALL, lay, lift


def test_comes_back_as_it_was():
    tree = {"b": (jnp.arange(6.0).reshape(2, 3), jnp.float32(7)), "n": [jnp.arange(3), jnp.ones((0, 2))],
            "flag": jnp.array([True, False]), "key": jax.random.split(jax.random.key(3)), "large": jnp.ones(SMALL + 1)}
    laid = jax.jit(lay)(tree)
    assert {name: each.shape for name, each in laid.vectors.items()} == {"float32": (7,), "int32": (3,), "bool": (2,)}
    assert len(laid.others) == 2  # the key and the large one
    found = jax.jit(lift)(laid)
    assert jax.tree.structure(found) == jax.tree.structure(tree)
    for one, two in zip(jax.tree.leaves(found), jax.tree.leaves(tree), strict=True):
        assert one.dtype == two.dtype and one.shape == two.shape
        if one.dtype == tree["key"].dtype:
            one, two = jax.random.key_data(one), jax.random.key_data(two)
        np.testing.assert_array_equal(one, two)


def test_two_of_one_form_are_one_kind_of_tree():
    one, two = lay({"a": jnp.ones(3)}), lay({"a": jnp.zeros(3)})
    assert jax.tree.structure(one) == jax.tree.structure(two)
    assert jax.tree.structure(one) != jax.tree.structure(lay({"a": jnp.ones((3, 1))}))
