"""Every construct of the loop language lowers to the graph it should, compared as text."""

from pathlib import Path

import pytest

from msrl.frontend.lower import lower
from msrl.ir.text import parse, show
from tests.frontend.inherited import Inherits
from tests.programs import Entry, read_table

TABLE = read_table(Path(__file__).with_name("lowered.txt"))


def body(text: str) -> str:
    """The text of a graph without what all graphs begin and end with."""
    lines = [line[2:] for line in text.splitlines()[1:-2]]
    start = max(at for at, line in enumerate(lines) if line.startswith("#") and 'pure "0"' in line) + 1
    return "\n".join(lines[start:]) + "\n"


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.name.replace(" ", "-"))
def test_lowers_to(entry: Entry, tmp_path, update_golden):
    graph = lower(entry.trainer(tmp_path), entry.buffers, entry.components)
    assert parse(show(graph)) == graph
    found = body(show(graph, spans=False))
    if update_golden:
        entry.update(found)
    else:
        assert found == entry.expected


def test_lowering_twice_gives_the_same_text(tmp_path):
    for entry in TABLE:
        trainer = entry.trainer(tmp_path)
        first, second = (lower(trainer, entry.buffers, entry.components) for _ in range(2))
        assert show(first) == show(second)


def test_helper_of_a_base_class_in_another_module_sees_that_module():
    assert body(show(lower(Inherits()), spans=False)) == (
        'obs.1 | $env.2 #env.reset.2 = env.reset() | $env.1 #env.reset.1\n'
        'x.1 = pure "shift(obs) + HERE" obs=obs.1 in start\n'
        'x.2 = pure "x + HERE" x=x.1 in train\n'
        '| $metrics.2 = metrics.report(x=x.2) | $metrics.1\n')


def test_spans_name_the_lines_of_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    entry = next(entry for entry in TABLE if entry.name == "while")
    assert "pure \"n < 10\" n=n.2 in train @t.py:4" in show(lower(entry.trainer(tmp_path), (), ("model",)))
