"""Shares of time, the sentence about them, and the file for Perfetto, of traces that are made up."""

import json

import pytest

from msrl.runtime.bottleneck import Track, Window, as_json, line, measure
from msrl.runtime.perfetto import trace_events, trace_json
from msrl.runtime.profile import Profile
from msrl.runtime.tracing import LIMIT, Event, Trace


def made(*events, began=0.0, ended=10.0):
    """A trace of (kind, name, start, end, ...)."""
    trace = Trace()
    trace.began, trace.ended, trace.events = began, ended, [Event(*event) for event in events]
    for event in trace.events:
        inner = sum(other.end - other.start for other in trace.events
                    if other.inside and event.start <= other.start and other.end <= event.end and other is not event)
        trace.own[event.kind, event.name] += event.end - event.start - inner
    return trace


def nothing():
    return made(began=0.0, ended=0.0)


ACTORS = [Track("actor", 0, made(("compute", "act", 0, 2), ("wait", "for weights", 2, 10))),
          Track("actor", 1, made(("compute", "act", 0, 4), ("move", "send", 4, 5), ("wait", "for weights", 5, 9),
                                 ended=9.0))]
LEARNER = Track("learner", 0, made(("wait", "for t", 0, 1), ("compute", "learn", 1, 10)))


def test_the_one_that_is_most_at_work_is_the_bottleneck():
    seconds, shares = measure([[*ACTORS, LEARNER]], nothing())
    found = {(share.fragment, share.instance): (share.compute, share.move, share.idle) for share in shares}
    assert seconds == 10
    assert found == {("actor", 0): (0.2, 0.0, 0.8), ("actor", 1): (0.4, 0.1, pytest.approx(0.5)),
                     ("learner", 0): (0.9, 0.0, 0.1), ("host", 0): (0.0, 0.0, 1.0)}
    assert line(seconds, shares) == ("learner is the bottleneck: 90 % at work, mostly learn; "
                                     "actor is idle 65 % of the time")
    assert as_json(seconds, shares)["bottleneck"] == "learner"


def test_of_several_instances_the_slowest_counts():
    """The others wait for it."""
    slow = Track("actor", 2, made(("compute", "env.step", 0, 9.5)))
    learner = Track("learner", 0, made(("compute", "learn", 0, 8), ("wait", "for t", 8, 10)))
    assert line(*measure([[*ACTORS, slow, learner]], nothing())) == (
        "actor is the bottleneck: instance 2 is 95 % at work, mostly env.step; learner is idle 20 % of the time")


def test_the_host_can_be_the_bottleneck():
    alone = Track("all", 0, made(("compute", "a + b + c + d", 0, 1), ("wait", "look", 1, 10)))
    host = made(("compute", "evaluate", 1, 9), ("compute", "evaluate", 10, 30))  # the last one is after training
    assert line(*measure([[alone]], host)) == \
        "host is the bottleneck: 80 % at work, mostly evaluate; all is idle 90 % of the time"
    assert line(*measure([[alone]], nothing())) == \
        "all is 10 % at work, mostly a compiled stretch of 4 ops; it waits for the host 90 % of the time"


def test_replicas_of_the_only_fragment_are_compared():
    tracks = [Track("learner", 0, made(("compute", "learn", 0, 6), ("wait", "for gradients", 6, 10))),
              Track("learner", 1, made(("compute", "learn", 0, 8), ("wait", "for gradients", 8, 10)))]
    assert line(*measure([tracks], nothing())) == (
        "learner is the bottleneck: instance 1 is 80 % at work, mostly learn; "
        "all 2 are idle 30 % of the time on average")


def test_time_in_which_somebody_compiles_is_nobodys():
    """The actor's wait is for a compiler; what the learner did after that is what counts."""
    learner = Track("learner", 0, made(("compile", "compile", 1, 6, True), ("compute", "learn", 0, 8),
                                       ("wait", "for t", 8, 10)))
    actor = Track("actor", 0, made(("compile", "compile", 4, 7), ("wait", "for weights", 7, 10)))
    window = Window([learner, actor], nothing())
    assert window.seconds == 4 and window.within(0, 2) == 1 and window.within(3, 6.5) == 0
    assert window.within(-5, 50) == 4 and window.within(6.5, 8) == 1
    seconds, shares = measure([[learner, actor]], nothing())
    assert seconds == 4
    assert [(share.compute, share.idle) for share in shares[:2]] == [(0.5, 0.5), (0.0, 0.75)]
    assert shares[0].ops == {"learn": 3}


def test_when_all_was_compiling_there_is_nothing_to_compare():
    only = Track("all", 0, made(("compile", "compile", 0, 10)))
    assert line(*measure([[only]], nothing())) == "all of the time went into compiling"


def test_what_is_left_out_of_the_trace_is_in_the_shares():
    trace = made(("compute", "act", 0, 2))
    trace.late["compute"], trace.left_out = 6.0, 3
    _, (share, _) = measure([[Track("all", 0, trace)]], nothing())
    assert (share.compute, share.left_out) == (0.8, 3)
    assert [event["name"] for event in trace_events([[Track("all", 0, trace)]], nothing()) if event["ph"] == "i"] == [
        "3 events are left out"]


def test_runs_in_a_row_are_added_up():
    again = Track("learner", 0, made(("compute", "learn", 100, 101), ("wait", "for t", 101, 110), began=100.0,
                                     ended=110.0))
    seconds, shares = measure([[LEARNER], [again]], nothing())
    assert seconds == 20 and (shares[0].compute, shares[0].idle) == (0.5, 0.5)


def test_a_profile_keeps_so_many_events_of_an_instance_in_all():
    profile = Profile()
    assert profile.room == LIMIT
    profile.add([LEARNER])
    profile.add([LEARNER, *ACTORS])
    assert profile.room == LIMIT - 4


def test_the_file_has_fragments_as_processes_and_messages_as_arrows():
    key, lost = ("$weights.1:learner>actor", 0, 0, 1), ("$weights.1:learner>actor", 0, 0, 2)
    learner = Track("learner", 0, made(("move", "send weights", 1, 2, False, {"bytes": 8}, (key, lost)), began=0.5))
    actor = Track("actor", 0, made(("move", "receive weights", 3, 4.0000001, False, None, (), (key,))))
    host = made(("compile", "compile", 5, 5.5, True), ("compute", "log", 5, 6))
    found = json.loads(trace_json([[learner, actor]], host))["traceEvents"]
    named = {event["args"]["name"]: event for event in found if event["ph"] == "M" and "name" in event["args"]}
    assert named.keys() == {"learner", "actor", "host", "learner 0", "actor 0"}
    assert [event for event in found if event["ph"] == "X"] == [
        {"pid": 3, "tid": 30000, "ts": 5e6, "ph": "X", "dur": 1e6, "cat": "compute", "name": "log"},
        {"pid": 3, "tid": 30000, "ts": 5e6, "ph": "X", "dur": 5e5, "cat": "compile", "name": "compile"},
        {"pid": 1, "tid": 10000, "ts": 1e6, "ph": "X", "dur": 1e6, "cat": "move", "name": "send weights",
         "args": {"bytes": 8}},
        {"pid": 2, "tid": 20000, "ts": 3e6, "ph": "X", "dur": 1000000.1, "cat": "move", "name": "receive weights"}]
    assert [(event["ph"], event["pid"], event["ts"], event["id"]) for event in found if event["ph"] in "sf"] == [
        ("s", 1, 1e6, 1), ("f", 2, 3e6, 1)]  # what nobody took has no arrow
