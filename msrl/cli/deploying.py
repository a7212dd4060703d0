"""The flags of a deployment: arguments go in, a `Deployment` comes out.

Flags override the file that --deployment names, which overrides the defaults. All of it is read and checked before JAX
is imported, so that an impossible deployment is refused at once.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.conf import arg

from msrl.deployment import Deployment
from msrl.feasibility import check


@dataclass(frozen=True)
class PlacementOptions:
    """How the graph is cut up. It changes results only where it is asynchronous, or with +overlap."""

    deployment: Annotated[Path | None, arg(metavar="FILE.toml")] = None
    """A deployment as a file; the flags below override it."""
    distribution: Annotated[str, arg(metavar="D")] = "local"
    """A distribution from `msrl list`, or file.py:Class."""
    actors: int = 1
    """Instances of the fragment that acts."""
    learners: int = 1
    """Instances of the fragment that learns."""
    passes: Annotated[str, arg(metavar="±PASS,...")] = ""
    """Optimiser passes to switch on or off, like -fuse-instances,+overlap."""


@dataclass(frozen=True)
class DeploymentOptions(PlacementOptions):
    """How the program is spread out. It changes results only where it is asynchronous, or with +overlap."""

    backend: Annotated[str, arg(metavar="B", help_behavior_hint="(default: threads, or inline if all is local)")] = ""
    """What runs the fragments: inline (one thread steps all), threads, or ray (processes and hosts)."""
    max_lag: Annotated[int | None, arg(metavar="N")] = None
    """How many updates old the weights behind a trajectory may be, where the distribution is asynchronous."""
    address: Annotated[str | None, arg(metavar="RAY")] = None
    """A Ray cluster to join; one is started on this machine unless given."""
    worker_timeout: Annotated[int | None, arg(metavar="SECONDS")] = None
    """Seconds without a heartbeat after which a worker of Ray's counts as lost; 60 unless given."""


def read(options: type[PlacementOptions], args: list[str]) -> tuple[Deployment, dict[str, Any]]:
    """The deployment that the arguments ask for, checked as far as it can be by itself, and the fields that were given
    as flags. Leaves with tyro's message where a value cannot be read."""
    found, _ = tyro.cli(options, args=joined(args), return_unknown_args=True)
    flags = given(found, args)
    base = Deployment.from_file(found.deployment) if found.deployment else Deployment()
    deployment = base.replace(**flags)
    check(deployment)
    return deployment, flags


def given(found: PlacementOptions, args: list[str]) -> dict[str, Any]:
    """The deployment's fields that the arguments have flags for."""
    named = {word.partition("=")[0].replace("_", "-") for word in args if word.startswith("--")}
    return {each.name: getattr(found, each.name) for each in dataclasses.fields(found)
            if f"--{each.name.replace('_', '-')}" in named and each.name != "deployment"}


def joined(args: list[str]) -> list[str]:
    """Values that begin with a dash, as --passes has them, joined to their flag."""
    words: list[str] = []
    for word in args:
        if words and words[-1] == "--passes":
            words[-1] = f"--passes={word}"
        else:
            words.append(word)
    return words
