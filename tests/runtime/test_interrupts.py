"""Who is told of signals."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from msrl.cli.train import seconds_of
from msrl.errors import UsageError
from msrl.runtime.interrupts import Interrupts, Stop

WAIT = 60


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_asks(number):
    told = []
    heard = threading.Event()
    with Interrupts(lambda number: (told.append(number), heard.set()), lambda *_: None) as interrupts:
        assert (interrupts.stop(), interrupts.exit_code) == (False, 0)
        os.kill(os.getpid(), number)
        assert heard.wait(WAIT)
        assert (told, interrupts.stop(), interrupts.exit_code) == ([number], True, 128 + number)


def test_what_is_to_be_ignored_is_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    heard = threading.Event()
    try:
        with Interrupts(lambda number: heard.set(), lambda *_: None) as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
            assert heard.wait(WAIT) and interrupts.signal == signal.SIGTERM
    finally:
        signal.signal(signal.SIGHUP, before)


def test_handlers_are_as_before_afterwards():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with Interrupts(lambda _: None, lambda *_: None):
        pass
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_the_next_opportunity_is_brought_nearer_once():
    stop, times = Stop(), threading.Semaphore(0)
    stop.hasten = times.release
    stop.ask()
    stop.ask()
    assert times.acquire(timeout=WAIT) and not times.acquire(timeout=0.05)


GRACE = """
import sys, threading
from msrl.runtime.interrupts import Interrupts
with Interrupts(lambda number: None, lambda number, late: print(number, late, flush=True), 0.01) as interrupts:
    interrupts.ask(15)
    threading.Event().wait(60)
"""


def test_a_grace_period_ends_the_process():
    found = subprocess.run([sys.executable, "-c", GRACE], capture_output=True, text=True, timeout=WAIT)
    assert (found.returncode, found.stdout) == (143, "15 True\n")


@pytest.mark.parametrize("text, seconds", [("0", 0), ("30", 30), ("30s", 30), ("1.5m", 90), ("2h", 7200)])
def test_lengths_of_time(text, seconds):
    assert seconds_of(text) == seconds


def test_what_is_no_length_of_time_is_refused():
    with pytest.raises(UsageError) as told:
        seconds_of("soon")
    assert str(told.value) == """--grace is 'soon'.
It is the time that a stop may take, and 0 is any time.
Use a number of seconds, or one with s, m or h behind it, like 30s.
See docs/command-line.md#stopping."""
