"""Checkpoints as folders: whole or not there; the newest and the best are kept; what is damaged is refused."""

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msrl.errors import RunError, UsageError
from msrl.runtime import checkpoints
from msrl.runtime.checkpoints import Checkpoint, Checkpoints, listed, load, newest, read, write_checkpoint
from msrl.runtime.packing import pack


def point(update: int, score: float | None = None) -> Checkpoint:
    tree = {"a": jnp.arange(3.0), "none": np.zeros((0, 2)), "key": jax.random.key(update), "n": 7}
    parts = {"$learner.2": {"all": pack(tree, "it")}, "#env.step.1": {"all": pack(update, "it")}}
    return Checkpoint("i.1", update, parts, {"env_steps": update, "score": score})


def test_what_is_read_is_what_was_written(tmp_path):
    write_checkpoint(tmp_path / "0-1", point(1))
    found = read(tmp_path / "0-1")
    assert (found.loop, found.update, found.about) == ("i.1", 1, {"env_steps": 1, "score": None})
    for name, parts in point(1).parts.items():
        for path, leaf in parts["all"].items():
            there = found.parts[name]["all"][path]
            assert (there.kind, there.array.dtype, there.array.shape) == (leaf.kind, leaf.array.dtype, leaf.array.shape)
            np.testing.assert_array_equal(there.array, leaf.array)


def test_the_newest_and_the_best_are_kept(tmp_path):
    kept = Checkpoints(tmp_path, keep=2)
    for update, score in enumerate([1.0, 9.0, 3.0, 4.0, None], 1):
        kept.save(0, point(update, score))
    kept.save(1, point(1, 0.0))  # another seed's are its own
    kept.close()
    assert [path.name for path in listed(tmp_path)] == ["0-00000002", "0-00000004", "0-00000005", "1-00000001"]


def test_one_of_the_same_name_is_replaced(tmp_path):
    for score in (1.0, 2.0):
        write_checkpoint(tmp_path / "checkpoints" / "-7-00000001", point(1, score))  # seeds may be negative
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["-7-00000001"]
    assert newest(tmp_path, -7) == tmp_path / "checkpoints" / "-7-00000001"
    assert read(tmp_path / "checkpoints" / "-7-00000001").about["score"] == 2.0


def damage_manifest(path: Path) -> None:
    (path / "manifest.json").write_text((path / "manifest.json").read_text()[:-40])


def damage_array(path: Path) -> None:
    files = [file for file in (path / "state").rglob("*") if file.is_file()]
    biggest = max(files, key=lambda file: file.stat().st_size)
    content = bytearray(biggest.read_bytes())
    content[len(content) // 2] ^= 0xFF
    biggest.write_bytes(bytes(content))


def lose_arrays(path: Path) -> None:
    shutil.rmtree(path / "state")


def change_a_number(path: Path) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["parts"]["#env.step.1"]["all"]["sha256"] = "0" * 64
    del manifest["sha256"]
    (path / "manifest.json").write_text(json.dumps({**manifest, "sha256": checkpoints.seal(manifest)}))


def change_the_loop(path: Path) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, "loop": "j.1"}))


def from_the_future(path: Path) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, "format": 99}))


def foreign(path: Path) -> None:
    (path / "manifest.json").write_text("[1, 2]")


@pytest.mark.parametrize(("harm", "why"), [
    (damage_manifest, "Its manifest.json is missing, or is not one that a run writes."),
    (foreign, "Its manifest.json is missing, or is not one that a run writes."),
    (from_the_future, "It has the format 99, and this version of MSRL reads 1."),
    (change_a_number, "It is damaged: ValueError: #env.step.1 does not have its checksum"),
    (change_the_loop, "It is damaged: its manifest.json does not have its checksum."),
    (damage_array, "It is damaged: "), (lose_arrays, "It is damaged: ")])
def test_damage_is_told_and_the_newest_sound_one_offered(tmp_path, harm, why):
    for update in (1, 2, 3):
        write_checkpoint(tmp_path / "checkpoints" / f"0-{update:08d}", point(update))
    harm(tmp_path / "checkpoints" / "0-00000003")
    with pytest.raises(UsageError) as refused:
        load(tmp_path / "checkpoints" / "0-00000003")
    first, reason, *_, last = str(refused.value).splitlines()
    assert first == f"The checkpoint {tmp_path}/checkpoints/0-00000003 cannot be used."
    assert reason.startswith(why)
    assert last == f"Go on from the newest sound one, 0-00000002: msrl resume {tmp_path} --auto"
    assert newest(tmp_path) == tmp_path / "checkpoints" / "0-00000002"


def test_a_save_that_fails_harms_nothing(tmp_path, monkeypatch):
    kept = Checkpoints(tmp_path, keep=1)
    kept.save(0, point(1))
    kept.wait()

    def full(folder, arrays):
        folder.mkdir()
        (folder / "half").write_text("of it")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints.weights, "save_arrays", full)
        kept.save(0, point(2))
        with pytest.raises(RunError) as refused:
            kept.close()
    path = tmp_path / "checkpoints"
    assert str(refused.value) == (
        f"The checkpoint {path}/0-00000002 could not be written.\nNo space left on device.\n"
        f"Make room or give permission; the run can go on from {path}/0-00000001: msrl resume {tmp_path}")
    assert [file.name for file in path.iterdir()] == ["0-00000001"]
    assert read(path / "0-00000001").update == 1


def test_no_place_for_checkpoints(tmp_path):
    (tmp_path / "checkpoints").write_text("a file")
    kept = Checkpoints(tmp_path, keep=1)
    kept.save(0, point(1))
    with pytest.raises(RunError) as refused:
        kept.close()
    assert str(refused.value) == (f"The checkpoint {tmp_path}/checkpoints/0-00000001 could not be written.\n"
                                  "Not a directory.\nMake room, or give permission.")


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 255))
@settings(max_examples=40, deadline=None)
def test_any_change_of_a_byte_is_found(file, byte, change):
    """Of the manifest or of an array: never a traceback, never another checkpoint than the one that was written."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoints" / "0-00000001"
        write_checkpoint(path, point(1))
        files = sorted(file for file in path.rglob("*") if file.is_file() and file.stat().st_size)
        chosen = files[file % len(files)]
        content = bytearray(chosen.read_bytes())
        content[byte % len(content)] ^= change
        chosen.write_bytes(bytes(content))
        try:
            found = load(path)
        except UsageError:
            return
        assert (found.loop, found.update, found.about) == ("i.1", 1, {"env_steps": 1, "score": None})
        for name, parts in point(1).parts.items():
            assert checkpoints.checksum(found.parts[name]["all"]) == checkpoints.checksum(parts["all"])
