"""Environments by name: an id goes in, an `Env` comes out, whose `spec.id` is the full id and makes the same again.

| id | what it makes |
|---|---|
| `jax:CartPole-v1` | a JAX environment of this package: compiled along with the algorithm |
| `envpool:HalfCheetah-v4` | EnvPool's, in C++ threads on the host |
| `gymnasium:HalfCheetah-v5` | Gymnasium's, in Python on the host |
| `pettingzoo:mpe2.simple_spread_v3` | several agents: a module with a `parallel_env()`, in Python on the host |
| `path/to/file.py:MyEnv` | a class of one's own, a subclass of `msrl.api.Env` whose constructor needs no arguments |
| `CartPole-v1` | the first that there is of jax, envpool, gymnasium |
"""

import difflib
import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.envs.registration import ENV_ID_RE

from msrl import loading
from msrl.api.env import Env
from msrl.envs import envpool_env
from msrl.envs.envpool_env import EnvPoolEnv
from msrl.envs.gymnasium_env import GymnasiumEnv
from msrl.envs.objects import from_object
from msrl.envs.pettingzoo_env import PettingZooEnv
from msrl.errors import EnvError
from msrl.tracebacks import author_span, function_span

# id → (module:Class, description). Imported when made, so that a name costs nothing.
JAX = {
    "CartPole-v1": ("msrl.envs.cartpole:CartPole", "Balance a pole on a cart; two actions."),
    "Acrobot-v1": ("msrl.envs.acrobot:Acrobot", "Swing a two-link pendulum above a line; three actions."),
    "MountainCar-v0": ("msrl.envs.mountain_car:MountainCar", "Rock a weak car up a hill; three actions."),
    "Pendulum-v1": ("msrl.envs.pendulum:Pendulum", "Swing a pendulum up and hold it; continuous torque."),
    "simple_spread": ("msrl.envs.simple_spread:SimpleSpread", "Three agents cover three landmarks without colliding."),
    "simple_tag": ("msrl.envs.simple_tag:SimpleTag", "Slow predators chase faster prey."),
}
_LIST = ("msrl.envs.list_envs() lists what is built in, and explains the forms gymnasium:<id>, envpool:<id>, "
         "pettingzoo:<module> and <path>.py:<Class>.")


def make(id: Any) -> Env:
    """The environment called `id`, or the one that an object stands for (objects.py). Its `spec.id` says in full which
    one was picked."""
    if not isinstance(id, str):
        return from_object(id)
    if loading.in_file(id):
        return _from_file(id)
    prefix, colon, name = id.partition(":")
    if not id or (colon and not name):
        raise EnvError(f"{id!r} does not name an environment.", why="There is nothing behind the colon." if id else
                       "It is empty.", instead=_LIST)
    if not colon:
        prefix, name = _pick(id), id
    match prefix:
        case "jax" if name in JAX:
            return _jax(name)
        case "envpool" if not envpool_env.installed() or name in envpool_env.names():
            return EnvPoolEnv(name)
        case "pettingzoo":
            return PettingZooEnv(name)
        case "gymnasium":
            if not _is_gymnasium_id(name):
                raise _unknown(id, name, prefix if colon else "")
            try:
                return GymnasiumEnv(name)
            except gymnasium.error.UnregisteredEnv as error:
                raise _unknown(id, name, prefix if colon else "") from error
        case "object":
            raise EnvError(f"{id} was a Python object of the program that made it.",
                           why="An object cannot be made again from its name.",
                           instead="Give it again, with env= in Python; or put it into a file that registers it with "
                                   "Gymnasium, and name that: gymnasium:module:Name-v0.",
                           docs="docs/environments.md#gymnasium-objects")
        case "jax" | "envpool":
            raise _unknown(id, name, prefix)
    raise EnvError(
        f"{prefix!r} in {id!r} is not a place that environments come from.",
        why="The prefixes are jax:, gymnasium:, envpool: and pettingzoo:, and a file's name ends in .py:Class.",
        instead=_LIST,
    )


def module_in(id: str) -> str | None:
    """The module that is imported because an id names it: code that does not come with MSRL. None where an id only
    says which one of a table is meant."""
    prefix, _, name = id.partition(":")
    if loading.in_file(id) or prefix not in ("gymnasium", "pettingzoo"):
        return None
    return name if prefix == "pettingzoo" else name.rpartition(":")[0] or None


def is_listed(id: str) -> bool:
    """Does the id only say which one of a table is meant: of ours, EnvPool's or Gymnasium's?"""
    prefix, colon, name = id.partition(":")
    if loading.in_file(id):
        return False
    if not colon:
        return _is_gymnasium_id(id)
    return (prefix == "jax" and name in JAX) or (prefix == "gymnasium" and ":" not in name and _is_gymnasium_id(name)) \
        or (prefix == "envpool" and (not envpool_env.installed() or name in envpool_env.names())) \
        or prefix == "object"  # which `make` refuses in words of its own


def list_envs() -> list[tuple[str, str]]:
    """(id, one line about it) of the built-in environments, then of each form that an id can have."""
    return [(name, about) for name, (_, about) in JAX.items()] + [
        ("gymnasium:<id>", "Any id of gymnasium.registry, as gymnasium:HalfCheetah-v5; module:Env-v0 imports first."),
        ("envpool:<id>", "Any id of envpool.list_all_envs(), as envpool:HalfCheetah-v4. pip install 'msrl[envpool]'"),
        ("pettingzoo:<module>", "A module with parallel_env(), as pettingzoo:mpe2.simple_spread_v3. "
                                "pip install 'msrl[marl]'"),
        ("<path>.py:<Class>", "Your own subclass of msrl.api.Env, as envs/maze.py:Maze."),
    ]


def _is_gymnasium_id(name: str) -> bool:
    """[module:][namespace/]name[-v0], as Gymnasium takes it."""
    module, colon, registered = name.rpartition(":")
    return bool(ENV_ID_RE.fullmatch(registered)) and \
        (not colon or all(part.isidentifier() for part in module.split(".")))


def _pick(id: str) -> str:
    """Where a bare id comes from: whichever is fastest and has it."""
    if id in JAX:
        return "jax"
    return "envpool" if id in envpool_env.names() else "gymnasium"


def _jax(name: str) -> Env:
    module, _, cls = JAX[name][0].partition(":")
    return _named(getattr(importlib.import_module(module), cls)(), f"jax:{name}")


def _from_file(id: str) -> Env:
    path = loading.file_in(id)
    if path is None:
        raise EnvError(f"{id!r} does not say which class is the environment.",
                       instead="Write path/to/file.py:Class.")
    file, cls = Path(path), id.removeprefix(f"{path}:")
    if not file.is_file():
        raise EnvError(f"There is no file {path!r}, in which {id!r} would be.", why=f"Looked in {Path.cwd()}.",
                       instead="Write path/to/file.py:Class, with a path that exists from here.")
    module = loading.module_of(path, id, "Write path/to/file.py:Class.")
    found = getattr(module, cls, None)
    if not (isinstance(found, type) and issubclass(found, Env)):
        own = [key for key, value in vars(module).items()
               if isinstance(value, type) and issubclass(value, Env) and value.__module__ == module.__name__]
        raise EnvError(
            f"{path} has no environment {cls!r}.",
            why="An environment is a subclass of msrl.api.Env.",
            instead=f"Those in the file: {', '.join(own)}." if own else "Write one.",
            docs="" if own else "docs/environments.md",
        )
    try:
        env = found()
    except Exception as problem:
        raise EnvError(f"{id} cannot be made: {type(problem).__name__}.",
                       span=author_span(problem) or function_span(found), why=str(problem),
                       instead="An environment in a file is made without arguments.") from problem
    return _named(env, id)


def _named(env: Env, id: str) -> Env:
    """The environment under the id that makes it again."""
    try:
        object.__setattr__(env, "spec", replace(env.spec, id=id))  # which frozen dataclasses allow, too
    except AttributeError as error:
        raise EnvError(
            f"The spec of {id} cannot be set.",
            why="It is a property without a setter, and make writes the environment's full id into it.",
            instead="Set self.spec in the constructor, or use functools.cached_property.",
        ) from error
    return env


def _nearest(name: str, names: list[str]) -> list[str]:
    """The three most alike. Versions count only among equals, or every -v1 would resemble every other."""

    def alike(a: str, b: str) -> float:
        return difflib.SequenceMatcher(None, a.lower(), b.lower()).ratio()

    def bare(each: str) -> str:
        return each.rpartition("/")[2].partition("-v")[0]

    scored = [(alike(bare(name), bare(each)), alike(name, each), each) for each in dict.fromkeys(names)]
    return [each for likeness, _, each in sorted(scored, reverse=True)[:3] if likeness > 0.6]


def _unknown(id: str, name: str, prefix: str) -> EnvError:
    """The error for a name that nothing has, with the nearest names of its prefix, or of all where it is bare."""
    known = {"jax": list(JAX), "gymnasium": list(gymnasium.registry), "envpool": envpool_env.names()}
    names = known[prefix] if prefix else [each for names in known.values() for each in names]
    near = [f"{prefix}:{each}" if prefix else each for each in _nearest(name, names)]
    why = f"The nearest that are known: {', '.join(near)}." if near else "No known id resembles it."
    if not envpool_env.installed():
        why += " EnvPool is not installed; with pip install 'msrl[envpool]' its ids are known too."
    return EnvError(f"There is no environment {id!r}.", why=why, instead=_LIST)


__all__ = ["JAX", "list_envs", "make"]
