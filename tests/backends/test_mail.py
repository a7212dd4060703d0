"""Messages straight from process to process: in order, only from those who know the key, and nobody waits."""

import socket
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from queue import SimpleQueue

import numpy as np
import pytest

from msrl.backends.mail import Mailbox
from msrl.backends.wire import Message, pack

KEY = b"of this run"


@pytest.fixture
def boxes():
    """Two mailboxes, and what the second one is given."""
    got = SimpleQueue()
    both = Mailbox("127.0.0.1", KEY, got.put), Mailbox("127.0.0.1", KEY, got.put)
    yield *both, got
    for box in both:
        box.close()


def message(number: int, size: int = 4) -> Message:
    return Message("a:b>c", 0, number, pack({"x": np.full(size, number, np.float32)}))


def test_messages_arrive_whole_and_in_order(boxes):
    first, second, got = boxes
    for number in range(100):
        first.send(message(number, size=1 + number * 1000), [second.address])
    for number in range(100):
        found = got.get(timeout=30)
        assert found.number == number
        np.testing.assert_array_equal(found.leaves[1][0], np.full(1 + number * 1000, number, np.float32))


def test_everybody_may_send_to_everybody(boxes):
    first, second, got = boxes
    first.send(message(1), [first.address, second.address])
    second.send(message(2), [first.address])
    assert sorted(got.get(timeout=30).number for _ in range(3)) == [1, 1, 2]


def test_strangers_are_not_let_in_and_disturb_nobody(boxes):
    first, second, got = boxes
    with pytest.raises(AuthenticationError):
        Client(second.address, authkey=b"guessed")
    first.send(message(7), [second.address])
    assert got.get(timeout=30).number == 7


def test_one_who_says_nothing_keeps_nobody_waiting(boxes):
    first, second, got = boxes
    with socket.create_connection(second.address):
        first.send(message(7), [second.address])
        assert got.get(timeout=30).number == 7


def test_listens_where_it_is_told(boxes):
    assert [box.address[0] for box in boxes[:2]] == ["127.0.0.1"] * 2


def test_what_is_sent_to_one_who_is_gone_is_lost(boxes):
    first, second, got = boxes
    gone = Mailbox("127.0.0.1", KEY, got.put)
    gone.close()
    first.send(message(1), [gone.address, second.address])
    assert got.get(timeout=30).number == 1
    assert got.empty()
