"""Small configurations: what the user gave stays, the rest fits it, and there are as many updates as were asked for."""

from dataclasses import dataclass

import pytest

from msrl import envs
from msrl.algorithms import load
from msrl.api import Config
from msrl.errors import UsageError
from msrl.ir.graph import For
from msrl.sizing import for_updates, graph_of, learning_loop, smallest
from tests.matrix.loops import LOOPS
from tests.matrix.toys import Corridor


@dataclass(frozen=True)
class Long(Config):
    rollout: int = 500
    num_envs: int = 64


@dataclass(frozen=True)
class Picky(Long):
    def check(self) -> None:
        if self.rollout < 100:
            raise UsageError("Too short.")


@pytest.mark.parametrize("given, wanted", [
    ({}, (8, 4, 32)),
    ({"num_envs": 6}, (6, 3, 32)),
    ({"num_envs": 5}, (5, 1, 32)),
    ({"shards": 2}, (8, 2, 32)),
    ({"shards": 3}, (6, 3, 32)),
    ({"learner_shards": 2}, (8, 4, 32)),
    ({"learner_shards": 3}, (6, 3, 32)),
    ({"learner_shards": 8}, (8, 8, 32)),
    ({"num_envs": 9, "learner_shards": 2}, (9, 1, 32)),  # cannot be, and compiling will say why
    ({"rollout": 200}, (8, 4, 200)),
])
def test_smallest(given, wanted):
    config = smallest(Long(**given), given.keys())
    assert (config.num_envs, config.shards, config.rollout) == wanted
    assert all(getattr(config, name) == value for name, value in given.items())


def test_what_does_not_fit_another_field_stays():
    assert smallest(Picky(), ()).rollout == 500


@pytest.mark.parametrize("name, env, steps", [
    ("ppo", "CartPole-v1", 3 * 8 * 32), ("dqn", "CartPole-v1", 128 + 3 * 8), ("sac", "Pendulum-v1", 128 + 3 * 8)])
def test_as_many_updates_as_asked_for(name, env, steps):
    cls, made = load(name), envs.make(env)
    config = for_updates(cls, smallest(cls.Config(), ()), made, 3)
    assert config.total_steps == steps
    loop = learning_loop(graph_of(cls, config, made))
    assert isinstance(loop, For) and loop.trips == 3


def test_a_loop_of_its_own_length():
    cls = LOOPS["Plain"]
    config = for_updates(cls, cls.Config(), Corridor(), 99)
    assert config.total_steps == 1
    assert learning_loop(graph_of(cls, config, Corridor())).trips < 99


def test_a_loop_whose_length_is_not_known():
    cls = LOOPS["While"]
    with pytest.raises(UsageError) as caught:
        for_updates(cls, cls.Config(), Corridor(), 3)
    assert str(caught.value) == """\
How many updates there will be is not known before the loop runs.
No loop of it learns.
Say how long it is to run: --total-steps 1000, for instance."""
