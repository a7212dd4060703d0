"""Jobs: what to train, checked as far as can be without compiling, and how to write it down.

In: names and settings from a user. Out: a `Job`, its description for config.json, and the command that repeats it.
"""

import dataclasses
import inspect
import platform
import shlex
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jaxlib

import msrl
from msrl import algorithms, envs, pipeline
from msrl.api import Config, Env, Trainer
from msrl.api.ranges import Range, check_seeds, check_value
from msrl.deployment import FIELDS, Deployment
from msrl.engines.finite import MODES
from msrl.engines.world import make_world
from msrl.envs.host import HostEnv
from msrl.envs.wrappers import EpisodeStats
from msrl.errors import UsageError
from msrl.feasibility import check
from msrl.passes import chosen
from msrl.playing import describe
from msrl.runtime import cache
from msrl.runtime import strict as surroundings
from msrl.runtime.chaos import Chaos, parse
from msrl.trust import remember

DEPLOYMENT = "deployment.toml"


@dataclass(frozen=True)
class Job:
    """What to train, checked as far as can be without compiling."""

    algorithm: str
    cls: type[Trainer]
    env: str
    base: Env
    made: bool  # by us, and so ours to close
    config: Config
    seed: int = 0
    seeds: int = 1
    strict: bool = False
    eval_every: int = 0
    eval_episodes: int = 100
    deployment: Deployment = Deployment()  # noqa: RUF009 (frozen)
    checkpoint_every: int = 0
    checkpoint_keep: int = 3
    restarts: int = 3
    env_timeout: float = 0.0
    profile: bool = False
    chaos: Chaos = Chaos()  # noqa: RUF009 (frozen)
    non_finite: str = "stop"
    own_process: bool = False  # which has nothing else to do, so that its threads may be chosen

    @property
    def together(self) -> bool:
        """Can all seeds share one compiled program?"""
        apart = "fuse-stretches" not in chosen(self.deployment.switches(), self.strict)
        if self.seeds == 1 or self.strict or apart or self.deployment.distribution != "local":
            return self.seeds == 1
        env = self.cls.wrap(EpisodeStats(self.base), self.config)
        world = make_world(self.cls(self.config, env.spec), env)
        return all(world.traceable(name) for name in ("env", *world.buffers, *world.own))


def prepare(algorithm: str | type[Trainer], env: Any, *, config: Config | None = None, seed: int = 0,
            seeds: int = 1, strict: bool = False, eval_every: int = 0, eval_episodes: int = 100,
            deployment: Deployment | str | Path | None = None, checkpoint_every: int = 0, checkpoint_keep: int = 3,
            restarts: int = 3, env_timeout: float = 0.0, profile: bool = False, chaos: str = "",
            non_finite: str = "stop", own_process: bool = False, **fields: Any) -> Job:
    """Checks what can be checked, loads the algorithm and makes the environment. `fields` are the configuration's, and
    those of the deployment (an object, or a TOML file) that are to be others."""
    spread = {name: fields.pop(name) for name in FIELDS if name in fields}
    placed = _deployment(deployment).replace(**spread)
    check(placed)
    check_seeds(seed, seeds)
    for name, value, least in (("eval_episodes", eval_episodes, 1), ("eval_every", eval_every, 0),
                               ("checkpoint_every", checkpoint_every, 0), ("checkpoint_keep", checkpoint_keep, 1),
                               ("restarts", restarts, 0)):
        check_value(name, value, Range(least, whole=True))
    check_value("env_timeout", env_timeout, Range(0, threading.TIMEOUT_MAX))
    planned = parse(chaos)
    if non_finite not in MODES:
        raise UsageError(f"--non-finite is {non_finite!r}.", why="It says what becomes of updates that are not finite.",
                         instead=f"Use one of {', '.join(MODES)}.", docs="docs/non-finite.md")
    if strict:
        surroundings.pin()
    cache.enable()
    remember(*(said for said in (algorithm, env, placed.distribution) if isinstance(said, str)))
    cls = algorithms.load(algorithm) if isinstance(algorithm, str) else algorithm
    settings = algorithms.configured(cls, config, fields)
    made = not isinstance(env, Env)
    base = envs.make(env)
    if isinstance(base, HostEnv):
        base.timeout = env_timeout or None
        base.probe()
    try:
        pipeline.check_deployment(placed, base, settings, strict)
    except UsageError:
        if made:
            base.close()
        raise
    name = algorithm if isinstance(algorithm, str) else cls.__name__
    return Job(name, cls, env if isinstance(env, str) else base.spec.id, base, made, settings, seed, seeds, strict,
               eval_every, eval_episodes, placed, checkpoint_every, checkpoint_keep, restarts, env_timeout, profile,
               planned, non_finite, own_process)


def _deployment(given: Deployment | str | Path | None) -> Deployment:
    if given is None:
        return Deployment()
    return given if isinstance(given, Deployment) else Deployment.from_file(given)


def about(job: Job, path: Path | None = None) -> dict[str, Any]:
    """What config.json says, apart from the settings that JAX runs with."""
    spec = job.base.spec
    return {
        "algorithm": lasting_algorithm(job), "env": job.env, "env_id": _lasting(spec.id),
        "distribution": job.deployment.distribution, "backend": job.deployment.backend,
        "deployment": dataclasses.asdict(lasting_deployment(job)), "config": dataclasses.asdict(job.config),
        "seed": job.seed, "seeds": list(range(job.seed, job.seed + job.seeds)), "shards": job.config.shards,
        "strict": job.strict, "eval_every": job.eval_every, "eval_episodes": job.eval_episodes,
        "checkpoint_every": job.checkpoint_every, "checkpoint_keep": job.checkpoint_keep, "restarts": job.restarts,
        "env_timeout": job.env_timeout, "profile": job.profile, "chaos": str(job.chaos), "non_finite": job.non_finite,
        "observation": describe(spec.observation), "action": describe(spec.action), "agents": len(spec.agents),
        "versions": {"python": platform.python_version(), "jax": jax.__version__, "jaxlib": jaxlib.__version__,
                     "msrl": msrl.__version__},
        "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": command(job, path),
    }


def command(job: Job, path: Path | None = None) -> str:
    """The line for a shell that makes the same run again, with every setting spelt out. `path` is the run folder, in
    which the deployment is written down: its hosts and devices have no flags."""
    words = ["msrl", "train", lasting_algorithm(job), "--env", _lasting(job.base.spec.id), "--seed", str(job.seed)]
    words += ["--seeds", str(job.seeds)] if job.seeds > 1 else []
    words += ["--strict"] if job.strict else []
    words += ["--profile"] if job.profile else []
    words += ["--eval-every", str(job.eval_every), "--eval-episodes", str(job.eval_episodes)]
    if job.checkpoint_every:
        words += ["--checkpoint-every", str(job.checkpoint_every), "--checkpoint-keep", str(job.checkpoint_keep)]
    words += ["--env-timeout", str(job.env_timeout)] if job.env_timeout else []
    words += ["--restarts", str(job.restarts)] if job.restarts != Job.restarts else []
    words += ["--chaos", str(job.chaos)] if str(job.chaos) else []
    words += ["--non-finite", job.non_finite] if job.non_finite != Job.non_finite else []
    for each in dataclasses.fields(job.config):
        words += _flag(each.name.replace("_", "-"), getattr(job.config, each.name))
    deployment = lasting_deployment(job)
    usual = Deployment(backend=deployment.usual_backend)
    if path and (deployment.hosts or deployment.devices):
        return shlex.join([*words, "--deployment", str(path.absolute() / DEPLOYMENT)])
    for field in FIELDS:
        value = getattr(deployment, field)
        if value != getattr(usual, field) and field not in ("hosts", "devices"):
            words.append(f"--{field.replace('_', '-')}={value}")  # passes may begin with a dash
    return shlex.join(words)


def _flag(name: str, value: Any) -> list[str]:
    match value:
        case bool():
            return [f"--{name}" if value else f"--no-{name}"]
        case tuple() | list():
            return [f"--{name}", *(str(each) for each in value)]
    return [f"--{name}", str(value)]


def lasting_algorithm(job: Job) -> str:
    """A name under which the algorithm is found from any folder."""
    home = f"{job.cls.__module__}:{job.cls.__qualname__}"
    built_in = [name for name, (place, _) in algorithms.ALGORITHMS.items() if place == home]
    if built_in:
        return built_in[0]
    file = inspect.getsourcefile(job.cls)
    return f"{Path(file).absolute()}:{job.cls.__qualname__}" if file else home


def lasting_deployment(job: Job) -> Deployment:
    """The deployment with a distribution that is found from any folder."""
    return dataclasses.replace(job.deployment, distribution=_lasting(job.deployment.distribution))


def _lasting(env: str) -> str:
    path, _, cls = env.rpartition(":")
    return f"{Path(path).absolute()}:{cls}" if path.endswith(".py") else env
