"""Every feature of the loop language gives the same result however the loop is run."""

import pytest

from msrl.backends import worker
from tests.matrix.comparing import check
from tests.matrix.loops import LOOPS
from tests.matrix.toys import CalledCorridor, Corridor, HostCorridor


@pytest.fixture(autouse=True)
def uneven_chunks(monkeypatch):
    """Lets the host look so seldom that chunks are of several passes, and the last one of fewer."""
    monkeypatch.setattr(worker, "LOOKS", 2)


@pytest.mark.parametrize("name", LOOPS)
def test_everything_compiled(name):
    outcome = check(LOOPS[name], Corridor(), shards=2)
    assert outcome.reports


@pytest.mark.parametrize(("name", "shards"), [("Plain", 1), ("Plain", 4), ("TwoBuffers", 4), ("Helpers", 1)])
def test_other_numbers_of_shards(name, shards):
    check(LOOPS[name], Corridor(), shards=shards)


ON_HOST = ["Plain", "Schedules", "While", "Branches", "Rows", "Deep", "Stores", "Types"]


@pytest.mark.parametrize("name", ON_HOST)
def test_environment_on_the_host(name):
    check(LOOPS[name], HostCorridor(), shards=2)


@pytest.mark.parametrize("name", ON_HOST)
def test_environment_that_compiled_loops_call(name):
    check(LOOPS[name], CalledCorridor(), shards=2)


@pytest.mark.parametrize("name", ["Components", "Downwards", "Nothing"])
def test_component_on_the_host(name):
    check(LOOPS[name], Corridor(), shards=1, tally_on_host=True)


@pytest.mark.parametrize("name", ["Helpers", "Counters"])
def test_all_on_the_host(name):
    check(LOOPS[name], HostCorridor(), shards=1, tally_on_host=True)
