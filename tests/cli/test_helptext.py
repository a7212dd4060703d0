"""What --help says of a flag is one paragraph, wherever the source breaks its lines."""

import re
from dataclasses import dataclass, field

import pytest

from msrl.cli.options import read


@dataclass(frozen=True)
class Options:
    near: int = 1
    """Short."""
    far: tuple[int, ...] = field(default=(2, 3))
    """The first line of a text that goes on
    below, and then ends.

    More after an empty line."""
    said: float = 0.5  # by a comment
    bare: bool = False


HELP = {
    "--near INT": "Short. (default: 1)",
    "--far [INT [INT ...]]":
        "The first line of a text that goes on below, and then ends. More after an empty line. (default: 2 3)",
    "--said FLOAT": "by a comment (default: 0.5)",
    "--bare, --no-bare": "(default: False)",
}


def test_lines_of_the_source_are_not_those_of_the_help(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "dumb")
    with pytest.raises(SystemExit):
        read(Options, ["--help"], "try")
    lines = [line.strip("│ ") for line in capsys.readouterr().out.splitlines()]
    found = {flag: re.sub(r"\s+", " ", line) for flag in HELP for line in lines if line.startswith(flag)}
    assert found == {flag: f"{flag} {text}" for flag, text in HELP.items()}


def test_values_are_read_as_before():
    assert read(Options, ["--far", "5", "--bare"], "try") == Options(far=(5,), bare=True)
    assert read(Options, [], "try") == Options()
