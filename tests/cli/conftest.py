import json
import os
from pathlib import Path

import pytest

from msrl.cli.main import main

TINY = Path(__file__).with_name("tiny.py")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """Compiled programs outlive a test, but not the tests."""
    before = os.environ.get("MSRL_CACHE_DIR")
    os.environ["MSRL_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["MSRL_CACHE_DIR"]
    else:
        os.environ["MSRL_CACHE_DIR"] = before


@pytest.fixture
def msrl(capsys, monkeypatch, tmp_path):
    """Runs a command in an empty folder: (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "dumb")

    def run(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def train(msrl):
    """Trains a tiny algorithm: the JSON of its last line."""
    def run(*args: str, algorithm: str = "Tiny", env: str = "CartPole-v1") -> dict:
        code, out, err = msrl("train", f"{TINY}:{algorithm}", "--env", env, "--json", "--eval-episodes", "5", *args)
        assert code == 0, err
        return json.loads(out.splitlines()[-1])

    return run
