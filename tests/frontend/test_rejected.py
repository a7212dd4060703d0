"""What is outside the loop language is refused, with a message asserted whole."""

from pathlib import Path

import pytest

from msrl.errors import LoweringError
from msrl.frontend.lower import lower
from tests.programs import Entry, read_table

TABLE = read_table(Path(__file__).with_name("rejected.txt"))


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.name.replace(" ", "-"))
def test_message(entry: Entry, tmp_path, monkeypatch, update_golden):
    monkeypatch.chdir(tmp_path)
    trainer = entry.trainer(tmp_path)
    with pytest.raises(LoweringError) as caught:
        lower(trainer, entry.buffers, entry.components)
    found = str(caught.value) + "\n"
    if update_golden:
        entry.update(found)
    else:
        assert found == entry.expected


def test_the_table_is_no_smaller_than_it_was():
    assert len({entry.name for entry in TABLE}) == len(TABLE) >= 60


def test_print_is_found_where_another_has_taken_its_place(tmp_path, monkeypatch):
    """As Ray does in a process that has joined a cluster."""
    honest = print
    monkeypatch.setattr("builtins.print", lambda *given: honest(*given))
    with pytest.raises(LoweringError, match="is called for its effect"):
        lower(next(entry for entry in TABLE if entry.name == "print assigned").trainer(tmp_path), (), ())


def test_source_that_cannot_be_found():
    made: dict = {}
    exec("class Typed:\n    def train(self, msrl):\n        msrl.env_reset()\n", made)
    with pytest.raises(LoweringError) as caught:
        lower(made["Typed"]())
    assert str(caught.value) == (
        "The source of Typed.train cannot be found.\n"
        "The compiler reads the loop's source, and this one was typed at a prompt or made by exec.\n"
        "Put the trainer in a file and import it.\n"
        "See docs/loop-language.md.")
