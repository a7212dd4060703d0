"""A disk that fills up while a run trains: one message, the last checkpoint whole, and nobody who waits for ever."""

import json
import resource
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

import msrl
from msrl.errors import RunError
from msrl.jobs import prepare
from msrl.running import run
from msrl.runtime import checkpoints
from msrl.runtime.display import Display
from msrl.runtime.folder import RunFolder

# TensorStore's writes that nobody waits for any more say so to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
SMALL = dict(num_envs=2, rollout=2, hidden=(4,), total_steps=64, eval_episodes=1, strict=True)  # 16 updates


@contextmanager
def no_file_may_grow():
    """As root needs not be asked for."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def small_disk(tmp_path):
    """One of 512 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(place)], capture_output=True)
    if made.returncode:
        pytest.skip("only root can mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


class Filling(Display):
    """Fills the disk at an update, up to the last byte."""

    def __init__(self, disk: Path, at: int):
        self.disk, self.at, self.updates, self.lines = disk, at, 0, []

    def update(self, state):
        self.updates += 1
        if self.updates == self.at:
            with (self.disk / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError):
                while True:
                    filler.write(bytes(512))

    def say(self, *lines):
        self.lines += lines


def test_a_run_ends_with_one_message_and_can_be_resumed(small_disk):
    path = small_disk / "run"
    job = prepare("a2c", "CartPole-v1", checkpoint_every=3, **SMALL)
    with pytest.raises(RunError) as caught:
        run(job, path, Filling(small_disk, at=8))
    sound = checkpoints.newest(path)
    assert sound is not None and sound == checkpoints.listed(path)[-1]
    assert str(caught.value) in (f"""\
The run in {path} had to end: its disk is full.
No space left on device.
Make room, then go on from its checkpoint {sound.name}, which is whole: msrl resume {path}""", f"""\
The checkpoint {path}/checkpoints/0-{(int(sound.name[2:]) + 3):08d} could not be written.
No space left on device.
Make room or give permission; the run can go on from {sound}: msrl resume {path}""")
    for line in (path / "metrics.jsonl").read_text().splitlines():
        json.loads(line)
    (small_disk / "filler").unlink()
    assert msrl.resume(path, progress=False).status == "finished"


def test_a_run_without_checkpoints_says_so(small_disk):
    path = small_disk / "run"
    with pytest.raises(RunError) as caught:
        run(prepare("a2c", "CartPole-v1", **SMALL), path, Filling(small_disk, at=4))
    assert str(caught.value) == f"""\
The run in {path} had to end: its disk is full.
No space left on device.
Make room, then train again, as there was no checkpoint yet: sh {path}/reproduce.sh"""


def test_rows_are_whole_and_tensorboard_holds_nobody_up(tmp_path):
    folder = RunFolder(tmp_path / "run", {"algorithm": "a2c", "env": "none"}, "true")
    folder.open()
    ended = threading.Event()

    def log():
        board = folder._board("0")
        with no_file_may_grow():
            for step in range(3000):  # more than any queue has room for
                board.add("train/loss", 1.0, step)
            board.board.flush()
        assert board.problem is not None and board.problem.strerror == "File too large"
        board.end()
        ended.set()

    threading.Thread(target=log, daemon=True).start()
    assert ended.wait(60), "a logger waits for a disk that is full"
    folder.row({"seed": 0, "env_steps": 1, "loss": 1.0})
    with no_file_may_grow(), pytest.raises(OSError):
        folder.row({"seed": 0, "env_steps": 2, "loss": 1.0})
    assert [json.loads(line)["env_steps"] for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()] == [1]
    folder.close("failed")


def test_a_row_that_fits_in_part_is_left_out(tmp_path):
    folder = RunFolder(tmp_path / "run", {"algorithm": "a2c", "env": "none"}, "true")
    folder.open()
    folder.row({"seed": 0, "env_steps": 1})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "run/metrics.jsonl").stat().st_size + 5, before[1]))
    try:
        with pytest.raises(OSError, match="No space left on device"):
            folder.row({"seed": 0, "env_steps": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "run/metrics.jsonl").read_text() == '{"seed": 0, "env_steps": 1}\n'
    folder.close("failed")
