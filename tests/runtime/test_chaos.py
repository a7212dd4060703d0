"""Faults on purpose, as text: what is right is read and written again, what is not is answered with what would be."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from msrl.errors import UsageError
from msrl.runtime.chaos import Chaos, Fault, Killed, Link, parse

FORM = "A fault is KIND:WHAT@WHEN or delay:moves=TIME; kinds are kill, hang, raise, nan, delay."
PASS = "When, after an @, is a pass of the loop: 1, 2, ..."
STEP = "When, after an @, is a step: 1, 2, ..."
TIME = ("A delay is a time above zero in us, ms or s, a rate in kB/s, MB/s or GB/s, or both, with a + between them.")


def test_all_kinds():
    text = "kill:actor@200,kill:learner@300,hang:env@50,raise:env@7,nan:reward@80,nan:observation@9,delay:moves=5ms"
    found = parse(text)
    assert found == Chaos((Fault("kill", "actor", 200), Fault("kill", "learner", 300), Fault("hang", "env", 50),
                           Fault("raise", "env", 7), Fault("nan", "reward", 80), Fault("nan", "observation", 9)),
                          Link(0.005))
    assert str(found) == text
    assert found.of("hang", "raise") == found.faults[2:4]
    assert found.poison("reward") == (80,)


def test_nothing():
    assert parse("") == parse("  ") == Chaos() and str(Chaos()) == ""


@pytest.mark.parametrize(("text", "seconds", "rate"), [
    ("250us", 0.00025, 0), ("1.5s", 1.5, 0), (".5ms", 0.0005, 0), ("20ms", 0.02, 0), ("10MB/s", 0, 1e7),
    ("1.5kB/s", 0, 1500), ("2ms+1GB/s", 0.002, 1e9)])
def test_links(text, seconds, rate):
    found = parse(f"delay:moves={text}").link
    assert (found.delay, found.rate) == pytest.approx((seconds, rate))


@settings(max_examples=30, deadline=None)
@given(some.lists(some.one_of(
    some.builds(Fault, some.just("kill"), some.from_regex("[a-z][a-z_-]*", fullmatch=True), some.integers(1, 10**9)),
    some.builds(Fault, some.sampled_from(["hang", "raise"]), some.just("env"), some.integers(1, 10**9)),
    some.builds(Fault, some.just("nan"), some.sampled_from(["reward", "observation"]), some.integers(1, 10**9))),
    unique=True), some.integers(0, 10**7), some.integers(0, 10**10))
def test_text_and_back(faults, micros, rate):
    chaos = Chaos(tuple(faults), Link(micros * 1e-6, float(rate)))
    again = parse(str(chaos))
    assert again.faults == chaos.faults
    assert (again.link.delay, again.link.rate) == pytest.approx((chaos.link.delay, chaos.link.rate))


@pytest.mark.parametrize(("text", "entry", "why", "instead"), [
    ("kil:actor@200", "kil:actor@200", FORM, "kill:actor@200"),
    ("actor@20", "actor@20", FORM, "kill:actor@20"),
    ("reward@7", "reward@7", FORM, "nan:reward@7"),
    ("nonsense", "nonsense", FORM, "kill:actor@200"),
    ("kill:actor@3,", "", FORM, "kill:actor@200"),
    ("kill:actor", "kill:actor", PASS, "kill:actor@200"),
    ("kill:actor@0", "kill:actor@0", PASS, "kill:actor@200"),
    ("kill:actor=30", "kill:actor=30", PASS, "kill:actor@30"),
    ("kill:my-part", "kill:my-part", PASS, "kill:my-part@200"),
    ("kill:@3", "kill:@3", "It does not say which fragment.", "kill:actor@3"),
    ("kill:actor@3, hang:learner@4", "hang:learner@4", "What hang can befall is env.", "hang:env@4"),
    ("hang:env@soon", "hang:env@soon", STEP, "hang:env@200"),
    ("nan:obs@4", "nan:obs@4", "What nan can befall is reward or observation.", "nan:observation@4"),
    ("delay:move=5ms", "delay:move=5ms", "What delay can befall is moves.", "delay:moves=5ms"),
    ("delay:moves=5", "delay:moves=5", TIME, "delay:moves=5ms"),
    ("delay:moves@20us", "delay:moves@20us", TIME, "delay:moves=20us"),
    ("delay:moves=0s", "delay:moves=0s", TIME, "delay:moves=5s"),
    ("delay:moves=1ms+", "delay:moves=1ms+", TIME, "delay:moves=1ms"),
    ("delay:moves=1ms10MB/s", "delay:moves=1ms10MB/s", TIME, "delay:moves=1s"),
    ("delay:moves=1ms+0MB/s", "delay:moves=1ms+0MB/s", TIME, "delay:moves=1s"),
    ("delay:moves=1s,delay:moves=2s", "delay:moves=2s", "Moves are delayed already, and all in the same way.",
     "delay:moves=2s"),
    ("raise:env@3,raise:env@3", "raise:env@3", "It is there twice, and a fault happens once.", "raise:env@3")])
def test_what_is_wrong_is_answered_with_what_is_right(text, entry, why, instead):
    with pytest.raises(UsageError) as refused:
        parse(text)
    assert str(refused.value) == (f"--chaos cannot be told {entry!r}.\n{why}\nFor instance: {instead}\n"
                                  "See docs/reliability.md#faults-on-purpose.")
    assert parse(instead)


def test_what_has_happened_does_not_happen_again():
    chaos = parse("kill:actor@3,kill:learner@3,raise:env@8,nan:reward@20,delay:moves=1ms")
    killed = Killed(chaos.faults[0], "instance 0 of fragment actor")
    assert str(chaos.without(killed.fault, 8)) == "kill:learner@3,nan:reward@20,delay:moves=1ms"
    assert str(chaos.without(None, 0)) == str(chaos)
