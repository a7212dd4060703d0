"""Simplifying keeps the meaning, and leaves nothing that nobody needs."""

from hypothesis import given, settings

from msrl.ir.graph import Call, Graph, Pure, definitions, uses, walk
from msrl.ir.interp import interpret
from msrl.ir.simplify import simplify
from msrl.ir.text import parse, show
from msrl.ir.verify import verify
from tests.ir.graphs import Numbers, graphs


@settings(max_examples=80, deadline=None)
@given(graphs())
def test_keeps_the_meaning(graph: Graph):
    verify(graph)
    simple = simplify(graph)
    verify(simple)
    before, after = Numbers(), Numbers()
    assert interpret(graph, before) == interpret(simple, after)
    assert before.ran == after.ran
    assert sum(1 for _ in walk(simple.nodes)) <= sum(1 for _ in walk(graph.nodes))


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_every_expression_left_is_used(graph: Graph):
    simple = simplify(graph)
    used = {*simple.results}
    for node in walk(simple.nodes):
        used.update(uses(node))
        used.update(carry.next for carry in getattr(node, "carries", ()))
        used.update(pick for merge in getattr(node, "merges", ()) for pick in (merge.then, merge.orelse))
        used.update([node.condition] if hasattr(node, "condition") else [])
    for node in walk(simple.nodes):
        if isinstance(node, (Pure, Call)):
            assert all(name in used for name in definitions(node) if not name.startswith(("$", "#"))), node


def nodes(text: str) -> Graph:
    return parse(f"graph G {{\n  component env: env\n  $env.1 = pure \"0\" in train\n{text}\n}}\n")


def test_drops_carries_that_never_change_or_that_nobody_reads():
    graph = nodes("""
        x.1 = pure "1" in train
        y.1 = pure "2" in train
        for i.1 in 0, 3, 1 {
          carry x.2 = x.1 next x.2 out x.3
          carry y.2 = y.1 next y.3 out y.4
          carry $env.2 = $env.1 next $env.3 out $env.4
          y.3 = pure "y + 1" y=y.2 in train
          | $env.3 = env.step(x.2) | $env.2
        }
        z.1 = pure "x" x=x.3 in train
        results $env.4""")
    assert simplify(graph) == nodes("""
        x.1 = pure "1" in train
        for i.1 in 0, 3, 1 {
          carry $env.2 = $env.1 next $env.3 out $env.4
          | $env.3 = env.step(x.1) | $env.2
        }
        results $env.4""")


def test_drops_loops_and_branches_without_effect_and_what_they_depend_on():
    graph = nodes("""
        n.1 = pure "3" in train
        for i.1 in 0, n.1, 1 {
          x.1 = pure "i" i=i.1 in train
        }
        c.1 = pure "n > 2" n=n.1 in train
        if c.1 {
          y.1 = pure "1" in train
        } else {
          y.2 = pure "2" in train
          merge y.3 = y.1 or y.2
          merge $env.2 = $env.1 or $env.1
        }
        results $env.2""")
    assert simplify(graph) == nodes("results $env.1")


def test_keeps_a_while_loop_that_may_never_end():
    graph = nodes("""
        n.1 = pure "3" in train
        while going.1 {
          carry n.2 = n.1 next n.3 out n.4
          test {
            going.1 = pure "n != 0" n=n.2 in train
          }
          n.3 = pure "n - 1" n=n.2 in train
        }
        results $env.1""")
    assert simplify(graph) == graph


def test_looks_through_nested_loops():
    graph = nodes("""
        x.1 = pure "1" in train
        for i.1 in 0, 3, 1 {
          carry x.2 = x.1 next x.5 out x.6
          carry $env.2 = $env.1 next $env.5 out $env.6
          for j.1 in 0, 3, 1 {
            carry x.3 = x.2 next x.3 out x.5
            carry $env.3 = $env.2 next $env.4 out $env.5
            | $env.4 = env.step(x.3) | $env.3
          }
        }
        results $env.6""")
    assert "carry x" not in show(simplify(graph))


def test_a_value_that_nobody_reads_is_not_kept():
    graph = nodes("step.1 | $env.2 = env.step() | $env.1\n results $env.2")
    assert simplify(graph) == nodes("| $env.2 = env.step() | $env.1\n results $env.2")


def test_a_loop_that_surely_makes_a_value_is_cut_off_from_what_was_before():
    graph = nodes("""
        x.1 = pure "None" in train
        for i.1 in 0, 3, 1 {
          carry x.2 = x.1 next x.5 out x.6
          carry $env.2 = $env.1 next $env.5 out $env.6
          for j.1 in 0, 3, 1 {
            carry x.3 = x.2 next x.4 out x.5
            carry $env.3 = $env.2 next $env.4 out $env.5
            x.4 | $env.4 = env.step() | $env.3
          }
        }
        | $env.7 = env.step(x.6) | $env.6
        results $env.7""")
    assert simplify(graph) == nodes("""
        for i.1 in 0, 3, 1 {
          carry - = - next x.5 out x.6
          carry $env.2 = $env.1 next $env.5 out $env.6
          for j.1 in 0, 3, 1 {
            carry - = - next x.4 out x.5
            carry $env.3 = $env.2 next $env.4 out $env.5
            x.4 | $env.4 = env.step() | $env.3
          }
        }
        | $env.7 = env.step(x.6) | $env.6
        results $env.7""")
