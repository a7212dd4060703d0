"""A distribution of one's own is found by file and class, and gives the bits of the interpreter."""

import re
from pathlib import Path

import pytest

from msrl import distribution as distributions
from msrl.deployment import Deployment
from msrl.errors import UsageError
from msrl.feasibility import check
from msrl.pipeline import compile
from tests.matrix.comparing import Outcome, assert_same, strict
from tests.matrix.loops import LOOPS
from tests.matrix.toys import Corridor

ROOT = Path(__file__).parents[2]
OWN = f"{ROOT / 'examples' / 'own_distribution.py'}:ReplayApart"


def test_the_example_gives_the_bits_of_the_interpreter():
    program = compile(LOOPS["TwoBuffers"], Corridor(), strict=True, shards=2)
    wanted = Outcome(*program.interpret())
    found = compile(LOOPS["TwoBuffers"], Corridor(), strict=True, shards=2, deployment=Deployment(OWN, "inline", 2))
    assert [fragment.name for fragment in found.placed.fragments] == ["actor", "replay", "learner"]
    outcome = strict(found)
    assert outcome.reports == wanted.reports
    assert_same(wanted.resources, outcome.resources)


def test_it_is_checked_like_any_other():
    assert check(Deployment(OWN, actors=2)).name == "replay-apart"
    with pytest.raises(UsageError, match="2 learners cannot be had under"):
        check(Deployment(OWN, learners=2))


@pytest.mark.parametrize("name, message", [
    ("nowhere.py:Mine", "nowhere.py:Mine: there is no file nowhere.py.\nWrite path/to/file.py:PolicyClass."),
    ("mine.py", "mine.py does not say which DistributionPolicy it is.\nWrite path/to/file.py:PolicyClass."),
    (OWN.replace("ReplayApart", "Fragment"), f"{OWN.replace('ReplayApart', 'Fragment')}: Fragment is not a "
     "DistributionPolicy.\nThe file has ReplayApart.\nWrite path/to/file.py:PolicyClass."),
    ("everywhere", "There is no distribution 'everywhere'.\nThere are {names}.\n"
     "Use one of these. For one of your own: write path/to/file.py:PolicyClass."),
])
def test_names_that_lead_nowhere(name, message):
    with pytest.raises(UsageError) as caught:
        distributions.load(name)
    assert str(caught.value) == message.replace("{names}", ", ".join(distributions.DISTRIBUTIONS))


def test_the_page_shows_the_example_and_a_file_that_is_one(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "distributions.md").read_text()
    source = (ROOT / "examples" / "own_distribution.py").read_text()
    assert re.search(r"^class ReplayApart.*?(?=\n\n\n)", source, re.M | re.S)[0] in page
    (tmp_path / "cluster.toml").write_text(re.search(r"```toml\n(.*?)```", page, re.S)[1])
    monkeypatch.setattr("msrl.feasibility.ray_is_installed", lambda: True)
    found = Deployment.from_file(tmp_path / "cluster.toml")
    check(found)
    assert (found.actors, found.hosts[1].devices) == (4, 2)
