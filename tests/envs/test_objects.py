"""Environments as Python objects: Gymnasium's, their classes, and functions that make them."""

import pickle
import threading

import cloudpickle
import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.wrappers import ClipReward, TimeLimit

import msrl
from msrl import envs
from msrl.envs.gymnasium_env import GymnasiumEnv
from msrl.errors import EnvError, MsrlError
from msrl.pipeline import Deployment
from tests.envs import toys
from tests.matrix.toys import Corridor

toys.register()
TINY = dict(num_envs=2, rollout=4, total_steps=16, epochs=1, minibatches=1, hidden=(4,), eval_episodes=1,
            progress=False)
SEE = "See docs/environments.md#gymnasium-objects."
FACTORY = "Give a function that makes one: env=lambda: MyEnv(...)."


class Kept(toys.Counter):
    """One that cannot be copied."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


class Unrecorded(gymnasium.Wrapper):
    """A wrapper whose arguments Gymnasium does not know."""


@pytest.mark.parametrize("given, id", [
    (lambda: gymnasium.make("CartPole-v1"), "gymnasium:CartPole-v1"),
    (lambda: gymnasium.make("CartPole-v1", sutton_barto_reward=True), "object:CartPole-v1"),
    (lambda: ClipReward(gymnasium.make("msrl/Counter-v0"), 0, 2), "object:msrl/Counter-v0"),
    (lambda: Unrecorded(gymnasium.make("CartPole-v1")), "object:CartPoleEnv"),
    (toys.Counter, "object:Counter"),
    (lambda: toys.Counter, "object:Counter"),
    (lambda: lambda: TimeLimit(toys.Counter(), 3), "object:Counter"),
    (lambda: Corridor, "corridor"),
    (Corridor, "corridor"),
], ids=["registered", "arguments", "wrapped", "unrecorded", "an own object", "class", "factory", "ours", "our object"])
def test_it_trains(given, id):
    env = envs.make(given())
    assert env.spec.id == id
    key = jax.random.key(0)
    state, obs = env.reset(env.init(key, 3), key)
    assert obs.shape == (3, *env.spec.observation.shape)
    _, step = env.step(state, np.zeros(3, np.int32), key)
    assert step.obs.shape == obs.shape
    env.close()


def test_copies_have_the_objects_arguments_and_wrappers():
    given = ClipReward(gymnasium.make("msrl/Counter-v0"), 0, 2)
    env = envs.make(given)
    state, _ = env.reset(env.init(None, 2), jax.random.key(0))
    _, step = env.step(state, np.array([1, 2], np.int32), None)
    assert step.reward.tolist() == [2.0, 2.0]  # 2 and 3, clipped
    assert given.reset(seed=1)[0].tolist() == [0, 0]  # the object itself is left alone
    env.close()


def test_training_on_an_object_is_training_on_its_id():
    found = [msrl.train("ppo", env=env, strict=True, **TINY) for env in
             ("gymnasium:CartPole-v1", gymnasium.make("CartPole-v1"), lambda: gymnasium.make("CartPole-v1"))]
    assert found[0].weights_sha256 == found[1].weights_sha256 == found[2].weights_sha256


def test_a_factory_reaches_other_processes():
    env = envs.make(lambda: TimeLimit(toys.Counter(), 3))
    env.timeout = 2.0
    other = cloudpickle.loads(cloudpickle.dumps(env))
    assert isinstance(other, GymnasiumEnv) and other.spec == env.spec and other.timeout == 2.0
    assert pickle.loads(pickle.dumps(envs.make("gymnasium:CartPole-v1"))).factory is None


def test_under_threads_every_actor_has_copies():
    result = msrl.train("ppo", env=lambda: gymnasium.make("CartPole-v1"), shards=2, deployment=Deployment(
        "single-learner-coarse", actors=2), **TINY)
    assert result.env_steps == 16


def test_a_run_on_an_object_goes_on_where_it_is_given_again(tmp_path):
    def make():
        return gymnasium.make("CartPole-v1", sutton_barto_reward=True)

    msrl.train("ppo", env=make, run_dir=tmp_path / "run", checkpoint_every=1, **TINY)
    with pytest.raises(MsrlError):
        msrl.resume(tmp_path / "run", total_steps=32, progress=False)
    assert msrl.resume(tmp_path / "run", env=make, total_steps=32, progress=False).env_steps == 32


def broken():
    raise ValueError("no such maze")


@pytest.mark.parametrize("given, message", [
    (Kept(), "The Kept object cannot be copied.\nSeveral environments run side by side, and to copy it raises "
             f"TypeError: cannot pickle '_thread.lock' object.\n{FACTORY}\n{SEE}"),
    (gymnasium.make_vec("CartPole-v1", 2, "sync"),
     "SyncVectorEnv is several environments at once.\nHow many run side by side is a setting, num_envs, and each is "
     f"reset and saved by itself.\n{FACTORY}\n{SEE}"),
    (7, "An environment cannot be made from something of the type int.\nIt is an id such as 'CartPole-v1', a "
        "msrl.api.Env, a gymnasium.Env, or a function that makes one of these.\nFor several agents, name a module: "
        f"'pettingzoo:mpe2.simple_spread_v3'.\n{SEE}"),
    (dict, "dict makes no environment, but something of the type dict.\n"
           f"Let it return a gymnasium.Env or a msrl.api.Env.\n{SEE}"),
    (broken, "broken cannot make an environment: ValueError.\n\n  tests/envs/test_objects.py:LINE\n"
             '  LINE | raise ValueError("no such maze")\n         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n\n'
             f"no such maze\nIt is called without arguments.\n{SEE}"),
    ("object:Maze", "object:Maze was a Python object of the program that made it.\n"
                    "An object cannot be made again from its name.\nGive it again, with env= in Python; or put it into "
                    "a file that registers it with Gymnasium, and name that: gymnasium:module:Name-v0.\n" + SEE),
], ids=["uncopied", "vector", "number", "dict", "broken", "id"])
def test_what_cannot_be_taken(given, message):
    number = str(broken.__code__.co_firstlineno + 1)
    with pytest.raises(EnvError) as caught:
        envs.make(given)
    assert str(caught.value) == message.replace("  LINE |", f"{number:>5} |").replace("LINE", number).replace(
        "\n         ^", "\n        ^")
