"""Environments given as Python objects: a Gymnasium environment, its class, or a function that makes one.

Several environments run side by side, so what comes out makes copies: by the object's own specification, if
`gymnasium.make` made it; else by copying the object itself; or by calling what was given, as often as needed.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium

from msrl.api.env import Env
from msrl.envs.gymnasium_env import GymnasiumEnv
from msrl.errors import EnvError
from msrl.tracebacks import author_span

DOCS = "docs/environments.md#gymnasium-objects"
_FACTORY = "Give a function that makes one: env=lambda: MyEnv(...)."


def from_object(given: Any) -> Env:
    """The environment that an object stands for: itself, if it is one of ours."""
    if isinstance(given, Env):
        return given
    if isinstance(given, gymnasium.Env):
        return _from_gymnasium(given)
    if isinstance(given, gymnasium.vector.VectorEnv):
        raise EnvError(f"{type(given).__name__} is several environments at once.",
                       why="How many run side by side is a setting, num_envs, and each is reset and saved by itself.",
                       instead=_FACTORY, docs=DOCS)
    if callable(given):
        return _from_factory(given)
    raise EnvError(f"An environment cannot be made from something of the type {type(given).__name__}.",
                   why="It is an id such as 'CartPole-v1', a msrl.api.Env, a gymnasium.Env, or a function that makes "
                       "one of these.",
                   instead="For several agents, name a module: 'pettingzoo:mpe2.simple_spread_v3'.", docs=DOCS)


def _from_gymnasium(env: gymnasium.Env) -> GymnasiumEnv:
    name = type(env.unwrapped).__name__
    spec = env.spec
    if spec is not None and all(wrapper.kwargs is not None for wrapper in spec.additional_wrappers):
        if _is_registered(spec):
            return GymnasiumEnv(spec.id)
        return GymnasiumEnv(spec.id, partial(gymnasium.make, spec, disable_env_checker=True))
    try:
        copy.deepcopy(env)
    except Exception as problem:
        raise EnvError(f"The {name} object cannot be copied.",
                       why=f"Several environments run side by side, and to copy it raises {type(problem).__name__}: "
                           f"{problem}.", instead=_FACTORY, docs=DOCS) from problem
    return GymnasiumEnv(name, partial(copy.deepcopy, env))


def _is_registered(spec: gymnasium.envs.registration.EnvSpec) -> bool:
    """Does the id alone make the same?"""
    known = gymnasium.registry.get(spec.id)
    return known is not None and not spec.additional_wrappers and all(
        getattr(spec, field) == getattr(known, field) for field in ("entry_point", "kwargs", "max_episode_steps"))


def _from_factory(make: Callable[[], Any]) -> Env:
    title = getattr(make, "__name__", type(make).__name__)
    try:
        made = make()
    except Exception as problem:
        raise EnvError(f"{title} cannot make an environment: {type(problem).__name__}.", span=author_span(problem),
                       why=f"{problem}", instead="It is called without arguments.", docs=DOCS) from problem
    if isinstance(made, Env):
        return made
    if not isinstance(made, gymnasium.Env):
        raise EnvError(f"{title} makes no environment, but something of the type {type(made).__name__}.",
                       instead="Let it return a gymnasium.Env or a msrl.api.Env.", docs=DOCS)
    made.close()
    return GymnasiumEnv(type(made.unwrapped).__name__, make)
