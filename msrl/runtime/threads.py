"""The number of threads that XLA computes with on a CPU, for a run that has a process to itself.

XLA has one for each core, and hands every kernel to them. Where kernels are small that costs more than it brings, up to
half of the speed, so that such a run gets one (docs/adr/0016). The number is fixed once JAX's backend runs, and then
holds for whatever else the process computes: so only the command line, which has a process for each run, asks for it.
Whoever sets PJRT_NPROC has the last word.
"""

import os
from typing import Any

from jax._src import xla_bridge  # there is no public way to ask whether the backend runs without starting it

from msrl.deployment import Deployment
from msrl.distribution.policy import DistributionPolicy
from msrl.engines.work import Work
from msrl.feasibility import several_devices

SHARE = 0.2  # of the work in large pieces, from which on threads are worth their cost


def choose(work: Work, deployment: Deployment, policy: DistributionPolicy) -> None:
    """For a program with this much to do. Many instances in one process need several in any case."""
    if not xla_bridge.backends_are_initialized() and work.large < SHARE * work.total and few(deployment, policy):
        os.environ.setdefault("PJRT_NPROC", "1")


def recall(flags: dict[str, Any]) -> None:
    """For a run that goes on, as a run folder has it: to read its checkpoint starts the backend."""
    if not xla_bridge.backends_are_initialized() and flags.get("PJRT_NPROC") == "1":
        os.environ.setdefault("PJRT_NPROC", "1")


def few(deployment: Deployment, policy: DistributionPolicy) -> bool:
    """Do at most one that acts and one that learns share XLA's threads?"""
    return (deployment.backend == "ray" or deployment.actors == deployment.learners == 1) \
        and not several_devices(deployment, policy)
