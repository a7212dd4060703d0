"""The text form of local programs, which workers are sent: it reads back whole, spans included."""

from dataclasses import fields, is_dataclass

import pytest
from hypothesis import given, settings

from msrl.errors import Span, VerifyError
from msrl.ir.graph import Flush, Pure, Recv, Send, Stretch, walk
from msrl.ir.placed import Fragment, LocalProgram
from msrl.ir.text import parse_local, show_local
from tests.ir.graphs import graphs

MOVE = "obs.1:env>actor"


def spans(program):
    """Spans are no part of a node's equality, so they are compared beside it."""
    assert all(is_dataclass(node) and "span" in {field.name for field in fields(node)} for node in walk(program.nodes))
    return [node.span for node in walk(program.nodes)]


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_reads_back_to_an_equal_program(graph):
    span = Span("my algos/ppo.py", 3, 9, 12, 'x = "a @b.py:3" + \'\\"\' @ y  # " @"f":1:1+1 "x"')
    moves = (Send(MOVE, "obs.1", span, held=True), Flush("actor", span), Recv("act.9", "act.9:learner>env"))
    stretches = (Stretch(("a.1", "b.2"), graph.nodes, span), Stretch((), ()))
    program = LocalProgram(Fragment("env", ("env", "results"), "env"), (*graph.nodes, *moves, *stretches),
                           graph.results, batched=True)
    assert parse_local(show_local(program)) == program
    assert spans(parse_local(show_local(program))) == spans(program)


def test_the_form():
    span = Span("ppo.py", 7, 5, 3, '    obs = "@" + x')
    program = LocalProgram(Fragment("actor", ("env", "actor"), "env"),
                           (Recv("x.1", "x.1:learner>actor"), Pure("obs.1", '"@" + x', (("x", "x.1"),), "train", span)),
                           ("$env.1",))
    assert show_local(program) == (
        "local actor over env {\n"
        "  component env\n"
        "  component actor\n"
        "  x.1 = recv x.1:learner>actor\n"
        '  obs.1 = pure "\\"@\\" + x" x=x.1 in train @"ppo.py":7:5+3 "    obs = \\"@\\" + x"\n'
        "  results $env.1\n"
        "}\n")
    assert spans(parse_local(show_local(program))) == [None, span]


def test_a_fragment_that_is_not_replicated_and_has_no_results():
    program = LocalProgram(Fragment("learner", ("learner",)), (), ())
    assert show_local(program) == "local learner {\n  component learner\n}\n"
    assert parse_local(show_local(program)) == program


@pytest.mark.parametrize(("text", "message"), [
    ("local env over {\n}\n", "Line 1 of the text of a graph cannot be read: local env over {\nSee docs/ir.md."),
    ("local env {\n  component env: env\n}\n",
     "Line 2 of the text of a graph cannot be read: component env: env\nSee docs/ir.md."),
    ("local env {\n", "The text of a graph ends too early.\nA block is never closed."),
    ("local env {\n}\n}\n", "Line 3 of the text of a graph cannot be read: }\nSee docs/ir.md."),
])
def test_text_that_cannot_be_read(text, message):
    with pytest.raises(VerifyError) as caught:
        parse_local(text)
    assert str(caught.value) == message
