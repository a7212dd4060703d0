"""config.json, result.json and an update's manifest, with anything in them: a message and exit code 2, and no
traceback."""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from msrl.cli.main import main
from msrl.errors import EnvError, UsageError
from msrl.playing import load_players
from msrl.resuming import resumed
from msrl.runtime.fingerprint import seal_of
from msrl.runtime.reading import DEEPEST, FIELDS, LARGEST, RESULT_FIELDS
from tests.cli.conftest import TINY

DEEP = "[" * 100_000 + "]" * 100_000
NESTED = "[" * DEEPEST + "]" * DEEPEST
VALUES = {"null": "null", "true": "true", "text": '"what"', "list": "[]", "lists": "[[1], [2]]", "object": '{"a": 1}',
          "negative": "-1", "fraction": "0.5", "huge": "1" + "0" * 400, "endless": "1" * 5000, "infinite": "1e999",
          "nan": "NaN", "64 bits": str(2**63 - 1), "deep": DEEP, "nested": NESTED, "escape": '"\\u001b[2J"'}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound") / "run"
    assert main(["train", f"{TINY}:Tiny", "--env", "CartPole-v1", "--eval-episodes", "5", "--checkpoint-every", "1",
                 "--run-dir", str(folder)]) == 0
    return folder


@pytest.fixture
def run(sound, tmp_path):
    shutil.copytree(sound, tmp_path / "run")
    return tmp_path / "run"


def put(file: Path, path: tuple, value: str) -> None:
    """Replaces a value of a JSON file by text, which need not be JSON; if it is, the file has its checksum."""
    whole = json.loads(file.read_text())
    inner = whole
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = "%here%"
    text = json.dumps(whole).replace('"%here%"', value)
    with suppress(ValueError, RecursionError):
        about = json.loads(text)
        text = json.dumps({**about, "sha256": seal_of(about)}).replace("Infinity", "1e999")
    file.write_text(text)


def is_good(field: str, value: str) -> bool:
    """Some of the values are sound ones for some fields."""
    kind = FIELDS[field]
    if kind in (str, bool, dict):
        names = field in ("algorithm", "env_id", "observation", "action")
        return {str: not names and value == "text", bool: value == "true", dict: value == "object" and field == "flags"
                }[kind]
    return field == "env_timeout" and value == "fraction"


@pytest.mark.parametrize("field", FIELDS)
def test_config_json(msrl, run, field):
    text = (run / "config.json").read_text()
    about = {**json.loads(text), "status": "running"}
    text = json.dumps(about)
    del about[field]
    (run / "config.json").write_text(json.dumps(about))
    for command in ("eval", "resume"):
        assert msrl(command, run) == (2, "", f"""\
UsageError: {run} is not a run folder.
{run}/config.json is not one that `msrl train` writes: it has no '{field}'.
Name a folder that `msrl train` made, for instance one under runs/.
""")
    for name, value in VALUES.items():
        if is_good(field, name):
            continue
        (run / "config.json").write_text(text)
        put(run / "config.json", (field,), value)
        spaces = field in ("observation", "action") and name == "text"  # which a checkpoint has no use for
        for read in (load_players,) if spaces else (load_players, resumed):
            refused(read, run)


def refused(read: Callable[[Path], Any], run: Path) -> None:
    """By what the commands call: to read their arguments takes longer."""
    with pytest.raises((UsageError, EnvError)) as caught:
        read(run)
    assert all(len(line) < 1000 and "\x1b" not in line for line in str(caught.value).splitlines())


SETTINGS = ["total_steps", "num_envs", "shards", "learner_shards", "agent_shards", "noise", "widths", "normalise",
            "steps"]


@pytest.mark.parametrize("field", SETTINGS)
def test_settings(run, field):
    put(run / "config.json", ("status",), '"running"')
    text = (run / "config.json").read_text()
    default = json.loads(text)["config"][field]
    for name, value in VALUES.items():
        good = {bool: name == "true", list: name == "list", float: name in ("negative", "fraction", "64 bits"),
                int: name in ("negative", "64 bits")}[type(default)]
        (run / "config.json").write_text(text)
        put(run / "config.json", ("config", field), value)
        if not good:
            for read in (load_players, resumed):
                refused(read, run)


@pytest.mark.parametrize("text, why", [
    ("", "it is not JSON"), ("[]", "it is not a JSON object"), (DEEP, "it is too deep"), ("\x00", "it is not JSON"),
    (f'{{"a": {NESTED}}}', f"it is more than {DEEPEST} levels deep"),
    (" " * (LARGEST + 1), f"it has {LARGEST + 1:,} bytes"), ('{"a": 1e999}', "it has the number inf"),
    ('{"a": 18446744073709551616}', "it has a number of more than 64 bits")],
    ids=["empty", "list", "deep", "zero", "nested", "large", "infinite", "long"])
def test_whole_files(msrl, run, text, why):
    (run / "config.json").write_text(text)
    assert msrl("eval", run)[2].splitlines()[1] == f"{run}/config.json is not one that `msrl train` writes: {why}."
    (run / "config.json").write_bytes(b"\xff\xfe{}")
    assert msrl("resume", run)[2].splitlines()[1].endswith("writes: it is not JSON.")


@pytest.mark.parametrize("path", [(name,) for name in RESULT_FIELDS] + [("per_seed", 0), ("per_seed", 0, "seed"),
                                                                       ("per_seed", 0, "weights_sha256")])
def test_result_json(run, path):
    text = (run / "result.json").read_text()
    for name, value in VALUES.items():
        if (path[-1], name) == ("status", "text"):
            continue
        (run / "result.json").write_text(text)
        put(run / "result.json", path, value)
        refused(load_players, run)


@pytest.mark.parametrize("field", ["shards", "learner_shards", "agent_shards", "num_envs"])
def test_as_many_as_there_can_be(msrl, run, field):
    """Numbers that are read well, and that nothing has room for."""
    put(run / "config.json", ("config", field), str(2**63 - 1))
    code, _, err = msrl("eval", run, "--episodes", "1")
    assert code == (0 if field == "num_envs" else 2), err  # which weights do not depend on
