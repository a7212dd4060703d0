"""Local programs that would wait for one another, written by hand: each is refused, with the circle."""

import pytest

from msrl.errors import VerifyError
from msrl.ir.placed import Move
from msrl.ir.text import parse_local
from msrl.projection.actions import Action, Nest, actions
from msrl.projection.deadlock import capacities, check_actions, check_deadlock, run
from msrl.projection.verify import check_ends
from tests.projection.simulator import Simulator


def read(*texts: str, **kinds: str):
    """Programs from their text, and the moves they name; `kinds`: of moves, by value, those that are no plain send."""
    programs = [parse_local(text) for text in texts]
    ids = dict.fromkeys(word for text in texts for word in text.split() if ">" in word)
    moves = []
    for each in ids:
        value, _, ends = each.partition(":")
        source, _, target = ends.partition(">")
        moves.append(Move(value, source, target, kinds.get(value.partition(".")[0], "send"), None))
    return {program.fragment.name: program for program in programs}, tuple(moves)


def refusal(programs, moves) -> str:
    items = {name: actions(program, {move.id: move for move in moves}) for name, program in programs.items()}
    check_ends(items, {move.id: move for move in moves})
    with pytest.raises(VerifyError) as caught:
        check_deadlock(programs, moves)
    assert Simulator(programs, moves, lambda _: 4).stuck()
    return str(caught.value)


IN_A_CIRCLE = read("""
local learner {
  component learner
  for i.1 in 0, 9, 1 {
    step.1 = recv step.1:actor>learner @loop.py:7
    send $weights.2 by $weights.2:learner>actor @loop.py:9
  }
}""", """
local actor {
  component actor
  for i.1 in 0, 9, 1 {
    $weights.2 = recv $weights.2:learner>actor @loop.py:9
    send step.1 by step.1:actor>learner @loop.py:7
  }
}""")


def test_two_wait_for_each_other():
    assert refusal(*IN_A_CIRCLE) == """\
The fragments wait for one another.

  loop.py:7
    7 | 
        ^

  loop.py:9
    9 | 
        ^

learner waits for step (loop.py:7) of actor, which waits for $weights (loop.py:9) of learner.
See docs/ir.md#deadlock."""


def test_three_wait_in_a_circle_and_a_fourth_for_them():
    programs, moves = read("""
local a {
  w.1 = recv w.1:b>a
}""", """
local b {
  z.1 = recv z.1:d>b
  send x.1 by x.1:b>c
  send w.1 by w.1:b>a
}""", """
local c {
  x.1 = recv x.1:b>c
  send y.1 by y.1:c>d
}""", """
local d {
  y.1 = recv y.1:c>d
  send z.1 by z.1:d>b
}""")
    assert refusal(programs, moves) == """\
The fragments wait for one another.
b waits for z of d, which waits for y of c, which waits for x of b.
See docs/ir.md#deadlock."""


def test_one_is_before_the_loop_and_the_other_after_it():
    programs, moves = read("""
local a {
  z.1 = recv z.1:b>a
  for i.1 in 0, 9, 1 {
    send x.1 by x.1:a>b
  }
}""", """
local b {
  for i.1 in 0, 9, 1 {
    x.1 = recv x.1:a>b
  }
  send z.1 by z.1:b>a
}""")
    assert refusal(programs, moves) == """\
The fragments wait for one another.
a waits for z of b, which waits for x of a.
See docs/ir.md#deadlock."""


def test_one_side_of_a_branch_is_enough():
    programs, moves = read("""
local a {
  if c.1 {
    send x.1 by x.1:a>b
  } else {
    y.1 = recv y.1:b>a
    send z.1 by z.1:a>b
  }
}""", """
local b {
  if c.1 {
    x.1 = recv x.1:a>b
  } else {
    z.1 = recv z.1:a>b
    send y.1 by y.1:b>a
  }
}""")
    items = {name: actions(program, {}) for name, program in programs.items()}
    known = {move.id: move for move in moves}
    check_ends(items, known)
    assert not Simulator(programs, moves, lambda _: 1).stuck()  # nothing happens on the other side
    assert Simulator(programs, moves, lambda _: 0).stuck()
    with pytest.raises(VerifyError, match="a waits for y of b, which waits for z of a"):
        check_deadlock(programs, moves)


def test_instances_that_receive_of_one_another_before_they_send():
    programs, moves = read("""
local learner over env {
  while going.1 {
    test {
      whole_x.1 = recv x.1:learner>learner
      send x.1 by x.1:learner>learner
    }
  }
}""", x="allgather")
    assert refusal(programs, moves) == """\
The fragments wait for one another.
learner waits for whole_x of learner.
See docs/ir.md#deadlock."""


def chain(length: int):
    """The first of them enters the loop when the last has left it, which takes as many passes as there are others."""
    sends = [f"x.{at}:f{at}>f{at + 1}" for at in range(length - 1)]
    texts = []
    for at in range(length):
        lines = [f"send x.{at} by {sends[at]}"] if at < length - 1 else []
        lines += [f"x.{at - 1} = recv {sends[at - 1]}"] if at else []
        before = [f"z.1 = recv z.1:f{length - 1}>f0"] if at == 0 else []
        after = [f"send z.1 by z.1:f{length - 1}>f0"] if at == length - 1 else []
        texts.append("\n".join([f"local f{at} {{", *before, "for i.1 in 0, 9, 1 {", *lines, "}", *after, "}"]))
    return read(*texts)


@pytest.mark.parametrize("length", [2, 3, 4, 5])
def test_what_only_later_passes_show(length):
    programs, moves = chain(length)
    known = {move.id: move for move in moves}
    items = {name: actions(program, known) for name, program in programs.items()}
    assert not run(items, known, length - 2)
    assert run(items, known, length - 1)
    assert refusal(programs, moves).startswith("The fragments wait for one another.")


# -- what is held back -------------------------------------------------------------------------------------------------

BODY = (("for", "i.1", 0, 9, 1, "body"),)
THERE = {move.id: move for move in (Move("x.1", "a", "b", "send", None), Move("y.1", "b", "a", "send", None))}
X, Y = THERE


def loop(*inner: Action) -> Nest:
    return Nest(("for", "i.1", 0, 9, 1), (inner,))


HELD, TAKEN = Action("hold", X, "x.1", BODY), loop(Action("recv", X, "x.1", BODY))
BACK, ANSWER = Action("recv", Y, "y.1", BODY), Action("send", Y, "y.1", BODY)


def test_what_leaves_after_the_loop():
    items = {"a": (loop(HELD), Action("flush", "", "b", ())), "b": (TAKEN,)}
    check_ends(items, {X: THERE[X]})
    check_actions(items, {X: THERE[X]})


def test_an_answer_within_the_loop_to_what_leaves_after_it():
    items = {"a": (loop(HELD, BACK), Action("flush", "", "b", ())), "b": (loop(*TAKEN.sides[0], ANSWER),)}
    check_ends(items, THERE)
    with pytest.raises(VerifyError) as caught:
        check_actions(items, THERE)
    assert str(caught.value) == """\
The fragments wait for one another.
a waits for y of b, which waits for x of a.
See docs/ir.md#deadlock."""


def test_a_flush_comes_too_early():
    items = {"a": (Action("flush", "", "b", ()), loop(HELD)), "b": (TAKEN,)}
    check_ends(items, {X: THERE[X]})
    with pytest.raises(VerifyError) as caught:
        check_actions(items, {X: THERE[X]})
    assert str(caught.value) == """\
b waits for a message that nobody sends.
b waits for x of a, which is done.
See docs/ir.md#deadlock."""


@pytest.mark.parametrize("flush", [
    Action("flush", "", "c", ()), Action("flush", "", "b", (("if", "c.1", "then side"),))])
def test_no_flush_is_sure_to_follow(flush):
    with pytest.raises(VerifyError) as caught:
        check_ends({"a": (loop(HELD), flush), "b": (TAKEN,)}, {X: THERE[X]})
    assert str(caught.value) == """\
a holds x.1 back for good.
No flush to b follows in its block or around it.
See docs/ir.md#placed-graphs-and-local-programs."""


def test_a_branch_that_flushes_frees_only_its_own():
    """It might not be taken."""
    side = (("if", "c.1", "then side"),)
    items = {"a": (loop(HELD), Nest(("if", "c.1"), ((Action("flush", "", "b", side),), ())),
                   Action("recv", Y, "y.1", ()), Action("flush", "", "b", ())),
             "b": (TAKEN, Action("send", Y, "y.1", ()))}
    with pytest.raises(VerifyError, match="a waits for y of b, which waits for x of a"):
        check_actions(items, THERE)


# -- room --------------------------------------------------------------------------------------------------------------


def least(programs, moves) -> dict[str, int | None]:
    """What is computed, tried: with this room nobody gets stuck, with one less for any move somebody does."""
    room = capacities(programs, moves)
    assert not Simulator(programs, moves, lambda _: 4, room).stuck()
    for move, number in room.items():
        if number:
            assert Simulator(programs, moves, lambda _: 4, {**room, move: number - 1}).stuck()
    return {move.partition(":")[0]: number for move, number in room.items()}


def test_room_for_what_is_taken_in_another_order():
    assert least(*read("""
local a {
  send x.1 by x.1:a>b
  send y.1 by y.1:a>b
}""", """
local b {
  y.1 = recv y.1:a>b
  x.1 = recv x.1:a>b
}""")) == {"x.1": 1, "y.1": 0}


def test_room_for_one_of_two_that_cross():
    assert least(*read("""
local a {
  for i.1 in 0, 9, 1 {
    send x.1 by x.1:a>b
    y.1 = recv y.1:b>a
  }
}""", """
local b {
  for i.1 in 0, 9, 1 {
    send y.1 by y.1:b>a
    x.1 = recv x.1:a>b
  }
}""")) == {"x.1": 0, "y.1": 1}


def test_no_room_is_enough_where_a_loop_must_end_before_another_begins():
    assert least(*read("""
local a {
  for i.1 in 0, n.1, 1 {
    send x.1 by x.1:a>b
  }
  send y.1 by y.1:a>b
}""", """
local b {
  y.1 = recv y.1:a>b
  for i.1 in 0, n.1, 1 {
    x.1 = recv x.1:a>b
  }
}""")) == {"x.1": None, "y.1": 0}
