"""Each invariant of local programs, broken one at a time."""

import pytest

from msrl.errors import VerifyError
from msrl.ir.placed import Move
from msrl.ir.text import parse_local
from msrl.projection.verify import verify_programs

ACTOR = """
local actor over env {
  component env
  | $env.1 = env.init()
  obs.1 | $env.2 = env.reset() | $env.1
  $weights.1 = recv $weights.1:learner>actor @loop.py:2
  for i.1 in 0, 9, 1 { @loop.py:3
    carry $env.3 = $env.2 next $env.4 out $env.5
    obs.2 | $env.4 = env.step(obs.1) | $env.3
    send obs.2 by obs.2:actor>learner @loop.py:4
    send obs.2 by obs.2:actor>actor
    whole_obs.2 = recv obs.2:actor>actor
    odd.1 = pure "x.sum() % 2" x=whole_obs.2 in train
    if odd.1 { @loop.py:5
      $weights.3 = recv $weights.3:learner>actor @loop.py:6
    } else {
    }
  }
  results $env.5
}"""
LEARNER = """
local learner {
  component learner
  | $learner.1 $weights.1 = learner.init()
  send $weights.1 by $weights.1:learner>actor @loop.py:2
  for i.1 in 0, 9, 1 { @loop.py:3
    carry $learner.2 = $learner.1 next $learner.4 out $learner.5
    carry $weights.2 = $weights.1 next $weights.4 out $weights.5
    obs.2 = recv obs.2:actor>learner @loop.py:4
    odd.1 = pure "x.sum() % 2" x=obs.2 in train
    if odd.1 { @loop.py:5
      | $learner.3 $weights.3 = learner.learn(obs.2) | $learner.2
      send $weights.3 by $weights.3:learner>actor @loop.py:6
    } else {
      merge $learner.4 = $learner.3 or $learner.2
      merge $weights.4 = $weights.3 or $weights.2
    }
  }
  results $learner.5 $weights.5
}"""
MOVES = (Move("$weights.1", "learner", "actor", "broadcast", None), Move("obs.2", "actor", "learner", "gather", 0),
         Move("obs.2", "actor", "actor", "allgather", 0), Move("$weights.3", "learner", "actor", "broadcast", None))
SEND, RECV = "send obs.2 by obs.2:actor>learner @loop.py:4\n", "obs.2 = recv obs.2:actor>learner @loop.py:4\n"
STEP = "obs.2 | $env.4 = env.step(obs.1) | $env.3\n"
SHARE = "send obs.2 by obs.2:actor>actor\n    whole_obs.2 = recv obs.2:actor>actor\n"
TOLD, TELL = ("$weights.3 = recv $weights.3:learner>actor @loop.py:6\n",
              "send $weights.3 by $weights.3:learner>actor @loop.py:6\n")
PLACES = "A name has one value: for each place that it is sent in there is one in which it is received, and between " \
         "two fragments there is one of each."
DOCS = "docs/ir.md#placed-graphs-and-local-programs"

# What is broken: (what is written, what it becomes), what is said of it, the lines that are shown, why it cannot be.
BROKEN = {
    "a name used before it is defined": (
        ('x=obs.2 in train\n    if odd.1 {', 'x=obs.9 in train\n    if odd.1 {'),
        "In learner: obs.9 is used where it is not defined.", (), "In Pure."),
    "a value sent before it is made": (
        (f"{STEP}    {SEND}", f"{SEND}    {STEP}"),
        "In actor: obs.2 is used where it is not defined.", (4,), "In Send."),
    "an op of another's component": (
        ("= env.reset() |", "= learner.reset() |"), "In actor: There is no component learner.", (), "In Call."),
    "a result that is not made": (
        ("results $env.5", "results $env.5 $env.9"), "In actor: The result $env.9 is not the newest version of $env.",
        (), ""),
    "a state that is lost": (
        ("results $learner.5 $weights.5", "results $learner.5"),
        "In learner: The resource $weights.5 is not among the results.", (), ""),
    "a send that is missing": (
        (SEND, ""), "obs.2:actor>learner is sent in no places and received in one place.", (), PLACES),
    "a receive that is missing": (
        (TOLD, ""), "$weights.3:learner>actor is sent in one place and received in no places.", (), PLACES),
    "a send too many": (
        (TELL, 2 * TELL), "$weights.3:learner>actor is sent in 2 places and received in one place.", (), PLACES),
    "an exchange that is not taken part in": (
        (SHARE, SHARE + "    send obs.2 by obs.2:actor>actor\n"),
        "obs.2:actor>actor is sent in 2 places and received in one place.", (), PLACES),
    "a move that is not": (
        (SEND, SEND + "    send obs.2 by obs.2:actor>judge @loop.py:8\n"),
        "actor sends obs.2 by obs.2:actor>judge.", (8,), "There is no such move."),
    "a send that is another's": (
        (TELL, TELL + "      send obs.2 by obs.2:actor>learner @loop.py:8\n"),
        "learner sends obs.2 by obs.2:actor>learner.", (8,), "Of this move, that is for actor to do."),
    "a receive that is another's": (
        (TELL, TELL + "      w.1 = recv $weights.3:learner>actor @loop.py:8\n"),
        "learner receives w.1 by $weights.3:learner>actor.", (8,), "Of this move, that is for actor to do."),
    "a receive outside the branch": (
        (TOLD + "    } else {\n    }\n", "    } else {\n    }\n    " + TOLD),
        "The ends of $weights.3:learner>actor are in different loops or branches.", (6, 6),
        "learner sends in the body of for i.1, the then side of if odd.1; actor receives in the body of for i.1."),
    "a receive on the other side of the branch": (
        (TOLD + "    } else {\n", "    } else {\n" + TOLD),
        "The ends of $weights.3:learner>actor are in different loops or branches.", (6, 6),
        "learner sends in the body of for i.1, the then side of if odd.1; actor receives in the body of for i.1, the "
        "else side of if odd.1."),
    "a receive before the loop": (
        ("$weights.1 = recv $weights.1:learner>actor @loop.py:2\n  for i.1 in 0, 9, 1 { @loop.py:3\n"
         "    carry $env.3 = $env.2 next $env.4 out $env.5\n",
         "for i.1 in 0, 9, 1 { @loop.py:3\n    carry $env.3 = $env.2 next $env.4 out $env.5\n"
         "    $weights.1 = recv $weights.1:learner>actor @loop.py:2\n"),
        "The ends of $weights.1:learner>actor are in different loops or branches.", (2, 2),
        "learner sends in no loop or branch; actor receives in the body of for i.1."),
}


def verify(text: str) -> None:
    programs = [parse_local(part) for part in text.split("\f")]
    verify_programs({program.fragment.name: program for program in programs}, MOVES)


def test_the_good_ones_are_good():
    verify(f"{ACTOR}\f{LEARNER}")


def test_what_is_only_copied_may_be_dropped_and_exchanged_twice():
    verify(f"{ACTOR.replace(SHARE, SHARE + '    ' + SHARE)}\f{LEARNER}")
    twice = LEARNER.replace(RECV, RECV + "    odd.1 = pure \"1\" in train\n")
    with pytest.raises(VerifyError, match=r"In learner: odd.1 is defined twice."):
        verify(f"{ACTOR}\f{twice}")


def test_loops_that_make_different_numbers_of_passes():
    with pytest.raises(VerifyError, match=r"The ends of obs.2:actor>learner are in different loops or branches."):
        verify(f"{ACTOR}\f{LEARNER.replace('0, 9, 1', '0, 8, 1')}")


@pytest.mark.parametrize("name", BROKEN)
def test_broken(name):
    (old, new), what, lines, why = BROKEN[name]
    text = f"{ACTOR}\f{LEARNER}"
    assert text.count(old) == 1
    shown = "".join(f"\n  loop.py:{line}\n{line:>5} | \n        ^\n" for line in lines)
    with pytest.raises(VerifyError) as caught:
        verify(text.replace(old, new))
    assert str(caught.value) == "\n".join(part for part in (what, shown, why, f"See {DOCS}.") if part)


def test_a_circle_is_found_when_all_else_is_right():
    early = ACTOR.replace(f"    {SEND}", "").replace("    if odd.1", f"    {SEND}    if odd.1")
    verify(f"{early}\f{LEARNER}")
    moves = (*MOVES, Move("hint.1", "learner", "actor", "broadcast", None))
    actor = parse_local(early.replace(f"    {SEND}", f"    hint.1 = recv hint.1:learner>actor @loop.py:9\n    {SEND}"))
    learner = parse_local(LEARNER.replace(f"    {RECV}", f'    {RECV}    hint.1 = pure "1" in train\n'
                                          "    send hint.1 by hint.1:learner>actor @loop.py:9\n"))
    with pytest.raises(VerifyError) as caught:
        verify_programs({"actor": actor, "learner": learner}, moves)
    assert caught.value.why == "actor waits for hint (loop.py:9) of learner, which waits for obs (loop.py:4) of actor."
