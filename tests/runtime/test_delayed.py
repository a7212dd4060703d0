"""Messages that take longer: in order, many at once, and without keeping their sender."""

from threading import Event

import numpy as np
import pytest

from msrl.ir.placed import Move
from msrl.runtime import delayed
from msrl.runtime.channels import Exchange
from msrl.runtime.chaos import Link
from msrl.runtime.delayed import Courier, DelayedExchange, Waiting
from msrl.runtime.unordered import UnorderedExchange


class Clock:
    """In the place of `time`: sleeping is what makes it go on."""

    def __init__(self):
        self.now, self.slept = 100.0, []

    def perf_counter(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(delayed, "time", found)
    return found


def test_what_is_sent_together_is_late_once(clock):
    """On a link of any width, the second message does not wait for the first to arrive."""
    courier, told, go = Courier(Link(0.5)), [], Event()
    courier.carry(go.wait, 8)  # so that all others are given before any of them is due
    for number in range(3):
        courier.carry(lambda number=number: told.append((number, clock.now)), 8)
    assert told == []
    go.set()
    courier.close()
    assert told == [(0, 100.5), (1, 100.5), (2, 100.5)]
    assert clock.slept == [0.5, 0.0, 0.0, 0.0]
    courier.close()  # again, to no effect


def test_what_leaves_by_a_narrow_link_leaves_one_after_another(clock):
    courier, told, go = Courier(Link(0.5, 100.0)), [], Event()
    courier.carry(go.wait, 0)
    for number, size in enumerate((100, 50)):
        courier.carry(lambda number=number: told.append((number, clock.now)), size)
    go.set()
    courier.close()
    assert told == [(0, 101.5), (1, 102.0)]  # a second, and half of one, and on their way for half a second each
    assert Waiting(Link(0.5, 100.0)).carry(lambda: None, 100) is None and clock.slept[-1] == 1.5


@pytest.mark.parametrize(("kind", "seconds"), [("scatter", 4.0), ("broadcast", 8.0)])
def test_what_is_for_several_takes_as_long_as_all_they_get(clock, kind, seconds):
    move = Move("x.1", "learner", "actor", kind, 0 if kind == "scatter" else None)
    exchange = Exchange((move,), {"learner": (4,), "actor": (2, 2)})
    late = DelayedExchange(exchange, Waiting(Link(0.0, 4.0)))
    late.send(move.id, 0, np.zeros(4, np.float32))
    late.send_together(0, [(move.id, np.zeros(4, np.float32), 0)])
    assert clock.slept == [seconds, seconds]


def test_one_thread_waits_for_each(clock):
    waiting, told = Waiting(Link(0.5)), []
    for number in range(2):
        waiting.carry(lambda number=number: told.append((number, clock.now)), 8)
    waiting.close()
    assert told == [(0, 100.5), (1, 101.0)]


def test_channels_of_every_kind_can_be_delayed(clock):
    move = Move("x.1", "actor", "learner", "send", None)
    late = DelayedExchange(UnorderedExchange((move,), {"actor": (1,), "learner": (1,)}, None), Waiting(Link(0.5)))
    late.lead = move.id
    late.send(move.id, 0, 7, 1)
    assert clock.now == 100.5 and late.ready(move.id, 0)


def test_it_stands_for_the_channels_that_it_delays(clock):
    move = Move("x.1", "actor", "learner", "send", None)
    exchange = Exchange((move,), {"actor": (1,), "learner": (1,)})
    late = DelayedExchange(exchange, Waiting(Link(0.5)))
    late.send(move.id, 0, 7)
    assert clock.now == 100.5 and late.ready(move.id, 0) and late.receive(move.id, 0) == 7
    late.lead = move.id
    assert exchange.lead == move.id
