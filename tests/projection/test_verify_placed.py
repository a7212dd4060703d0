"""Each invariant of a placed graph, broken one at a time."""

from dataclasses import replace

import pytest

from msrl.distribution.place import place
from msrl.errors import VerifyError
from msrl.ir.placed import PARAMETERS, Fragment, Move, PlacedGraph
from msrl.ir.text import parse
from msrl.ir.verify import verify
from msrl.projection.verify import verify_placed

GRAPH = parse("""
graph Good {
  component env: env
  component learner: learner
  component judge: own
  | $env.1 = env.init() @loop.py:1
  | $learner.1 $weights.1 = learner.init()
  | $judge.1 = judge.init()
  obs.1 | $env.2 = env.reset() | $env.1 @loop.py:2
  passes.1 | $judge.2 = judge.passes(obs.1) | $judge.1 @loop.py:3
  for i.1 in 0, passes.1, 1 { @loop.py:4
    carry obs.2 = obs.1 next obs.3 out obs.4
    carry $env.3 = $env.2 next $env.4 out $env.5
    carry $learner.2 = $learner.1 next $learner.4 out $learner.5
    carry $weights.2 = $weights.1 next $weights.4 out $weights.5
    carry $judge.3 = $judge.2 next $judge.4 out $judge.5
    act.1 = pure "obs + 1" obs=obs.2 in train @loop.py:5
    obs.3 | $env.4 = env.step(act.1) | $env.3 @loop.py:6
    odd.1 | $judge.4 = judge.odd(obs.3) | $judge.3 @loop.py:7
    if odd.1 { @loop.py:8
      | $learner.3 $weights.3 = learner.learn(obs.3) | $learner.2 @loop.py:9
    } else {
      merge $learner.4 = $learner.3 or $learner.2
      merge $weights.4 = $weights.3 or $weights.2
    }
  }
  results $env.5 $learner.5 $weights.5 $judge.5
}
""")
AXES = {name: 0 for name in ("obs.1", "obs.2", "obs.3", "obs.4", "act.1", *(f"$env.{n}" for n in range(1, 6)))}
FRAGMENTS = (Fragment("actor", ("env",), "env"), Fragment("learner", ("learner",)), Fragment("judge", ("judge",)))
GOOD = place(GRAPH, FRAGMENTS, AXES)
MOVES = {move.id: move for move in GOOD.moves}


def of(*fragments: Fragment) -> PlacedGraph:
    return replace(GOOD, fragments=fragments)


def with_move(each: str, **changes) -> PlacedGraph:
    return replace(GOOD, moves=tuple(replace(move, **changes) if move.id == each else move for move in GOOD.moves))


def without_move(each: str) -> PlacedGraph:
    return replace(GOOD, moves=tuple(move for move in GOOD.moves if move.id != each))


def also(move: Move, placed: PlacedGraph = GOOD) -> PlacedGraph:
    return replace(placed, moves=(*placed.moves, move))


def computed(name: str, *where: str) -> PlacedGraph:
    kept = tuple((other, places) for other, places in GOOD.computed if other != name)
    return replace(GOOD, computed=((name, where), *kept))


ENV, LEARNER, JUDGE = FRAGMENTS
ABSENT = "It neither computes nor receives it."
OBS, ODD, PASSES = "obs.3:actor>judge", "odd.1:judge>learner", "passes.1:judge>actor"

# What is broken: the placed graph, what is said of it, the lines that are shown, why it cannot be.
BROKEN = {
    "two fragments of one name": (
        of(ENV, LEARNER, replace(JUDGE, name="learner")),
        "2 fragments are called learner.", (), "Moves name fragments, so each has a name of its own."),
    "a component in two fragments": (
        of(ENV, LEARNER, replace(JUDGE, components=("judge", "env"))),
        "env is in 2 fragments.", (), "Its state has one home."),
    "a component that is not": (
        of(ENV, LEARNER, replace(JUDGE, components=("judge", "critic"))),
        "There is no component critic.", (), "A fragment names it."),
    "a component in no fragment": (
        of(ENV, LEARNER), "No fragment has the component judge.", (), "Its ops have no place to run."),
    "computed nowhere": (
        computed("act.1", "attic"), "act.1 is computed in attic.", (), "There is no fragment attic."),
    "an op away from its component": (
        computed("$judge.4", "judge", "actor"), "actor computes $judge.4.", (7,), "judge lives in judge."),
    "a result without a home": (
        replace(GOOD, computed=tuple(pair for pair in GOOD.computed if pair[0] != "$env.5")),
        "The result $env.5 has no home.", (), "No fragment computes it."),
    "a move from nowhere": (
        with_move(OBS, source="attic"),
        "The move obs.3:attic>judge joins no two fragments.", (6,), "There is no fragment attic."),
    "a move of what is not there": (
        with_move(ODD, source="actor"),
        "The move odd.1:actor>learner has nothing to send.", (7,), "actor does not compute odd.1."),
    "a move of what was received": (
        also(Move("obs.3", "judge", "learner", "send", 0)),
        "The move obs.3:judge>learner has nothing to send.", (), "judge does not compute obs.3."),
    "a move to where it is made": (
        computed("obs.3", "actor", "judge"), f"The move {OBS} brings what is there.", (6,),
        "judge computes obs.3 itself."),
    "a value sent twice": (
        also(MOVES[OBS]), "obs.3 moves to judge more than once.", (), "A name has one value, which is sent once."),
    "an argument that is missing": (
        without_move(OBS), "judge has no obs.3, of which it makes judge.odd.", (7,), ABSENT),
    "an input that is missing": (
        computed("act.1", "actor", "judge"), "judge has no obs.2, of which it makes act.1.", (5,), ABSENT),
    "an end of a carry that is missing": (
        computed("obs.2", "actor", "learner"), "learner has no obs.1, of which it makes obs.4.", (4,), ABSENT),
    "an end of a merge that is missing": (
        computed("$weights.4", "judge", "learner"), "judge has no $weights.3, of which it makes $weights.4.", (8,),
        ABSENT),
    "a condition that is missing": (
        without_move(ODD), "learner has no odd.1, on which a loop or branch around $learner.4 depends.", (8, 8),
        ABSENT),
    "a bound that is missing": (
        without_move(PASSES), "actor has no passes.1, on which a loop or branch around obs.4 depends.", (4, 4), ABSENT),
    "a gather of a whole value": (
        with_move(OBS, dim=None), f"The move {OBS} does not fit its kind, gather.", (6,),
        "It divides or joins on a dimension, and obs.3 is not divided."),
    "a gather from one place": (
        with_move(ODD, kind="gather", dim=0), f"The move {ODD} does not fit its kind, gather.", (7,),
        "It goes from many places: judge is one, learner is one."),
    "a broadcast of a divided value": (
        with_move(PASSES, dim=0), f"The move {PASSES} does not fit its kind, broadcast.", (3,),
        "It hands on whole values, and passes.1 is divided on dimension 0."),
    "a broadcast to one place": (
        with_move(ODD, kind="broadcast"), f"The move {ODD} does not fit its kind, broadcast.", (7,),
        "It goes from one place to many: judge is one, learner is one."),
    "a send to many": (
        with_move(PASSES, kind="send"), f"The move {PASSES} does not fit its kind, send.", (3,),
        "It hands on one value as it is: judge is one, actor is replicated."),
    "a send of parts": (
        with_move(OBS, kind="send"), f"The move {OBS} does not fit its kind, send.", (6,),
        "It hands on one value as it is: actor is replicated, judge is one."),
    "an allreduce between two": (
        with_move(ODD, kind="allreduce"), f"The move {ODD} does not fit its kind, allreduce.", (7,),
        "It is among the instances of one replicated fragment, and this is from judge to learner."),
    "an agreement where no parameters are": (
        also(Move("$learner.3", "actor", "learner", "gather", None)),
        "The move $learner.3:actor>learner does not fit its kind, gather.", (),
        "Learners agree where parameters are kept: a gather goes there, a broadcast comes from there."),
    "a send to oneself": (
        also(Move("obs.3", "actor", "actor", "send", 0)), "The move obs.3:actor>actor does not fit its kind, send.", (),
        "It is between two fragments, and this is within actor."),
}


@pytest.mark.parametrize("fragments", [FRAGMENTS, (Fragment("all", ("env", "learner", "judge"), "env"),),
                                       (Fragment("all", ("env", "learner", "judge")),),
                                       (Fragment("all", ("env", "learner", "judge"), "env"),
                                        Fragment("kept", (PARAMETERS,)))])
def test_the_good_ones_are_good(fragments):
    verify(GRAPH)
    verify_placed(place(GRAPH, fragments, AXES))


def test_the_good_ones_have_moves_of_many_kinds():
    assert {move.id: move.kind for move in GOOD.moves} == {
        "obs.1:actor>judge": "gather", "passes.1:judge>actor": "broadcast", "passes.1:judge>learner": "send",
        "obs.3:actor>judge": "gather", "obs.3:actor>learner": "gather", "odd.1:judge>learner": "send"}
    together = place(GRAPH, (Fragment("all", ("env", "learner", "judge"), "env"),), AXES)
    assert {move.kind for move in together.moves} == {"allgather", "allreduce"}


@pytest.mark.parametrize("name", BROKEN)
def test_broken(name):
    placed, what, lines, why = BROKEN[name]
    shown = "".join(f"\n  loop.py:{line}\n{line:>5} | \n        ^\n" for line in lines)
    with pytest.raises(VerifyError) as caught:
        verify_placed(placed)
    assert str(caught.value) == "\n".join([what, *([shown] if shown else []), why,
                                           "See docs/ir.md#placed-graphs-and-local-programs."])
