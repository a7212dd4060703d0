"""Algorithms by name and by file."""

import sys

import pytest

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
    with pytest.raises(ZeroDivisionError):
        load(f"{file}:Mine")
    file.write_text(OWN)
    assert load(f"{file}:Mine").__name__ == "Mine"
