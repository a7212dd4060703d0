"""A lowered loop means what Python means by it: random programs, run both ways."""

from hypothesis import HealthCheck, given, settings

from msrl.frontend.lower import lower
from msrl.ir.interp import interpret
from msrl.ir.text import parse, show
from tests.frontend.random_programs import Mixing, Played, programs
from tests.programs import Entry


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(programs())
def test_graph_means_what_python_means(tmp_path, source):
    trainer = Entry(tmp_path, "random", (), ("m",), source, "").trainer(tmp_path)
    played = Played()
    trainer.train(played)
    graph = lower(trainer, (), ("m",))
    assert parse(show(graph)) == graph
    found = interpret(graph, Mixing(trainer))
    assert found["$metrics"] == played.metrics
    assert found["$m"] == played.m
