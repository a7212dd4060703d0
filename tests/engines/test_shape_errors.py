"""Shapes, dtypes and trees that do not fit together are refused before anything runs, with messages asserted whole."""

from pathlib import Path

import pytest

from msrl.errors import MsrlError
from msrl.pipeline import compile
from tests.matrix.toys import Corridor, HostCorridor
from tests.programs import Entry, read_table

TABLE = read_table(Path(__file__).with_name("shape_errors.txt"))


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.name.replace(" ", "-"))
def test_message(entry: Entry, tmp_path, monkeypatch, update_golden):
    cls = entry.load(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MsrlError) as caught:
        compile(cls, HostCorridor() if getattr(cls, "on_host", False) else Corridor())
    found = f"{type(caught.value).__name__}: {caught.value}\n"
    if update_golden:
        entry.update(found)
    else:
        assert found == entry.expected
