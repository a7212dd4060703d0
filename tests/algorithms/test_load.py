"""Algorithms by name and by file."""

import subprocess
import sys
from pathlib import Path

import pytest

from msrl import loading
from msrl.algorithms import ALGORITHMS, load
from msrl.api import Trainer
from msrl.errors import UsageError

OWN = """
from dataclasses import dataclass
from msrl.api import Agent, Config, Trainer

@dataclass(frozen=True)
class MyConfig(Config):
    extra: int = 3

class Mine(Trainer):
    Config = MyConfig
    def agent(self): ...
    def train(self, msrl): ...

number = 1
"""


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_name_of_the_table_loads(name):
    cls = load(name)
    assert issubclass(cls, Trainer) and cls.__name__ == name.upper()
    assert cls.Config().total_steps > 0 and ALGORITHMS[name][1]


def test_a_file_of_ones_own(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    cls = load(f"{file}:Mine")
    assert issubclass(cls, Trainer) and cls.Config().extra == 3
    assert load(f"{file}:Mine") is cls  # not a second copy, or states of one would not be states of the other
    assert sys.modules[cls.__module__].Mine is cls


@pytest.mark.parametrize("name, message", [
    ("poo", "there is no algorithm 'poo'. Did you mean ppo or mappo?\n"
            "The algorithms are a2c, a3c, dqn, impala, mappo, ppo, sac.\n"
            "For one of your own: write path/to/file.py:TrainerClass."),
    ("zzz", "there is no algorithm 'zzz'.\nThe algorithms are a2c, a3c, dqn, impala, mappo, ppo, sac.\n"
            "For one of your own: write path/to/file.py:TrainerClass."),
    ("nowhere/at_all.py:Mine", "nowhere/at_all.py:Mine: there is no file nowhere/at_all.py.\n"
                               "Write path/to/file.py:TrainerClass."),
    ("mine.py", "mine.py does not say which Trainer it is.\nWrite path/to/file.py:TrainerClass."),
])
def test_names_that_lead_nowhere(name, message):
    with pytest.raises(UsageError) as error:
        load(name)
    assert str(error.value) == message


def test_classes_that_are_no_trainers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_file.py").write_text(OWN)
    (tmp_path / "empty_file.py").write_text("")
    for name, message in {
        "own_file.py:Yours": "own_file.py:Yours: no class 'Yours'.\nThe file has Mine.",
        "own_file.py:number": "own_file.py:number: number is not a Trainer.\nThe file has Mine.",
        "own_file.py:Trainer": "own_file.py:Trainer: Trainer is not a Trainer.\nThe file has Mine.",
        "empty_file.py:Mine": "empty_file.py:Mine: no class 'Mine'.\nThe file has no subclass of Trainer.",
    }.items():
        with pytest.raises(UsageError) as error:
            load(name)
        assert str(error.value) == message + "\nWrite path/to/file.py:TrainerClass."


def test_a_file_that_fails_is_not_remembered(tmp_path):
    file = tmp_path / "broken.py"
    file.write_text("1 / 0")
    with pytest.raises(UsageError):
        load(f"{file}:Mine")
    file.write_text(OWN)
    assert load(f"{file}:Mine").__name__ == "Mine"


@pytest.mark.parametrize("source, message", [
    ("import jax\n\nfrom nowhere_at_all import helper\n", """\
broken.py:Mine cannot be loaded: ModuleNotFoundError.

  broken.py:3
    3 | from nowhere_at_all import helper
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

No module named 'nowhere_at_all'.
Install it, or put it beside broken.py, where it is found."""),
    ("import importer_of_nothing\n", """\
broken.py:Mine cannot be loaded: ModuleNotFoundError.

  importer_of_nothing.py:2
    2 | import nowhere_at_all
        ^^^^^^^^^^^^^^^^^^^^^

No module named 'nowhere_at_all'.
Install it, or put it beside broken.py, where it is found."""),
    ("from . import helper\n", """\
broken.py:Mine cannot be loaded: ImportError.

  broken.py:1
    1 | from . import helper
        ^^^^^^^^^^^^^^^^^^^^

The file is loaded by itself, and not as a part of a package.
Name what lies beside it directly: `import helper` in place of `from . import helper`."""),
    ("class Mine:\n    x = (1,\n    def f(self): ...\n", """\
broken.py:Mine cannot be loaded: SyntaxError.

  broken.py:2
    2 | x = (1,
            ^

'(' was never closed"""),
    ("table = {}\nvalue = table['rate'] * 2\n", """\
broken.py:Mine cannot be loaded: KeyError.

  broken.py:2
    2 | value = table['rate'] * 2
                ^^^^^^^^^^^^^

'rate'"""),
    ("import sys\nsys.exit(0)\n", """\
broken.py:Mine cannot be loaded: SystemExit.

  broken.py:2
    2 | sys.exit(0)
        ^^^^^^^^^^^

It ends the process while it is being loaded.
Put what only a script does under `if __name__ == "__main__":`."""),
])
def test_a_file_that_cannot_be_loaded_names_the_users_line(source, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text(source)
    (tmp_path / "importer_of_nothing.py").write_text("# a helper\nimport nowhere_at_all\n")
    with pytest.raises(UsageError) as error:
        load("broken.py:Mine")
    assert str(error.value) == message


def test_a_file_imports_what_lies_beside_it_and_not_what_lies_beside_another(tmp_path):
    for number in (1, 2):
        folder = tmp_path / str(number)
        (folder / "tools").mkdir(parents=True)
        (folder / "sibling_helper.py").write_text(f"from tools.deep import NUMBER\nassert NUMBER == {number}\n")
        (folder / "tools" / "deep.py").write_text(f"NUMBER = {number}\n")
        (folder / "mine.py").write_text("from sibling_helper import NUMBER\n" + OWN.replace("number = 1", ""))
    before = list(sys.path)
    found = [load(f"{tmp_path / str(number)}/mine.py:Mine") for number in (1, 2)]
    assert [sys.modules[cls.__module__].NUMBER for cls in found] == [1, 2]
    assert sys.path == before


def test_what_lies_beside_a_file_reaches_a_process_without_the_files(tmp_path):
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers" / "__init__.py").write_text("")
    (tmp_path / "helpers" / "rates.py").write_text("class Rate:\n    value = 0.5\n")
    (tmp_path / "beside_it.py").write_text("from helpers.rates import Rate\n")
    (tmp_path / "mine.py").write_text("from beside_it import Rate\n" + OWN)
    module = load(f"{tmp_path}/mine.py:Mine").__module__
    files = loading.sources(lambda name: name == module)
    for file in tmp_path.rglob("*.py"):
        file.unlink()
    program = f"""\
import inspect, sys
from msrl import loading
loading.provide({files!r})
module = sys.modules[{module!r}]
print(module.Rate.value, module.Rate.__module__, inspect.getsource(module.Mine.train).strip())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120,
                          cwd=Path(__file__).parents[2])
    assert done.stdout == "0.5 helpers.rates def train(self, msrl): ...\n"
