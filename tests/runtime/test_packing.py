"""What is packed comes back to the bit and to the type."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from msrl.api import Handle
from msrl.errors import RunError, UsageError
from msrl.runtime.packing import pack, unpack


class Counter(Handle):
    def __init__(self, count=0):
        self.count = count

    def save(self):
        return {"count": np.array(self.count)}

    def restore(self, saved):
        self.count = int(saved["count"])


TREE = {"jax": jnp.float32([1, 2]), "numpy": np.arange(3, dtype=np.int8), "place": np.zeros((), np.int32),
        "scalar": np.float64(0.1), "key": jax.random.split(jax.random.key(3), 2), "int": 2**40, "float": 0.1,
        "bool": True, "nothing": None, "list": [jnp.bfloat16(1.5), ()]}


def test_everything_comes_back():
    found = unpack(TREE, pack(TREE, "it"), "it")
    assert jax.tree.structure(found) == jax.tree.structure(TREE)
    for one, two in zip(jax.tree.leaves(TREE), jax.tree.leaves(found), strict=True):
        assert isinstance(two, jax.Array) if isinstance(one, jax.Array) else type(one) is type(two)
        if isinstance(one, jax.Array) and jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, two = jax.random.key_data(one), jax.random.key_data(two)
        assert np.asarray(one).dtype == np.asarray(two).dtype
        np.testing.assert_array_equal(np.asarray(one), np.asarray(two))


@pytest.mark.parametrize(("was", "form"), [(jnp, np), (np, jnp)])
def test_an_array_is_of_the_forms_kind(was, form):
    for wrap in (lambda x: {"x": x}, lambda x: x):  # in a tree, and by itself
        found, = jax.tree.leaves(unpack(wrap(form.zeros(3)), pack(wrap(was.arange(3.0)), "it"), "it"))
        assert isinstance(found, np.ndarray) == (form is np)
        np.testing.assert_array_equal(found, np.arange(3.0))


def test_what_was_packed_stays_as_it_was():
    array = np.zeros(2)
    packed = pack(array, "it")
    array[:] = 1
    found = unpack(array, packed, "it")
    assert found.tolist() == [0, 0]
    found[:] = 2
    assert packed[""].array.tolist() == [0, 0]


def test_a_handle_is_restored_where_it_is():
    fresh = {"handle": Counter(), "x": 0}
    found = unpack(fresh, pack({"handle": Counter(5), "x": 3}, "it"), "it")
    assert found["handle"] is fresh["handle"]
    assert (found["handle"].count, found["x"]) == (5, 3)


def test_what_is_no_array_is_refused():
    with pytest.raises(RunError) as refused:
        pack({"x": object()}, "`$own`")
    assert str(refused.value) == (
        "`$own` cannot be saved.\nIt holds a object, which is no array.\n"
        "Keep arrays and numbers only, or make it a msrl.api.Handle, which says how to save it.")


@pytest.mark.parametrize(("form", "why"), [
    ({"a": jnp.zeros(2), "b": 0}, "It has no b."), ({}, "It has a a, which is not known here."),
    ({"a": jnp.zeros(3)}, "a has the shape [2] there, and [3] here.")])
def test_another_form_is_refused(form, why):
    with pytest.raises(UsageError) as refused:
        unpack(form, pack({"a": jnp.zeros(2)}, "it"), "`$it`")
    assert str(refused.value) == (f"`$it` in the checkpoint is not what it is here.\n{why}\n"
                                  "Use the algorithm's source, the settings and the environment of the run.")


def test_a_number_is_no_array():
    """NumPy makes a number of an array without dimensions as soon as it computes with it."""
    with pytest.raises(UsageError, match=r"a has the shape \[\] there, and \[3\] here\."):
        unpack({"a": np.zeros(3, np.int32)}, pack({"a": np.zeros((), np.int32) + 1}, "it"), "`$it`")
    assert unpack({"a": np.zeros((), np.int32)}, pack({"a": np.int32(4)}, "it"), "`$it`") == {"a": 4}
