"""Trees on disk."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from msrl.api import LearnerState, Record
from msrl.errors import UsageError
from msrl.runtime import weights


def test_any_tree_comes_back_in_its_own_form(tmp_path):
    empty = np.zeros((0, 2), np.float32)
    tree = {"state": LearnerState({"a/b.c": jnp.arange(6.0).reshape(2, 3)}, (jnp.int32(3), empty)),
            "record": Record(flag=np.array(True), small=jnp.ones(2, jnp.bfloat16)), "key": jax.random.key(7)}
    weights.save(tmp_path / "w", tree)
    back = weights.load(tmp_path / "w", jax.eval_shape(lambda: tree))
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    for found, wanted in zip(jax.tree.leaves(back), jax.tree.leaves(tree), strict=True):
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    assert jax.random.key_data(back["key"]).tolist() == jax.random.key_data(tree["key"]).tolist()
    np.testing.assert_array_equal(back["state"].params["a/b.c"], tree["state"].params["a/b.c"])
    assert back["record"].flag and int(back["state"].opt[0]) == 3


@pytest.mark.parametrize("like, why", [
    ({"w": np.zeros((3, 2), np.float32)}, "w is float32[2, 3] there and float32[3, 2] here."),
    ({"v": {"x": np.zeros(2, np.int32)}}, "v.x is nothing there and int32[2] here."),
])
def test_what_does_not_fit_is_refused(tmp_path, like, why):
    weights.save(tmp_path / "w", {"w": np.zeros((2, 3), np.float32)})
    with pytest.raises(UsageError) as caught:
        weights.load(tmp_path / "w", like)
    assert str(caught.value) == f"""\
The weights in {tmp_path / 'w'} do not fit.
{why}
Use the algorithm's source, the settings and the spaces that the run was made with."""
