"""What a process has left after a run: no arrays, files or folders, and no more memory than after the run before."""

import ctypes
import gc
import os
import socket
import tempfile
from pathlib import Path

import jax
import psutil
import pytest

import msrl
from msrl.runtime.leftovers import DeadSockets, Session
from tests.cli.tiny import Tiny

WARM_UP = 3
MEGABYTES = 48  # of all calls after that. A program that stayed behind would be 40 for each
CALLS = 20
SMALL = {"total_steps": 32, "num_envs": 4, "rollout": 4, "hidden": (4,), "shards": 2}


def held() -> tuple[int, int, float]:
    """Arrays, open files, megabytes."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed, glibc may keep
    process = psutil.Process()
    return len(jax.live_arrays()), process.num_fds(), process.memory_info().rss / 2**20


@pytest.mark.parametrize("algorithm, backend, env, distribution, settings", [
    ("a2c", "inline", "gymnasium:CartPole-v1", "local", SMALL),
    ("a2c", "threads", "envpool:CartPole-v1", "single-learner-coarse", SMALL),
    (Tiny, "ray", "CartPole-v1", "local", {}),  # each starts and ends a cluster, which takes seconds
])
def test_many_runs_hold_no_more_than_the_first(algorithm, backend, env, distribution, settings, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    after = []
    for _ in range(CALLS):
        result = msrl.train(algorithm, env, backend=backend, distribution=distribution, progress=False,
                            eval_episodes=1, **settings)
        assert result.status == "finished"
        after.append(held())
    arrays, files, megabytes = zip(*after[WARM_UP:], strict=True)
    assert max(arrays) <= after[WARM_UP - 1][0]
    assert max(files) <= max(files for _, files, _ in after[:WARM_UP])
    assert min(megabytes[-3:]) < after[WARM_UP - 1][2] + MEGABYTES
    assert list(tmp_path.iterdir()) == []


def test_a_session_is_for_its_owner_alone_and_fits_a_socket(monkeypatch, tmp_path):
    far = tmp_path / ("far" * 40)
    far.mkdir()
    for inside in (None, str(far)):
        monkeypatch.setenv("RAY_TMPDIR", inside) if inside else monkeypatch.delenv("RAY_TMPDIR", raising=False)
        session = Session()
        try:
            assert session.path.parent.stat().st_mode & 0o777 == 0o700
            assert len(str(session.path / "session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store")) <= 107
            (session.path / "session").mkdir(parents=True)
        finally:
            session.remove()
        assert not session.path.parent.exists()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="reads /proc")
def test_only_sockets_that_stay_dead_are_closed():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_INET6) as fresh:
        ours = socket.socket(socket.AF_INET6)
        ours.connect(("::ffff:127.0.0.1", server.getsockname()[1]))
        theirs, _ = server.accept()
        dead = DeadSockets()
        dead.sweep()
        dead.sweep()
        ours.send(b"alive")
        assert theirs.recv(5) == b"alive"
        descriptor = ours.fileno()
        theirs.close()
        ours.recv(1)
        ours.shutdown(socket.SHUT_RDWR)  # as gRPC does
        dead.sweep()
        os.fstat(descriptor)
        dead.sweep()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
        ours.detach()
        os.fstat(fresh.fileno())
        os.fstat(server.fileno())
