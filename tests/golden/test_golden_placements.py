"""PPO as some distributions cut it up: its picture, what each fragment does, and the page, as files.

`pytest tests/golden --update-golden` writes them anew; read the difference before committing it.
"""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from msrl.cli.main import main

SIZES = ("--env", "CartPole-v1", "--total-steps", "4096", "--num-envs", "8", "--shards", "4", "--rollout", "64",
         "--hidden", "64", "64")
ACTORS, LEARNERS = ("--actors", "2"), ("--learners", "2", "--learner-shards", "2")
FRAGMENTS = {"coarse": ("actor", "learner"), "fine": ("env", "learner"), "multi": ("learner",),
             "central": ("learner", "parameters")}
DISTRIBUTIONS = {"coarse": ("single-learner-coarse", *ACTORS), "fine": ("single-learner-fine", *ACTORS),
                 "multi": ("multi-learner", *LEARNERS), "central": ("central", *LEARNERS)}


@pytest.fixture
def graph(capsys, monkeypatch):
    monkeypatch.setenv("MSRL_CACHE_DIR", "off")

    def run(short: str, *flags: str) -> str:
        assert main(["graph", "ppo", *SIZES, "--distribution", *DISTRIBUTIONS[short], *flags]) == 0
        return capsys.readouterr().out

    return run


def compare(file: Path, found: str, update: bool) -> None:
    if update:
        file.write_text(found)
    assert found == file.read_text()


@pytest.mark.parametrize("short", FRAGMENTS)
def test_picture_and_functions(graph, short, update_golden):
    parts = [graph(short), graph(short, "--format", "mermaid")]
    parts += [graph(short, "--fragment", name) for name in FRAGMENTS[short]]
    compare(Path(__file__).with_name(f"ppo-{short}.txt"), "\n".join(parts), update_golden)


@pytest.mark.parametrize("short", ["coarse", "fine"])
def test_page(graph, short, update_golden):
    found = graph(short, "--format", "html")
    assert not re.search(r"<script|<link|<img|@import|url\((?!#)|(?:src|href)=", found)  # nothing from elsewhere
    drawing = ElementTree.fromstring(re.search(r"<svg.*</svg>", found, re.S)[0])
    ops = [text.text for text in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert {"env.step", "actor.act", "learner.learn", "rollout.insert"} <= set(ops)
    found = re.sub(r"<title>[^<]*\.py:\d+</title>", "<title>file:line</title>", found)  # no edit of PPO is a difference
    compare(Path(__file__).with_name(f"ppo-{short}.html"), found, update_golden)
