"""Playing later what was learnt: `snapshot` takes from a program what is worth keeping, `load_players` plays it.

What is kept is the parameters, the weights that actors need, and what the environment's wrappers have learnt, such as a
normaliser's statistics. The same seed and number of episodes give the same returns as `Program.evaluate` gave.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from msrl import algorithms, envs
from msrl.api import Agent, Env, EnvSpec, Space
from msrl.engines.evaluation import Episodes, Evaluator
from msrl.engines.world import check_shards
from msrl.envs.wrappers import EpisodeStats, Wrapped, Wrapper
from msrl.errors import EnvError, UsageError
from msrl.pipeline import Program
from msrl.runtime import weights
from msrl.runtime.fingerprint import sealed
from msrl.runtime.folder import FINISHED
from msrl.runtime.reading import read_config, read_result
from msrl.runtime.weights import weights_sha256
from msrl.trust import read_settings, resolve

# -- what is kept ------------------------------------------------------------------------------------------------------


def snapshot(program: Program) -> list[dict[str, Any]]:
    """Per seed, all that is worth keeping, copied to the host: what the next chunk does cannot change it."""
    kept = zip(program.params(), program.per_seed("$weights"), program.env_states(), strict=True)
    return [jax.tree.map(_copy, {"params": params, "weights": mine,
                                 "env": [learnt(program.env, state) for state in states]})
            for params, mine, states in kept]


def _copy(leaf: Any) -> Any:
    return leaf if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) \
        else np.array(leaf)


def learnt(env: Env, state: Any) -> Any:
    """The part of a shard's state that `Env.frozen` looks at: of wrappers that freeze something, their own; of an
    environment that does, all its arrays."""
    if isinstance(env, Wrapper):
        return {"inner": learnt(env.env, state.inner), "own": state.own if _freezes(env) else None}
    return jax.tree.map(lambda x: x if isinstance(x, (jax.Array, np.ndarray)) else None, state) if _freezes(env) \
        else None


def recalled(env: Env, kept: Any) -> Any:
    """A state for `Env.frozen` out of what `learnt` kept."""
    return Wrapped(recalled(env.env, kept["inner"]), kept["own"]) if isinstance(env, Wrapper) else kept


def _form(env: Env, num_envs: int) -> Any:
    """What `learnt` would keep, of a state before the first reset."""
    if isinstance(env, Wrapper):
        return {"inner": _form(env.env, num_envs), "own": env.start(num_envs) if _freezes(env) else None}
    return learnt(env, env.init(jax.random.key(0), num_envs)) if _freezes(env) else None


def _freezes(env: Env) -> bool:
    return type(env).frozen not in (Env.frozen, Wrapper.frozen)


# -- from a run folder -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Player:
    """One seed of a run, ready to play."""

    seed: int
    env: Env  # frozen
    weights: Any
    evaluator: Evaluator  # one for all seeds

    def play(self, episodes: int) -> Episodes:
        return self.evaluator(self.env, self.weights, jax.random.key(self.seed), episodes)


def load_players(path: Path, env: str | None = None, algorithm: str | None = None) -> list[Player]:
    """What a run folder's seeds have learnt, in the environment of the run or another one with the same spaces."""
    about = read_config(path)
    seeds = [seed for seed in about["seeds"] if (path / "weights" / str(seed)).is_dir()]
    if not seeds:
        raise UsageError(f"{path} has no weights.", why=f"The run's status is {about['status']!r}.",
                         instead=f"Train it again: sh {path / 'reproduce.sh'}")
    again = f"msrl eval {shlex.quote(str(path))}"
    algorithm = resolve("algorithm", about["algorithm"], algorithm, again)
    env = resolve("env", about["env_id"], env, again)
    cls = algorithms.load(algorithm)
    settings = read_settings(cls, about["config"], path)
    if not sealed(about):
        raise UsageError(f"{path / 'config.json'} was changed since the run wrote it.",
                         why="It does not have its checksum, so that what is played might not be what was trained.",
                         instead="Put it back as it was.", docs="docs/resuming.md")
    base = envs.make(env)
    _check_spaces(base.spec, about)
    check_shards(settings, base)
    wrapped = cls.wrap(EpisodeStats(base), settings)
    agent = cls(settings, wrapped.spec).agent()
    form = _form(wrapped, settings.num_envs // settings.shards)
    like = {**jax.eval_shape(lambda: _learnt(agent, settings.agent_shards)), "env": [form] * settings.shards}
    players, evaluator, sums = [], Evaluator(agent.actor, settings.agent_shards), _sums(path, about)
    for seed in seeds:
        kept = weights.load(path / "weights" / str(seed), like)
        if sums.get(seed, found := weights_sha256(kept["params"])) != found:
            raise UsageError(f"The weights in {path / 'weights' / str(seed)} are not those that the run ended with.",
                             why=f"They have the checksum {found[:12]}..., and result.json says {sums[seed][:12]}...",
                             instead="Restore them from a copy, or train again.")
        frozen = wrapped.frozen([recalled(wrapped, one) for one in kept["env"]])
        players.append(Player(seed, frozen, kept["weights"], evaluator))
    return players


def _sums(path: Path, about: dict[str, Any]) -> dict[int, str]:
    """By seed, the checksum of the parameters that a run ended with. One that was killed has none."""
    result = read_result(path)
    sums = {each["seed"]: each["weights_sha256"] for each in result["per_seed"]} if result else {}
    if about["status"] == FINISHED and not sums.keys() >= set(about["seeds"]):
        raise UsageError(f"The weights in {path} cannot be verified.",
                         why="The run is finished, and there is no result.json with the checksum of each seed's.",
                         instead="Restore it from a copy, or train again.")
    return sums


def _learnt(agent: Agent, agent_shards: int) -> dict[str, Any]:
    """Parameters and weights in the form in which `snapshot` keeps them."""
    def one(key: jax.Array) -> dict[str, Any]:
        state = agent.learner.init(key)
        return {"params": state.params, "weights": agent.learner.weights(state)}

    key = jax.random.key(0)
    return one(key) if agent_shards == 1 else jax.vmap(one)(jax.random.split(key, agent_shards))


def describe(space: Space) -> str:
    """A space as far as weights depend on it."""
    return f"{space} of {space.dtype}"  # a Box shows its shape, and no bounds


def _check_spaces(spec: EnvSpec, about: dict[str, Any]) -> None:
    here = {"observation": describe(spec.observation), "action": describe(spec.action), "agents": len(spec.agents)}
    for name, value in here.items():
        if value != about[name]:
            what = "number of agents" if name == "agents" else f"{name} space"
            raise EnvError(
                f"{spec.id} does not fit the weights of a run on {about['env_id']}.",
                why=f"Its {what} is {value}; the run's is {about[name]}.",
                instead="Evaluate on an environment with the same spaces, or train on this one.")
