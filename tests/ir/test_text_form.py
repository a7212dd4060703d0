"""The text form says all there is to a graph: it reads back to an equal one."""

import pytest
from hypothesis import given, settings

from msrl.errors import VerifyError
from msrl.ir.graph import Call, Graph, Pure
from msrl.ir.text import parse, show
from tests.ir.graphs import graphs


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_reads_back_to_an_equal_graph(graph):
    assert parse(show(graph)) == graph
    assert parse(show(graph, spans=False)) == graph


@settings(max_examples=25, deadline=None)
@given(graphs())
def test_spans_read_back_too(graph):
    assert show(parse(show(graph))) == show(graph)


@pytest.mark.parametrize("expr", ['"quoted"', "a @ b", "'a\\nb'", "{'x': 1}['x'] == {3}", "f'{a} @file:3'", "'ä'",
                                  "x[' = ']"])
def test_expressions_of_any_kind(expr):
    graph = Graph("G", (("env", "env"),), (Pure("x.1", expr, (("a", "y.1"),), "train"),), ("$env.1",))
    assert parse(show(graph)) == graph


def test_an_op_with_all_its_parts():
    call = Call("act.1", "actor", "act", ("obs.1", "t.1"), (("mask", "m.1"),), ("$weights.1", "#actor.act.1"),
                ("#actor.act.2",), ("together.1", "apart.2"))
    graph = Graph("G", (("actor", "actor"),), (call,), ())
    assert show(graph) == (
        "graph G {\n"
        "  component actor: actor\n"
        "  act.1 | #actor.act.2 = actor.act(obs.1, t.1, mask=m.1) | $weights.1 #actor.act.1 [together.1 apart.2]\n"
        "}\n")
    assert parse(show(graph)) == graph


@pytest.mark.parametrize(("text", "message"), [
    ("graph G {\n  for i.1 in 0, 3, 1 {\n", "The text of a graph ends too early.\nA block is never closed."),
    ("graph G {\n  nonsense\n}\n", "Line 2 of the text of a graph cannot be read: nonsense\nSee docs/ir.md."),
    ("graph {\n", "Line 1 of the text of a graph cannot be read: graph {\nSee docs/ir.md."),
    ("graph G {\n  for i.1 in 0, 3 {\n  }\n}\n",
     "Line 2 of the text of a graph cannot be read: for i.1 in 0, 3 {\nSee docs/ir.md."),
    ("graph G {\n}\nx.1 = pure \"1\" in train\n",
     "Line 3 of the text of a graph cannot be read: x.1 = pure \"1\" in train\nSee docs/ir.md."),
])
def test_text_that_cannot_be_read(text, message):
    with pytest.raises(VerifyError) as caught:
        parse(text)
    assert str(caught.value) == message
