"""A trace by a clock that the test moves: what is told of, once, and what is left out."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from msrl.errors import Span
from msrl.ir.graph import Call, Stretch
from msrl.runtime import tracing
from msrl.runtime.tracing import Event, Trace, at_work, epoch


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    def go(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(tracing.time, "perf_counter", found)
    return found


def test_what_is_inside_is_not_counted_twice(clock):
    trace = Trace()
    with trace.at("compute", "outer"):
        clock.go(1)
        with trace.at("compute", "inner", {"x": 1}):
            clock.go(2)
        clock.go(3)
    assert trace.events == [Event("compute", "inner", 101, 103, True, {"x": 1}),
                            Event("compute", "outer", 100, 106)]
    assert trace.own == {("compute", "inner"): 2, ("compute", "outer"): 4}


def test_an_event_that_fails_is_told_of(clock):
    trace = Trace()
    with pytest.raises(ZeroDivisionError), trace.at("compute", "broken"):
        clock.go(1)
        raise ZeroDivisionError
    assert trace.events == [Event("compute", "broken", 100, 101)] and not trace.open


def test_waiting_on_is_one_wait(clock):
    trace = Trace()
    for name in ("a", "a", "b", "a"):
        start = clock()
        clock.go(1)
        trace.wait(name, start)
    with trace.at("move", "receive"):
        clock.go(1)
    start = clock()
    clock.go(1)
    trace.wait("a", start, {"from": ["x"]})
    assert [(event.name, event.start, event.end) for event in trace.events] == [
        ("a", 100, 102), ("b", 102, 103), ("a", 103, 104), ("receive", 104, 105), ("a", 105, 106)]
    assert trace.own["wait", "a"] == 4 and trace.events[-1].args == {"from": ["x"]}


def test_compiling_is_told_once_however_often_it_is_told(clock):
    """JAX tells of tracing, which began before the program's own clock did, then of compiling; then the program of
    all."""
    trace = Trace()
    with trace.at("compute", "learn"):
        clock.go(1)
        trace.compiled(0.25, "trace of a part")
        clock.go(1)
        trace.compiled(1.5, "trace")
        clock.go(2)
        trace.compiled(2, "compile")
        trace.compiled(3, "all of it")
        clock.go(4)
    assert [(event.kind, event.name, event.start, event.end) for event in trace.events] == [
        ("compile", "all of it", 100.5, 104), ("compute", "learn", 100, 108)]
    assert trace.own["compute", "learn"] == 4.5 and trace.own["compile", "all of it"] == 3.5
    assert sum(trace.own.values()) == 8


def test_compiling_did_not_begin_before_what_it_is_part_of(clock):
    trace = Trace()
    clock.go(1)
    with trace.at("compute", "learn"):
        clock.go(1)
        trace.compiled(1.5)
    assert trace.events[0] == Event("compile", "compile", 101, 102, True)


def test_jax_says_what_it_compiles_for_whom():
    mine, other = Trace(), Trace()
    with mine.here(), other.at("compute", "f"):
        jax.jit(lambda x: x * 3 + 41)(jnp.arange(7)).block_until_ready()
    with mine.here():
        jax.jit(lambda x: x * 5 + 43)(jnp.arange(7)).block_until_ready()
    jax.jit(lambda x: x * 7 + 47)(jnp.arange(7)).block_until_ready()
    assert {event.kind for event in mine.events} == {"compile"} and not any(event.inside for event in mine.events)
    *compiled, whole = other.events
    assert compiled and all(event.kind == "compile" and event.inside for event in compiled)
    assert all(whole.start <= event.start <= event.end <= whole.end for event in compiled)
    told = sum(len(trace.events) for trace in (mine, other))
    jax.jit(lambda x: x * 9 + 49)(jnp.arange(7)).block_until_ready()
    assert sum(len(trace.events) for trace in (mine, other)) == told


def test_what_is_left_out_is_counted(clock):
    trace = Trace(limit=2)
    for seconds in (1, 2, 3):
        with trace.at("compute", "act"):
            clock.go(seconds)
    start = clock()
    clock.go(5)
    trace.wait("x", start)
    assert len(trace.events) == 2 and trace.left_out == 2
    assert trace.late == {"compute": 3, "wait": 5} and trace.own == {("compute", "act"): 6, ("wait", "x"): 5}


def test_a_trace_of_another_process_is_put_on_this_clock():
    trace = Trace()
    trace.began, trace.ended, trace.epoch, trace.process = 5.0, 9.0, epoch() + 100, 0  # of another
    trace.events.append(Event("wait", "x", 6.0, 8.0))
    arrived = pickle.loads(pickle.dumps(trace))
    arrived.align()
    arrived.align()  # once is enough
    assert (arrived.began, arrived.ended) == pytest.approx((105, 109))
    assert (arrived.events[0].start, arrived.events[0].end) == pytest.approx((106, 108))
    assert trace.events[0].start == 6.0


def test_work_is_told_by_op_with_its_line():
    trace, span = Trace(), Span("/somewhere/ppo.py", 12, 1, 4, "text")
    act = Call("a.1", "actor", "act", (), (), (), (), span=span)
    step = Call("b.1", "env", "step", (), (), (), (), span=span)
    with at_work(trace, Stretch((), (act, step, act))) as ready:
        assert ready({"x": np.ones(2)})["x"].shape == (2,)
    with at_work(None, act) as ready:
        assert ready(3) == 3
    (event,) = trace.events
    assert (event.kind, event.name) == ("compute", "actor.act + env.step")
    assert event.args == {"lines": {"actor.act": "ppo.py:12", "env.step": "ppo.py:12"}}
