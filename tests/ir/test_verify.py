"""Each invariant of a graph, broken one at a time."""

from dataclasses import replace

import pytest

from msrl.errors import VerifyError
from msrl.ir.graph import Graph
from msrl.ir.text import parse
from msrl.ir.verify import verify

GOOD = parse("""
graph Good {
  component env: env
  component model: own
  | $env.1 = env.init()
  | $model.1 = model.init()
  obs.1 | $env.2 = env.reset() | $env.1
  for i.1 in 0, 3, 1 {
    carry obs.2 = obs.1 next obs.3 out obs.4
    carry $env.3 = $env.2 next $env.4 out $env.5
    obs.3 | $env.4 = env.step(obs.2) | $env.3
  }
  while going.1 {
    carry n.1 = obs.4 next n.2 out n.3
    test {
      going.1 = pure "n > 0" n=n.1 in train
    }
    n.2 = pure "n - 1" n=n.1 in train
  }
  if n.3 {
    | $model.2 = model.draw(x=obs.4) | $model.1
    a.1 = pure "1" in train
  } else {
    a.2 = pure "2" in train
    merge a.3 = a.1 or a.2
    merge $model.3 = $model.2 or $model.1
  }
  | $env.6 = env.step(a.3) | $env.5
  results $env.6 $model.3
}
""")
INIT, MODEL, RESET, FOR, WHILE, IF, STEP = range(7)


def with_node(at: int, **fields) -> Graph:
    nodes = list(GOOD.nodes)
    nodes[at] = replace(nodes[at], **fields)
    return replace(GOOD, nodes=tuple(nodes))


def with_body(at: int, block: str, inner: int, **fields) -> Graph:
    held = list(getattr(GOOD.nodes[at], block))
    held[inner] = replace(held[inner], **fields)
    return with_node(at, **{block: tuple(held)})


def with_carry(at: int, inner: int, **fields) -> Graph:
    carries = list(GOOD.nodes[at].carries)
    carries[inner] = replace(carries[inner], **fields)
    return with_node(at, carries=tuple(carries))


def with_merge(inner: int, **fields) -> Graph:
    merges = list(GOOD.nodes[IF].merges)
    merges[inner] = replace(merges[inner], **fields)
    return with_node(IF, merges=tuple(merges))


BROKEN = {
    "a name defined twice": (with_body(IF, "orelse", 0, out="a.1"), "a.1 is defined twice.", "Pure"),
    "an index defined twice": (with_node(FOR, index="obs.1"), "obs.1 is defined twice.", "For"),
    "a phi defined twice": (with_carry(FOR, 0, phi="obs.1"), "obs.1 is defined twice.", "For"),
    "a value used before it is defined": (with_node(RESET, args=("obs.4",)), "obs.4 is used where it is not defined.",
                                          "Call"),
    "a value of a loop's body used after it": (with_node(STEP, args=("obs.3",)),
                                               "obs.3 is used where it is not defined.", "Call"),
    "a value of a branch used after it": (with_node(STEP, args=("a.1",)), "a.1 is used where it is not defined.",
                                          "Call"),
    "a loop's next that is not defined": (with_carry(FOR, 0, next="x.1"), "x.1 is used where it is not defined.",
                                          "For"),
    "a bound that is not defined": (with_node(FOR, stop="n.9"), "n.9 is used where it is not defined.", "For"),
    "a merge of the other branch's value": (with_merge(0, then="a.2"), "a.2 is used where it is not defined.", "If"),
    "a condition that is not defined": (with_node(WHILE, condition="x.1"), "x.1 is used where it is not defined.",
                                        "While"),
    "a resource read in an old version": (with_node(STEP, reads=("$env.1",)),
                                          "$env.1 is read, but $env.5 has replaced it.", "Call"),
    "a resource written in a loop and not carried": (
        with_node(FOR, carries=(replace(GOOD.nodes[FOR].carries[0]),), body=(replace(
            GOOD.nodes[FOR].body[0], reads=("$env.2",)),)),
        "$env is written in the loop, but the loop does not carry it.", "For"),
    "a resource written in a branch and not merged": (
        with_node(IF, merges=GOOD.nodes[IF].merges[:1]),
        "$model is written in a branch, but not merged after it.", "If"),
    "a carry of two resources": (with_carry(FOR, 1, init="$model.1"),
                                 "A carry joins different resources: $env, $model.", "For"),
    "a carry of a resource and a value": (with_carry(FOR, 1, out="obs.9"),
                                          "A carry joins different resources: $env, obs.", "For"),
    "a carry with a phi and no init": (with_carry(FOR, 0, init=None),
                                       "The carry of obs.4 has a phi or an init, but not both.", "For"),
    "a merge of two resources": (with_merge(1, orelse="$env.5"), "A merge joins different resources: $env, $model.",
                                 "If"),
    "an op of no component": (with_node(STEP, component="critic"), "There is no component critic.", "Call"),
    "a resource as an argument": (with_node(STEP, args=("$model.3",)),
                                  "The resource $model.3 stands where a value belongs.", "Call"),
    "a resource as a value made": (with_node(STEP, out="$model.9"),
                                   "The resource $model.9 stands where a value belongs.", "Call"),
    "a value as a resource read": (with_node(STEP, reads=("a.3",)), "The value a.3 stands where a resource belongs.",
                                   "Call"),
    "a value as a resource written": (with_node(STEP, writes=("b.1",)),
                                      "The value b.1 stands where a resource belongs.", "Call"),
}


def test_the_good_one_is_good():
    verify(GOOD)


@pytest.mark.parametrize("name", BROKEN)
def test_broken(name):
    graph, what, kind = BROKEN[name]
    with pytest.raises(VerifyError) as caught:
        verify(graph)
    assert str(caught.value) == f"{what}\nIn {kind}."


@pytest.mark.parametrize(("results", "message"), [
    (("$env.5", "$model.3"), "The result $env.5 is not the newest version of $env."),
    (("$env.6",), "The resource $model.3 is not among the results."),
    (("$env.6", "$model.3", "$critic.1"), "The result $critic.1 is not the newest version of $critic."),
])
def test_broken_results(results, message):
    with pytest.raises(VerifyError) as caught:
        verify(replace(GOOD, results=results))
    assert str(caught.value) == message
