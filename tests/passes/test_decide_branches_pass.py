"""Branches that go one way on every pass: a graph as text goes in, and comes out."""

from msrl.ir.text import parse, show
from msrl.ir.verify import verify
from msrl.passes.decide_branches import decide_branches

LOOP = """\
graph Loop {
  component learner: learner
  component metrics: metrics
  | $learner.1 $weights.1 = learner.init()
  #learner.learn.1 = pure "0" in train
  for i.1 in 0, 8, 1 {
    carry $learner.2 = $learner.1 next $learner.5 out $learner.6
    carry $weights.2 = $weights.1 next $weights.5 out $weights.6
    carry #learner.learn.2 = #learner.learn.1 next #learner.learn.5 out #learner.learn.6
    condition.1 = pure "i % 1 == 0" i=i.1 in train
    if condition.1 {
      | $learner.3 $weights.3 #learner.learn.3 = learner.learn() | $learner.2 #learner.learn.2
      condition.2 = pure "i > 3" i=i.1 in train
      if condition.2 {
        | $learner.4 $weights.4 #learner.learn.4 = learner.learn() | $learner.3 #learner.learn.3
      } else {
        merge $learner.7 = $learner.4 or $learner.3
        merge $weights.7 = $weights.4 or $weights.3
        merge #learner.learn.7 = #learner.learn.4 or #learner.learn.3
      }
    } else {
      merge $learner.5 = $learner.7 or $learner.2
      merge $weights.5 = $weights.7 or $weights.2
      merge #learner.learn.5 = #learner.learn.7 or #learner.learn.2
    }
  }
  results $learner.6 $weights.6 #learner.learn.6
}
"""


HEAD = "for i.1 in 0, 8, 1 {"


def lines(**ways) -> list[str]:
    graph = decide_branches(parse(LOOP), lambda name: ways.get(name.replace(".", "")))
    verify(graph)
    shown = [line.strip() for line in show(graph).splitlines()]
    if HEAD not in shown:
        return shown
    return shown[shown.index(HEAD) + 1:-3]  # without the brackets of loop and graph, and the results


FIRST = "| $learner.3 $weights.3 #learner.learn.3 = learner.learn() | $learner.2 #learner.learn.2"
SECOND = "| $learner.4 $weights.4 #learner.learn.4 = learner.learn() | $learner.3 #learner.learn.3"


def carries(number: int) -> list[str]:
    return [f"carry {name}.2 = {name}.1 next {name}.{number} out {name}.6"
            for name in ("$learner", "$weights", "#learner.learn")]


def test_what_is_taken_on_every_pass_stands_in_the_branchs_place():
    assert lines(condition1=True, condition2=True) == [*carries(4), FIRST, SECOND]
    assert lines(condition1=True, condition2=False) == [*carries(3), FIRST]


def test_a_branch_around_or_inside_one_that_is_decided_stays():
    inner = ['condition.2 = pure "i > 3" i=i.1 in train', "if condition.2 {", SECOND, "} else {",
             "merge $learner.7 = $learner.4 or $learner.3", "merge $weights.7 = $weights.4 or $weights.3",
             "merge #learner.learn.7 = #learner.learn.4 or #learner.learn.3", "}"]
    assert lines(condition1=True) == [*carries(7), FIRST, *inner]
    assert lines(condition2=False) == [
        *carries(5), 'condition.1 = pure "i % 1 == 0" i=i.1 in train', "if condition.1 {", FIRST, "} else {",
        "merge $learner.5 = $learner.3 or $learner.2", "merge $weights.5 = $weights.3 or $weights.2",
        "merge #learner.learn.5 = #learner.learn.3 or #learner.learn.2", "}"]


def test_what_is_never_taken_is_gone_and_with_it_a_loop_of_which_nothing_is_left():
    assert HEAD not in lines(condition1=False)
    assert lines(condition1=False)[-2:] == ["results $learner.1 $weights.1 #learner.learn.1", "}"]


def test_nothing_decided_is_nothing_changed():
    assert show(decide_branches(parse(LOOP), lambda name: None)) == LOOP
