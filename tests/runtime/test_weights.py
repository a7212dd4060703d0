"""Trees on disk."""

import shutil
from pathlib import Path

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


def spoil(how: str, file: Path) -> None:
    content = file.read_bytes()
    match how:
        case "flipped":
            at = len(content) // 2
            file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1:])
        case "truncated":
            file.write_bytes(content[:len(content) // 2])
        case "emptied":
            file.write_bytes(b"")
        case "removed":
            file.unlink()
        case "a folder":
            file.unlink()
            file.mkdir()
        case "deep":
            file.write_text("[" * 100_000)


@pytest.mark.parametrize("how", ["flipped", "truncated", "emptied", "removed", "a folder", "deep"])
def test_no_damaged_file_is_read(tmp_path, how):
    tree = {"w": np.arange(6, dtype=np.float32).reshape(2, 3)}
    weights.save(tmp_path / "w", tree)
    files = sorted(file.relative_to(tmp_path) for file in (tmp_path / "w").rglob("*") if file.is_file())
    assert len(files) > 3
    for file in files:
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "w", copy / "w")
        spoil(how, copy / file)
        with pytest.raises(UsageError) as caught:
            weights.load(copy / "w", tree)
        assert str(caught.value).startswith(f"The weights in {copy / 'w'} cannot be used.\nThey are damaged: ")
        shutil.rmtree(copy)
    np.testing.assert_array_equal(weights.load(tmp_path / "w", tree)["w"], tree["w"])


def test_what_is_said_of_damage(tmp_path):
    weights.save(tmp_path / "w", {"w": np.zeros(2, np.float32)})
    (tmp_path / "w" / "more").write_text("")
    with pytest.raises(UsageError) as caught:
        weights.load(tmp_path / "w", {"w": np.zeros(2, np.float32)})
    assert str(caught.value) == f"""\
The weights in {tmp_path / 'w'} cannot be used.
They are damaged: more does not have its checksum.
Restore them from a copy, or train again."""
    (tmp_path / "w" / "manifest.json").unlink()
    with pytest.raises(UsageError, match=r"They are damaged: there is no manifest\.json with their checksums\."):
        weights.load(tmp_path / "w", {"w": np.zeros(2, np.float32)})
