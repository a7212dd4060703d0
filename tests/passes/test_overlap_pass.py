"""The graph that overlap makes, and the graphs that it refuses."""

from dataclasses import replace

import pytest

from msrl.errors import UsageError, VerifyError
from msrl.ir.graph import Carry
from msrl.ir.text import parse, show
from msrl.ir.verify import verify
from msrl.passes.overlap import overlap

LOOP = """\
graph Loop {
  component actor: actor
  component learner: learner
  | $learner.1 $weights.1 = learner.init()
  #actor.act.1 = pure "0" in train
  #learner.learn.1 = pure "0" in train
  for i.1 in 0, 3, 1 {
    carry #actor.act.2 = #actor.act.1 next #actor.act.3 out #actor.act.4
    act.1 | #actor.act.3 = actor.act() | $weights.1 #actor.act.2
  }
  for i.2 in 0, 8, 1 {
    carry $learner.2 = $learner.1 next $learner.3 out $learner.4
    carry $weights.2 = $weights.1 next $weights.3 out $weights.4
    carry #actor.act.5 = #actor.act.4 next #actor.act.9 out #actor.act.10
    carry #learner.learn.2 = #learner.learn.1 next #learner.learn.3 out #learner.learn.4
    for j.1 in 0, 4, 1 {
      carry #actor.act.6 = #actor.act.5 next #actor.act.7 out #actor.act.8
      act.2 | #actor.act.7 = actor.act() | $weights.2 #actor.act.6
    }
    | $learner.3 $weights.3 #learner.learn.3 = learner.learn() | $learner.2 #learner.learn.2
    act.3 | #actor.act.9 = actor.act() | $weights.3 #actor.act.8
  }
  results $learner.4 $weights.4 #actor.act.10 #learner.learn.4
}
"""


def test_actors_of_the_loop_that_learns_read_the_weights_of_the_pass_before():
    before = parse(LOOP)
    verify(before)
    after = overlap(before)
    verify(after)
    carry = "    carry #learner.learn.2 = #learner.learn.1 next #learner.learn.3 out #learner.learn.4\n"
    wanted = LOOP.replace(carry, f"{carry}    carry $weights.before.1 = $weights.1 next $weights.2 "
                                 "out $weights.before.2\n")
    wanted = wanted.replace("| $weights.2 #actor.act.6", "| $weights.before.1 #actor.act.6")
    wanted = wanted.replace("| $weights.3 #actor.act.8", "| $weights.before.1 #actor.act.8")
    wanted = wanted.replace("#learner.learn.4\n}", "#learner.learn.4 $weights.before.2\n}")
    assert show(after) == wanted
    assert parse(wanted) == after


TWO = """\
graph Two {
  component actor: actor
  component learner: learner
  | $learner.1 $weights.1 = learner.init()
  for i.1 in 0, 3, 1 {
    carry $learner.2 = $learner.1 next $learner.3 out $learner.4
    carry $weights.2 = $weights.1 next $weights.3 out $weights.4
    act.1 = actor.act() | $weights.2
    | $learner.3 $weights.3 = learner.learn(act.1) | $learner.2
  }
  for i.2 in 0, 3, 1 {
    carry $learner.5 = $learner.4 next $learner.6 out $learner.7
    carry $weights.5 = $weights.4 next $weights.6 out $weights.7
    act.2 = actor.act() | $weights.5
    | $learner.6 $weights.6 = learner.learn(act.2) | $learner.5
  }
  results $learner.7 $weights.7
}
"""


def test_a_second_loop_begins_anew():
    graph = parse(TWO)
    verify(graph)
    after = overlap(graph)
    verify(after)
    assert [loop.carries[-1] for loop in after.nodes[1:]] == [
        Carry("$weights.before.1", "$weights.1", "$weights.2", "$weights.before.2"),
        Carry("$weights.before.3", "$weights.4", "$weights.5", "$weights.before.4")]
    assert after.results == ("$learner.7", "$weights.7", "$weights.before.4")


def test_nothing_to_overlap_is_refused():
    graph = parse(LOOP)
    with pytest.raises(UsageError) as caught:
        overlap(replace(graph, nodes=graph.nodes[:4]))
    assert str(caught.value) == """\
There is nothing to overlap in this loop.
Overlap lets actors of one pass of the outermost loop work with the weights of the pass before, and no outermost loop \
here has both actors that act and a learner that learns.
Leave out +overlap.
See docs/distributions.md#passes."""


@pytest.mark.parametrize(("carry", "problem"), [
    ("carry $weights.before.1 = $weights.1 next $weights.3 out $weights.before.2",
     "A carry joins different resources: $weights, $weights.before.\nIn For."),
    ("carry $other.before.1 = $weights.1 next $weights.2 out $other.before.2",
     "A carry joins different resources: $other.before, $weights.\nIn For."),
    ("carry $weights.before.1 = $learner.1 next $weights.2 out $weights.before.2",
     "A carry joins different resources: $learner, $weights, $weights.before.\nIn For."),
])
def test_only_such_a_carry_may_read_what_was_replaced(carry, problem):
    kept = show(overlap(parse(LOOP)))
    broken = kept.replace("carry $weights.before.1 = $weights.1 next $weights.2 out $weights.before.2", carry)
    with pytest.raises(VerifyError) as caught:
        verify(parse(broken))
    assert str(caught.value) == problem
