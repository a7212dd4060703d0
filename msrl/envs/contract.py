"""What environments promise, held against what they give.

In: what an environment's `reset` or `step` returned. Out: the same, or an EnvError with the environment's class and
line. Shapes and dtypes are looked at in every step: of JAX environments while they are traced, so that it costs
nothing; on the host it takes a microsecond. Whether numbers lie within the bounds of a space is asked of the first
ones only (`check_bounds`).
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from gymnasium import spaces

from msrl.api.env import Env, Step
from msrl.api.spaces import Box, Discrete, MultiDiscrete, Space
from msrl.errors import EnvError, Span
from msrl.tracebacks import function_span

DOCS = "docs/environments.md#what-is-checked"
FIELDS = ("reward", "terminated", "truncated")

log = logging.getLogger("msrl.envs")


def broken(cls: type, method: str, what: str, instead: str, why: str = "") -> EnvError:
    """The error for an environment of that class, whose method gives what it must not."""
    return EnvError(f"{cls.__name__}.{method} {what}", also=line_of(cls, method), why=why, instead=instead, docs=DOCS)


def line_of(cls: type, method: str) -> Span | None:
    """Where the author wrote the method; if it is inherited from this package or Gymnasium, where the class is."""
    function: Callable[..., Any] | None = getattr(cls, method, None)
    inherited = function is None or function.__module__.partition(".")[0] in ("msrl", "gymnasium")
    return function_span(cls if inherited else function)


def describe(value: Any) -> str:
    """`float32[4, 2]`; other things by their type."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}{list(value.shape)}"
    leaves = jax.tree.leaves(value)
    if isinstance(value, (dict, tuple, list)) and all(hasattr(leaf, "dtype") for leaf in leaves):
        return str(jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape)}", value)).replace("'", "")
    return f"{type(value).__name__} {value!r}" if value is None or isinstance(value, (bool, int, float, str)) else \
        f"a {type(value).__name__}"


# -- environments of one's own -----------------------------------------------------------------------------------------


def check_pair(found: Any, env: Env, method: str) -> tuple[Any, Any]:
    """(state, observations) or (state, Step)."""
    second = "observations" if method == "reset" else "Step"
    if not (isinstance(found, tuple) and len(found) == 2):
        given = f"a tuple of {len(found)}" if isinstance(found, tuple) else describe(found)
        raise broken(type(env), method, f"returns {given}.", f"Return two things: the state and the {second}.")
    return found


def check_step(step: Step, env: Env, expected: Step) -> None:
    """A Step of an `Env`, against the shapes that it promises."""
    if not isinstance(step, Step):
        raise broken(type(env), "step", f"returns a state and {describe(step)}.",
                     "Return two things: the state and a msrl.api.Step.")
    for name in FIELDS:
        check_array(getattr(step, name), getattr(expected, name), env, "step", name)
    check_obs(step.obs, expected.obs, env, "step", "obs")
    if step.final_obs is not step.obs:
        check_obs(step.final_obs, expected.obs, env, "step", "final_obs")


def check_obs(obs: Any, expected: Any, env: Env, method: str, name: str) -> None:
    if isinstance(expected, jax.ShapeDtypeStruct):
        # What JAX traces says itself what it is, and has no need of an obs_shape.
        if not env.traceable or not isinstance(obs, (dict, tuple, list)):
            check_array(obs, expected, env, method, name)
        return
    found, wanted = jax.tree.structure(obs), jax.tree.structure(expected)
    if found != wanted:
        raise broken(type(env), method, f"gives the {name} {describe(obs)}.",
                     f"obs_shape promises {describe(expected)}: give what it says, or let it say something else.")
    for (path, leaf), shape in zip(jax.tree_util.tree_leaves_with_path(obs), jax.tree.leaves(expected), strict=True):
        check_array(leaf, shape, env, method, f"{name}{jax.tree_util.keystr(path)}")


def check_array(value: Any, expected: jax.ShapeDtypeStruct, env: Env, method: str, name: str) -> None:
    if getattr(value, "shape", None) == expected.shape and getattr(value, "dtype", None) == expected.dtype:
        return
    if not hasattr(value, "dtype"):
        instead = f"Give an array: np.asarray({name}, np.{expected.dtype})"
    elif value.shape == expected.shape:
        instead = f"Convert it: {name}.astype(np.{expected.dtype})"
    else:
        instead = "Its first dimension is the number of environments, and the others are those of the space."
    promise = f"Its spec says {env.spec.observation}" if "obs" in name else "So it is in every Step"
    article = "an" if name[0] == "o" else "a"
    raise broken(type(env), method, f"gives {article} {name} that is {describe(value)}.", instead,
                 f"{promise}: of {expected.shape[0]} environments that is {describe(expected)}.")


def check_ends(step: Step, env: Env) -> None:
    """On the host: no end is of both kinds."""
    if (step.terminated & step.truncated).any():
        raise broken(type(env), "step", "gives an end that is both terminated and truncated.",
                     "In a terminal state that the time limit falls on, leave truncated False.",
                     "A terminal state has the value 0, and a truncated episode the value of what would have followed.")


def check_bounds(obs: Any, space: Space, cls: type, method: str) -> None:
    """Choices that do not exist are refused; numbers outside a Box are told of, as many environments do without exact
    bounds, and no algorithm here needs them of observations."""
    if not isinstance(obs, np.ndarray):
        return
    match space:
        case Discrete(n=most):
            outside = (obs < 0) | (obs >= most)
        case MultiDiscrete(nvec=each):
            outside = (obs < 0) | (obs >= np.array(each))
        case Box(low=low, high=high):
            outside = (obs < np.asarray(low)) | (obs > np.asarray(high))
    if not outside.any():
        return
    value = obs[outside].flat[0]
    what = f"gives the observation {value:g}, which lies outside its space, {space}."
    if not isinstance(space, Box):
        raise broken(cls, method, what, "Give one of the choices of the space, or a space with more of them.")
    where = line_of(cls, method)
    log.warning("%s.%s %s Its bounds are %s to %s. Mend the space, if something depends on it.%s", cls.__name__, method,
                what, _short(low), _short(high), f" ({where})" if where else "")


def _short(bound: Any) -> str:
    return f"{bound:g}" if isinstance(bound, (int, float)) else f"[{np.min(bound):g}, ..., {np.max(bound):g}]"


# -- Gymnasium's -------------------------------------------------------------------------------------------------------


class Promise:
    """What one Gymnasium environment gives, or what one agent of several is given, checked by its own space."""

    def __init__(self, cls: type, space: spaces.Space, receiver: str = ""):
        self.cls, self.space, self.receiver = cls, space, receiver
        self.shape, self.dtype = self.space.shape, self.space.dtype

    def began(self, found: Any) -> Any:
        """The observation in what `reset` returned."""
        if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], Mapping)):
            raise broken(self.cls, "reset", f"returns {_told(found)}.",
                         "Return two things: the observation and a dict, `return obs, {}`.", GYMNASIUM)
        self.observed(found[0], "reset")
        return found[0]

    def stepped(self, found: Any) -> tuple[Any, Any, bool, bool]:
        """Observation, reward, terminated and truncated in what `step` returned."""
        if not (isinstance(found, tuple) and len(found) == 5):
            raise broken(self.cls, "step", f"returns {_told(found)}.",
                         "Return five things: `return obs, reward, terminated, truncated, {}`.", GYMNASIUM)
        obs, reward, terminated, truncated, info = found
        if not isinstance(info, Mapping):
            raise broken(self.cls, "step", f"gives an info that is {describe(info)}.", "Give a dict: {}.", GYMNASIUM)
        self.observed(obs, "step")
        return obs, *self.ended(reward, terminated, truncated)

    def ended(self, reward: Any, terminated: Any, truncated: Any) -> tuple[Any, bool, bool]:
        """The same reward and flags, each of which is one number."""
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if type(flag) not in _FLAGS and not _is_scalar(flag, "biu"):
                raise broken(self.cls, "step", f"gives {self.receiver}a {name} that is {describe(flag)}.",
                             f"Give one truth value: bool({name}).", GYMNASIUM)
        if type(reward) not in _REWARDS and not _is_scalar(reward, "fiub"):
            raise broken(self.cls, "step", f"gives {self.receiver}a reward that is {describe(reward)}.",
                         "Give one number: float(reward).", GYMNASIUM)
        return reward, bool(terminated), bool(truncated)

    def observed(self, obs: Any, method: str) -> None:
        if type(obs) is np.ndarray and obs.shape == self.shape and obs.dtype == self.dtype and self.shape:
            return  # the usual case, and Python has to be quick about it
        array = _array(obs)
        space = f"Its observation_space is {self.space}."
        if array is None or array.shape != self.shape:
            shown = describe(obs if array is None else array)
            raise broken(self.cls, method, f"gives {self.receiver}an observation that is {shown}.",
                         f"Give an array of the shape {self.shape}, or another space.", space)
        if not np.can_cast(array.dtype, self.dtype, "same_kind"):
            raise broken(self.cls, method, f"gives {self.receiver}an observation that is {describe(array)}.",
                         f"Give {self.dtype}, or a space of {array.dtype}: what is converted would lose its fractions.",
                         space)
        if isinstance(self.space, spaces.Discrete) and not 0 <= array - self.space.start < self.space.n:
            raise broken(self.cls, method, f"gives {self.receiver}the observation {array}, which lies outside its "
                         "space.", "Give one of the choices of the space, or a space with more of them.", space)


class ParallelPromise:
    """What one of PettingZoo's parallel environments gives: the same for each agent that takes part."""

    def __init__(self, env: Any):
        self.cls = type(env.unwrapped)
        self.agents = {agent: Promise(self.cls, env.observation_space(agent), f"{agent} ")
                       for agent in env.possible_agents}

    def began(self, found: Any, alive: set[str]) -> Mapping[str, Any]:
        """The observations in what `reset` returned."""
        seen, _ = self.dicts(found, "reset", ("observations", "infos"))
        for agent in filter(alive.__contains__, self.agents):
            self.agents[agent].observed(self.of(agent, seen, "reset", "observations"), "reset")
        return seen

    def stepped(self, found: Any, alive: set[str]) -> tuple[Mapping[str, Any], dict[str, tuple[Any, bool, bool]]]:
        """The observations in what `step` returned; by agent, the reward and how it ended."""
        names = ("observations", "rewards", "terminations", "truncations", "infos")
        seen, *ends, _ = self.dicts(found, "step", names)
        ended = {}
        for agent in filter(alive.__contains__, self.agents):
            self.agents[agent].observed(self.of(agent, seen, "step", names[0]), "step")
            ended[agent] = self.agents[agent].ended(*(
                self.of(agent, each, "step", name) for each, name in zip(ends, names[1:4], strict=True)))
        return seen, ended

    def dicts(self, found: Any, method: str, names: tuple[str, ...]) -> tuple[Mapping[str, Any], ...]:
        instead = f"Return {len(names)} dicts by agent: {', '.join(names)}."
        if not (isinstance(found, tuple) and len(found) == len(names)):
            raise broken(self.cls, method, f"returns {_told(found)}.", instead, PETTINGZOO)
        for name, each in zip(names, found, strict=True):
            if not isinstance(each, Mapping):
                raise broken(self.cls, method, f"gives {name} that are {describe(each)}.", instead, PETTINGZOO)
        return found

    def of(self, agent: str, given: Mapping[str, Any], method: str, name: str) -> Any:
        if agent not in given:
            raise broken(self.cls, method, f"gives {name} without {agent}, which takes part.",
                         "Give one for every agent of `agents`, and in the step in which it ends.", PETTINGZOO)
        return given[agent]


PETTINGZOO = "So PettingZoo's parallel environments have it."
GYMNASIUM = "Gymnasium's environments have returned that since version 0.26."
_FLAGS, _REWARDS = (bool, np.bool_), (float, np.float64, np.float32)  # the usual ones, which need no second look


def _told(found: Any) -> str:
    if isinstance(found, tuple):
        return f"a tuple of {len(found)}" + (f" whose info is {describe(found[-1])}" if len(found) == 2 else "")
    return describe(found)


def _is_scalar(value: Any, kinds: str) -> bool:
    array = _array(value)
    return array is not None and array.shape == () and array.dtype.kind in kinds


def _array(value: Any) -> np.ndarray | None:
    try:
        array = np.asarray(value)
    except Exception:  # rows of different lengths, for instance
        return None
    return None if array.dtype.kind in "OUSV" else array
