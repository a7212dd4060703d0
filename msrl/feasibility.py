"""Which deployments are possible: refuses the others before anything starts, and says what is near and works.

`check` needs the deployment alone; with a `Setting` (the algorithm's shards, the environment, the machine) it checks
that they fit. It loads neither JAX nor Ray, so a refusal takes no longer than reading the command.
"""

import dataclasses
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msrl import distribution as distributions
from msrl.deployment import BACKENDS, DOCS, Deployment, nearest
from msrl.distribution import DISTRIBUTIONS
from msrl.distribution.policy import DistributionPolicy
from msrl.errors import UsageError


@dataclass(frozen=True)
class Setting:
    """What a deployment has to fit."""

    env: str
    traceable: bool  # is the environment a JAX function?
    agents: int  # 0: a single-agent environment
    num_envs: int
    shards: int
    learner_shards: int = 1
    agent_shards: int = 1
    devices: int = 1  # of this machine
    twin: str | None = None  # the same environment in JAX, if there is one


def check(deployment: Deployment, setting: Setting | None = None) -> DistributionPolicy:
    """The deployment's policy, if the deployment is possible."""
    policy = distributions.load(deployment.distribution)
    if deployment.backend not in BACKENDS:
        raise UsageError(f"There is no backend {deployment.backend!r}.", why=f"There are {', '.join(BACKENDS)}.",
                         instead=nearest(deployment.backend, BACKENDS), docs=DOCS)
    _passes(deployment, policy)
    _numbers(deployment)
    _counts(deployment, policy)
    _lag(deployment, policy)
    _cluster(deployment)
    if setting is not None:
        _shards(deployment, policy, setting)
        _environment(deployment, policy, setting)
        _devices(deployment, policy, setting)
    return policy


def fitted(found: Deployment, given: Mapping[str, Any]) -> Deployment:
    """A run's deployment with the fields that were given. Of the others, those that only made sense where the run was
    before fall away: nobody is to be refused for what he has not said."""
    deployment = found.replace(**given)
    policy = distributions.load(deployment.distribution)
    # One that is a file, and that the user has not named, is not executed to find out.
    same = found.distribution == deployment.distribution or (
        found.distribution in DISTRIBUTIONS and DISTRIBUTIONS[found.distribution].axis == policy.axis)
    dropped: dict[str, Any] = {count: 1 for count in ("actors", "learners") if count not in policy.counts or not same}
    if not policy.asynchronous:
        dropped["max_lag"] = None
    if deployment.backend != "ray":
        dropped |= {"address": None, "hosts": ()}
    try:
        _passes(deployment, policy)
    except UsageError:
        dropped["passes"] = ""
    return dataclasses.replace(deployment, **{name: value for name, value in dropped.items() if name not in given})


def _passes(deployment: Deployment, policy: DistributionPolicy) -> None:
    switches = deployment.switches()
    if policy.device_each and not switches.get("fuse-stretches", True):
        raise UsageError(
            f"{deployment.distribution} cannot do without fuse-stretches.",
            why="It is one compiled program on several devices, in which they tell one another what they have.",
            instead="Leave out -fuse-stretches, or use --distribution multi-learner.", docs=f"{DOCS}#passes")
    if switches.get("overlap") and policy.asynchronous:
        raise UsageError(
            f"overlap means nothing under {deployment.distribution}.",
            why="It is asynchronous: actors never wait for the learner, and take the newest weights there are.",
            instead="Leave out +overlap, or use a synchronous distribution.", docs=f"{DOCS}#passes")


def _numbers(deployment: Deployment) -> None:
    least: dict[str, tuple[Any, int]] = {
        "actors": (deployment.actors, 1), "learners": (deployment.learners, 1), "max_lag": (deployment.max_lag, 0),
        "devices": (deployment.devices, 1),
        **{f"devices of host {host.name}": (host.devices, 1) for host in deployment.hosts}}
    for name, (value, bound) in least.items():
        if value is None and name not in ("actors", "learners"):
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < bound:
            raise UsageError(f"{name} is {value!r}.", why=f"It must be a whole number, {bound} or more.",
                             instead="Give it another value, or leave it out.", docs=DOCS)


def _counts(deployment: Deployment, policy: DistributionPolicy) -> None:
    for count in ("actors", "learners"):
        number = getattr(deployment, count)
        if number == 1 or count in policy.counts:
            continue
        others = [name for name, each in DISTRIBUTIONS.items() if count in each.counts]
        why = f"Under this distribution nothing is replicated by --{count}." if policy.counts else \
            "Under this distribution everything is in one place."
        raise UsageError(
            f"{number} {count} cannot be had under {deployment.distribution}.", why=why,
            instead=f"Use --distribution {others[0]}, or leave out --{count}." if others else f"Leave out --{count}.",
            docs=DOCS)


def _lag(deployment: Deployment, policy: DistributionPolicy) -> None:
    if deployment.max_lag is None or policy.asynchronous:
        return
    others = [name for name, each in DISTRIBUTIONS.items() if each.asynchronous]
    raise UsageError(
        f"--max-lag means nothing under {deployment.distribution}.",
        why="It is synchronous: weights are never older than the loop says.",
        instead=f"Use --distribution {others[0]}, or leave out --max-lag." if others else "Leave out --max-lag.",
        docs=DOCS)


def _cluster(deployment: Deployment) -> None:
    if deployment.backend == "ray":
        if not ray_is_installed():
            raise UsageError("The backend ray needs Ray, which is not installed.",
                             why="It is an extra, since the other backends do without it.",
                             instead="Install it: pip install 'msrl[ray]'. Or use --backend threads.", docs=DOCS)
        return
    for name in ("address", "hosts"):
        if getattr(deployment, name):
            where = "--address" if name == "address" else "hosts"
            raise UsageError(f"{where} is of no use to the backend {deployment.backend}.",
                             why="It runs in this process, and only ray reaches other machines.",
                             instead=f"Use --backend ray, or leave out {where}.", docs=DOCS)


def ray_is_installed() -> bool:
    return importlib.util.find_spec("ray") is not None


def _shards(deployment: Deployment, policy: DistributionPolicy, setting: Setting) -> None:
    if policy.axis != "env":
        return
    for count in policy.counts:
        number, shards = getattr(deployment, count), setting.shards
        if count == "learners":
            _learner_shards(number, policy, setting)
            continue
        if number <= shards and policy.asynchronous and shards % number:
            raise UsageError(
                f"{number} {count} cannot share {shards} shards evenly.",
                why="First come, first served: a batch is made of parts of any of them, which must be of one size.",
                instead=f"Use --{count} with a divisor of {shards}, or --shards with a multiple of {number}.",
                docs=DOCS)
        if number <= shards:
            continue
        more = f", or give the algorithm more shards: --shards {number}" if setting.num_envs % number == 0 else ""
        raise UsageError(
            f"{number} {count} cannot share {shards} shard{'s' if shards > 1 else ''}.",
            why="A shard of the environments is the unit of replication, and each instance needs at least one.",
            instead=f"Use --{count} {shards}{' or fewer' if shards > 1 else ''}{more}.", docs=DOCS)


def _learner_shards(number: int, policy: DistributionPolicy, setting: Setting) -> None:
    learners = setting.learner_shards
    if number <= learners and not (policy.device_each and learners % number):
        return
    shards = number * -(-setting.shards // number)
    even = " evenly" if policy.device_each else ""
    raise UsageError(
        f"{learners} learner shard{'s' if learners > 1 else ''} cannot be divided{even} among {number} learners.",
        why="A learner shard is the unit of replication, and the algorithm says how many there are, as their number "
            "changes the result.",
        instead=f"Use --learners {learners}, or --learner-shards {number} --shards {shards} (of --num-envs, "
                f"{shards} must be a divisor).", docs=DOCS)


def several_devices(deployment: Deployment, policy: DistributionPolicy) -> bool:
    return policy.device_each and any(getattr(deployment, count) > 1 for count in policy.counts)


def _environment(deployment: Deployment, policy: DistributionPolicy, setting: Setting) -> None:
    if policy.traceable_only and not setting.traceable:
        keep = "keep the environment on the host: --distribution single-learner-fine"
        raise UsageError(
            f"{setting.env} cannot run under {deployment.distribution}.",
            why=f"{deployment.distribution} compiles the whole loop for the device, and this environment is a Python "
                "object.",
            instead=f"Use the JAX version, --env {setting.twin}, or {keep}." if setting.twin else
            f"{keep[0].upper()}{keep[1:]}.", docs=DOCS)
    if policy.axis == "agent":
        number = max((getattr(deployment, count) for count in policy.counts), default=1)
        if not setting.agents:
            raise UsageError(
                f"{setting.env} cannot run under {deployment.distribution}.",
                why="The distribution is replicated over agents, and this environment has one.",
                instead="Use an environment with several agents, like --env simple_spread, or --distribution "
                        "single-learner-coarse, which is replicated over environments.", docs=DOCS)
        shards = setting.agent_shards
        if number > shards:
            more = f", or --agent-shards {number}" if setting.agents % number == 0 else ""
            raise UsageError(
                f"{shards} agent shard{'s' if shards > 1 else ''} cannot be divided among {number} "
                f"{' or '.join(policy.counts)}.",
                why="An agent shard is the unit of replication here, and the algorithm says how many there are, as "
                    "their number changes the result.",
                instead=f"Use --{policy.counts[0]} {shards}{' or fewer' if shards > 1 else ''}{more}"
                        f" ({setting.env} has {setting.agents} agents).", docs=DOCS)


def _devices(deployment: Deployment, policy: DistributionPolicy, setting: Setting) -> None:
    if deployment.backend != "ray" and deployment.devices is not None and deployment.devices > setting.devices:
        _too_few(f"devices = {deployment.devices}", deployment.devices, setting.devices)
    if not several_devices(deployment, policy):
        return
    needed = max(getattr(deployment, count) for count in policy.counts)
    if deployment.hosts:
        found = sum(host.devices or deployment.devices or 1 for host in deployment.hosts)
    elif deployment.backend == "ray":
        return  # what a cluster has is known once it is joined
    else:
        found = deployment.devices or setting.devices
    if needed > found:
        _too_few(f"{deployment.distribution} with {needed} instances", needed, found)


def _too_few(what: str, needed: int, found: int) -> None:
    raise UsageError(
        f"{what} needs {needed} devices.", why=f"Each takes one, and there {'is' if found == 1 else 'are'} {found}.",
        instead=f"Use {found}, or let the CPU count as {needed}: "
                f"XLA_FLAGS=--xla_force_host_platform_device_count={needed}", docs=DOCS)
