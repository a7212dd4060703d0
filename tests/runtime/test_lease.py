"""The lease of a run folder: one holder at a time, a crashed one blocks nobody, one that lost it writes no more."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from msrl.errors import UsageError
from msrl.runtime import lease as leases
from msrl.runtime.lease import Lease, LeaseError

ROOT = Path(__file__).parents[2]
HOLD = "import sys; from pathlib import Path; from msrl.runtime.lease import Lease; lease = Lease.take(Path('.'));" \
    "print('held', flush=True); sys.stdin.read()"


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lease of tmp_path."""
    process = subprocess.Popen([sys.executable, "-c", HOLD], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_live_holder_is_named(tmp_path, holder):
    with pytest.raises(UsageError) as refused:
        Lease.take(tmp_path)
    assert str(refused.value) == (
        f"The run in {tmp_path} is still going on.\nProcess {holder.pid} on {socket.gethostname()} is at work on it.\n"
        "Wait until it has ended, or stop it: on SIGTERM it saves a checkpoint first.\n"
        "See docs/resuming.md#one-process-at-a-time.")


def test_a_holder_that_was_killed_blocks_nobody(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    Lease.take(tmp_path).check()


def test_tokens_grow(tmp_path):
    tokens = []
    for _ in range(3):
        lease = Lease.take(tmp_path)
        tokens.append(lease.token)
        lease.release()
    assert tokens == [1, 2, 3]


def test_within_one_process(tmp_path):
    first = Lease.take(tmp_path)
    with pytest.raises(UsageError, match="is still going on"):
        Lease.take(tmp_path)
    first.check()
    first.release()
    Lease.take(tmp_path).check()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"token": "x"}', b"[" * 5000, bytes(range(256))])
def test_a_damaged_file_blocks_nobody(tmp_path, content):
    (tmp_path / leases.FILE).write_bytes(content)
    lease = Lease.take(tmp_path)
    lease.check()
    assert json.loads((tmp_path / leases.FILE).read_text())["token"] == lease.token == 1


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "victim").write_text("mine")
    (tmp_path / leases.FILE).symlink_to(tmp_path / "victim")
    with pytest.raises(UsageError, match="cannot be written to"):
        Lease.take(tmp_path)
    assert (tmp_path / "victim").read_text() == "mine"


def test_where_another_has_taken_it(tmp_path):
    """Somebody has removed the file, or the token in it is another's."""
    lease = Lease.take(tmp_path)
    (tmp_path / leases.FILE).unlink()
    other = Lease.take(tmp_path)
    with pytest.raises(LeaseError) as lost:
        lease.check()
    assert str(lost.value) == (
        f"The run in {tmp_path} has lost its lease.\nAnother process writes to the folder now; what this one did since "
        "its last checkpoint is not saved.\nLet the other one go on.\nSee docs/resuming.md#one-process-at-a-time.")
    other.check()
    (tmp_path / leases.FILE).write_text(json.dumps({"token": 7}))
    with pytest.raises(LeaseError, match="has lost its lease"):
        other.check()


def test_where_the_folder_is_gone(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    lease = Lease.take(run)
    shutil.rmtree(run)
    with pytest.raises(LeaseError) as lost:
        lease.check()
    assert str(lost.value) == (
        f"The run folder {run} is gone.\nIt was deleted or moved while the run was at work.\nLeave a run folder alone "
        "until its run has ended. If it was moved: msrl resume with its new name.\n"
        "See docs/resuming.md#one-process-at-a-time.")


class TestWithoutLocks:
    """As on some network file systems: the holder's process is looked for."""

    @pytest.fixture(autouse=True)
    def no_locks(self, monkeypatch):
        def refuse(*_):
            raise OSError(leases.errno.ENOLCK, "No locks available")

        monkeypatch.setattr(leases.fcntl, "flock", refuse)

    def test_a_live_holder(self, tmp_path, holder):
        with pytest.raises(UsageError, match=f"Process {holder.pid} "):
            Lease.take(tmp_path)

    def test_a_holder_that_was_killed(self, tmp_path, holder):
        holder.kill()
        holder.wait()
        Lease.take(tmp_path).check()

    @pytest.mark.parametrize(("changed", "alive"), [
        ({"started": "1"}, False), ({"boot": "before"}, False), ({"host": "elsewhere"}, True), ({"pid": "x"}, False)])
    def test_another_process_of_that_number(self, tmp_path, holder, changed, alive):
        file = tmp_path / leases.FILE
        file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))
        if alive:
            with pytest.raises(UsageError, match="is still going on"):
                Lease.take(tmp_path)
        else:
            Lease.take(tmp_path).check()

    def test_one_that_was_released(self, tmp_path):
        Lease.take(tmp_path).release()
        assert json.loads((tmp_path / leases.FILE).read_text()) == {"token": 1}
