"""Environments by name: which one is picked, and what is said when there is none."""

import sys
import textwrap

import gymnasium
import jax
import pytest

from msrl import envs
from msrl.envs.envpool_env import EnvPoolEnv
from msrl.envs.gymnasium_env import GymnasiumEnv
from msrl.envs.pettingzoo_env import PettingZooEnv
from msrl.errors import EnvError
from tests.envs import toys

toys.register()
LIST = "msrl.envs.list_envs() lists what is built in, and explains the forms gymnasium:<id>, envpool:<id>, " \
    "pettingzoo:<module> and <path>.py:<Class>."


def message(id):
    with pytest.raises(EnvError) as caught:
        envs.make(id)
    return str(caught.value)


@pytest.mark.parametrize("id, cls, full", [
    ("gymnasium:CartPole-v1", GymnasiumEnv, "gymnasium:CartPole-v1"),
    ("envpool:CartPole-v1", EnvPoolEnv, "envpool:CartPole-v1"),
    ("HalfCheetah-v4", EnvPoolEnv, "envpool:HalfCheetah-v4"),
    ("msrl/Counter-v0", GymnasiumEnv, "gymnasium:msrl/Counter-v0"),
    ("pettingzoo:mpe2.simple_spread_v3", PettingZooEnv, "pettingzoo:mpe2.simple_spread_v3"),
])
def test_the_spec_says_which_was_picked(id, cls, full):
    env = envs.make(id)
    assert type(env) is cls and env.spec.id == full
    assert envs.make(env.spec.id).spec == env.spec


@pytest.mark.parametrize("name", list(envs.JAX))
def test_jax_environments_come_first(name):
    env = envs.make(name)
    assert env.traceable and env.spec.id == f"jax:{name}"
    assert envs.make(f"jax:{name}").spec == env.spec
    key = jax.random.key(0)
    _, obs = env.reset(env.init(key, 2), key)
    assert obs.shape == env.obs_shape(2).shape


def test_a_bare_id_falls_back_to_gymnasium_without_envpool(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    assert envs.make("HalfCheetah-v5").spec.id == "gymnasium:HalfCheetah-v5"


def test_unknown_ids_name_the_nearest():
    assert message("CartPol-v1") == (
        "There is no environment 'CartPol-v1'.\n"
        f"The nearest that are known: CartPole-v1, CartPole-v0, phys2d/CartPole-v1.\n{LIST}"
    )
    assert message("gymnasium:halfcheeta-v5") == (
        "There is no environment 'gymnasium:halfcheeta-v5'.\n"
        "The nearest that are known: gymnasium:HalfCheetah-v5, gymnasium:HalfCheetah-v4, gymnasium:HalfCheetah-v3.\n"
        + LIST
    )
    assert message("jax:Pendulum-v0") == (
        f"There is no environment 'jax:Pendulum-v0'.\nThe nearest that are known: jax:Pendulum-v1.\n{LIST}"
    )
    assert message("envpool:qqqq") == f"There is no environment 'envpool:qqqq'.\nNo known id resembles it.\n{LIST}"
    assert message("dmc:walker") == (
        "'dmc' in 'dmc:walker' is not a place that environments come from.\n"
        "The prefixes are jax:, gymnasium:, envpool: and pettingzoo:, and a file's name ends in .py:Class.\n" + LIST
    )


@pytest.mark.parametrize("id", ["gymnasium:../x", "gymnasium:a b", "gymnasium:../x:Env-v0", "gymnasium:a:b:c", "../x",
                                "gymnasium:/etc/passwd", "gymnasium:x.py:/y.pyc:E", "gymnasium::", "jax:", ":", ""])
def test_ids_that_are_none(id):
    assert message(id).splitlines()[0] in (f"There is no environment {id!r}.", f"{id!r} does not name an environment.",
                                           f"'x.py' in {id!r} is not a place that environments come from.")


def test_a_name_is_read_in_one_way(tmp_path, monkeypatch):
    """What stands before the last colon is a file only if it ends in .py, for whoever asks."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py:").mkdir()
    (tmp_path / "x.py:" / "y.pyc").write_bytes(b"")
    assert message("x.py:/y.pyc:E").splitlines()[0] == \
        "'x.py' in 'x.py:/y.pyc:E' is not a place that environments come from."


def test_ids_that_gymnasium_explains():
    assert message("gymnasium:LunarLander-v2") == (
        "gymnasium:LunarLander-v2 cannot be made.\n"
        "Gymnasium says: Environment version v2 for `LunarLander` is deprecated. Please use `LunarLander-v3` instead.")
    with pytest.warns(DeprecationWarning, match="out of date"):
        moved = message("gymnasium:HalfCheetah-v2")
    assert moved.startswith(
        "gymnasium:HalfCheetah-v2 cannot be made.\nGymnasium says: The mujoco v2 and v3 based environments have been ")
    assert message("gymnasium:CartPole") == (
        "There is no environment 'gymnasium:CartPole'.\nThe nearest that are known: gymnasium:CartPole-v1, "
        f"gymnasium:CartPole-v0, gymnasium:phys2d/CartPole-v1.\n{LIST}")
    assert message("gymnasium:nowhere/Maze-v0") == (
        f"There is no environment 'gymnasium:nowhere/Maze-v0'.\nNo known id resembles it.\n{LIST}")


def test_a_constructor_that_fails_has_its_line(monkeypatch):
    def crooked():
        raise ValueError("a maze needs a size")

    monkeypatch.setitem(gymnasium.registry, "Crooked-v0", gymnasium.envs.registration.EnvSpec("Crooked-v0", crooked))
    number = crooked.__code__.co_firstlineno + 1
    assert message("gymnasium:Crooked-v0") == (
        f"gymnasium:Crooked-v0 cannot be made: ValueError.\n\n  tests/envs/test_make.py:{number}\n{number:>5} | "
        'raise ValueError("a maze needs a size")\n        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n\n'
        "a maze needs a size")


def test_unknown_pettingzoo_modules():
    form = "Write the path of a module that has one, such as pettingzoo:mpe2.simple_spread_v3."
    assert message("pettingzoo:mpe2.nothing") == (
        "There is no PettingZoo environment 'mpe2.nothing'.\n"
        f"Importing it fails: No module named 'mpe2.nothing'.\n{form}"
    )
    assert message("pettingzoo:nowhere.nothing") == (
        f"There is no PettingZoo environment 'nowhere.nothing'.\nNo package 'nowhere' is installed.\n{form}"
    )
    assert message("pettingzoo:json") == (
        f"There is no PettingZoo environment 'json'.\nThe module has no parallel_env().\n{form}"
    )


def test_missing_extras_are_named(monkeypatch):
    for package in ("envpool", "mujoco", "mpe2"):
        monkeypatch.setitem(sys.modules, package, None)
    assert message("envpool:HalfCheetah-v4") == (
        "envpool: environments need EnvPool, which is not installed.\n"
        "It is an extra, as it is large and not made for every platform.\nRun: pip install 'msrl[envpool]'"
    )
    assert message("HalfCheetah-v5") == (
        "gymnasium:HalfCheetah-v5 needs MuJoCo, which is not installed.\n"
        "It is an extra, as it is large and many environments do without it.\nRun: pip install 'msrl[mujoco]'"
    )
    assert message("pettingzoo:mpe2.simple_spread_v3") == (
        "pettingzoo:mpe2.simple_spread_v3 needs mpe2, which is not installed.\n"
        "Environments of PettingZoo are an extra.\nRun: pip install 'msrl[marl]'"
    )
    assert message("Pong-v5") == (
        "There is no environment 'Pong-v5'.\nNo known id resembles it. EnvPool is not installed; with "
        f"pip install 'msrl[envpool]' its ids are known too.\n{LIST}"
    )


def test_what_gymnasium_says_is_passed_on(monkeypatch):
    def broken():
        raise gymnasium.error.DependencyNotInstalled("box2d is missing")

    monkeypatch.setitem(gymnasium.registry, "Broken-v0", gymnasium.envs.registration.EnvSpec("Broken-v0", broken))
    assert message("gymnasium:Broken-v0") == "gymnasium:Broken-v0 cannot be made.\nGymnasium says: box2d is missing"
    assert message("gymnasium:nowhere:Env-v0") == (
        "gymnasium:nowhere:Env-v0 cannot be made.\nImporting 'nowhere' fails: No module named 'nowhere'."
    )


def test_gymnasium_ids_may_name_the_module_that_registers_them(monkeypatch, tmp_path):
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    (tmp_path / "registers_pole.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Pole-v7', 'gymnasium.envs.classic_control:CartPoleEnv', max_episode_steps=9)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    spec = envs.make("gymnasium:registers_pole:Pole-v7").spec
    assert spec.id == "gymnasium:registers_pole:Pole-v7" and spec.max_episode_steps == 9


FILE = """
from __future__ import annotations
from dataclasses import dataclass
import jax.numpy as jnp
from msrl.api import Box, Discrete, Env, EnvSpec, Step

@dataclass(frozen=True)
class Still(Env):
    width: int = 2
    spec = EnvSpec("whatever", Box((2,)), Discrete(2))

    def init(self, key, num_envs):
        return jnp.zeros((num_envs, self.width))

    def reset(self, state, key):
        return state, state

    def step(self, state, action, key):
        flag = jnp.zeros(len(state), bool)
        return state, Step(state, jnp.ones(len(state)), flag, flag, state)

class Stuck(Still):
    @property
    def spec(self):
        return EnvSpec("whatever", Box((2,)), Discrete(2))
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "still.py"
    path.write_text(textwrap.dedent(FILE))
    return path


def test_a_class_of_ones_own(file):
    env = envs.make(f"{file}:Still")
    assert env.spec.id == f"{file}:Still" and env.traceable
    assert envs.make(env.spec.id).spec == env.spec
    key = jax.random.key(0)
    state, obs = env.reset(env.init(key, 3), key)
    assert env.step(state, None, key)[1].obs.shape == obs.shape == (3, 2)


def test_files_without_the_class(file):
    assert message(f"{file}:Stil") == (
        f"{file} has no environment 'Stil'.\nAn environment is a subclass of msrl.api.Env.\n"
        "Those in the file: Still, Stuck."
    )
    assert message("nowhere/none.py:Still").startswith(
        "There is no file 'nowhere/none.py', in which 'nowhere/none.py:Still' would be.\nLooked in "
    )
    assert message(f"{file}:Stuck") == (
        f"The spec of {file}:Stuck cannot be set.\n"
        "It is a property without a setter, and make writes the environment's full id into it.\n"
        "Set self.spec in the constructor, or use functools.cached_property."
    )


def test_listing():
    listed = dict(envs.list_envs())
    assert list(listed)[: len(envs.JAX)] == list(envs.JAX)
    forms = ["gymnasium:<id>", "envpool:<id>", "pettingzoo:<module>", "<path>.py:<Class>"]
    assert list(listed)[len(envs.JAX):] == forms
    assert all(about and "\n" not in about for about in listed.values())
