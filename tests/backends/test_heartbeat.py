"""Heartbeats: who is silent for too long is lost, and nobody else."""

import socket

import pytest

from msrl.backends import heartbeat
from msrl.backends.heartbeat import HEAD_SECONDS, START_SECONDS, Head, Heartbeats
from msrl.errors import ClusterError, LostError


class Workers:
    """Two workers that answer unless they are frozen, and a clock that is turned by hand."""

    def __init__(self):
        self.now, self.frozen = 0.0, {0, 1}  # until they have started
        self.beats = Heartbeats(2, lambda number: number, lambda number: number not in self.frozen, 10,
                                lambda: self.now)

    def pass_seconds(self, seconds: int) -> list[int]:
        for _ in range(seconds):
            self.now += 1.0
            if lost := self.beats.listen():
                return lost
        return []


def test_a_worker_that_freezes_is_lost_and_no_other():
    workers = Workers()
    assert workers.pass_seconds(START_SECONDS - 1) == []  # to start takes its time
    workers.frozen.clear()
    assert workers.pass_seconds(100) == []
    workers.frozen.add(1)
    assert workers.pass_seconds(9) == []
    workers.frozen.clear()
    assert workers.pass_seconds(1) == [] and workers.beats.silence == [0.0, 0.0]
    workers.frozen.add(1)
    assert workers.pass_seconds(20) == [1]
    assert str(workers.beats.lost(1, "instance 0 of fragment actor")) == """\
The worker of instance 0 of fragment actor does not answer.
There was no heartbeat for 11 seconds: its process is stopped, or its host hangs.
If it was only slow, allow more: --worker-timeout SECONDS.
See docs/reliability.md#workers-that-freeze."""


def test_one_that_never_starts_is_lost():
    assert Workers().pass_seconds(START_SECONDS + 5) == [0, 1]


def test_a_coordinator_that_was_away_has_missed_nothing():
    workers = Workers()
    workers.frozen.clear()
    workers.pass_seconds(3)
    workers.frozen.update({0, 1})  # what they answer meanwhile has not been read yet
    workers.now += 3600
    assert workers.beats.listen() == []
    workers.frozen.clear()
    assert workers.pass_seconds(2) == []


def test_a_head_of_our_own_is_replaced():
    dead = ["dashboard"]
    head = Head("127.0.0.1:1", lambda: dead, " in /tmp/x")
    head.check()
    dead.append("gcs_server")
    with pytest.raises(LostError) as caught:
        head.check()
    assert str(caught.value) == """\
Ray's process gcs_server died.
The workers of its cluster find one another by it.
See Ray's logs in /tmp/x for its last words; often there is no memory left."""


def test_a_head_of_others_is_called_up(monkeypatch):
    now = [0.0]
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        head = Head(address, None, "", lambda: now[0])
        for _ in range(50):
            now[0] += 1.0
            head.check()
    with pytest.raises(ClusterError) as caught:
        for _ in range(int(HEAD_SECONDS) + 2):
            now[0] += 1.0
            head.check()
    assert str(caught.value) == f"""\
The Ray cluster at {address} is gone.
Its head has not answered for 21 seconds.
Start it again, and then go on with the run."""
    assert not heartbeat.answers(address)
