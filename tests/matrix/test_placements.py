"""The same result under every distribution, backend and number of instances: to the bit in strict mode."""

import pytest

from msrl.pipeline import Deployment, compile
from tests.matrix.comparing import Outcome, assert_same, strict
from tests.matrix.loops import LOOPS
from tests.matrix.toys import Corridor, HostCorridor

SPREAD = ["single-learner-coarse", "single-learner-fine"]


def check(trainer, env, deployments, **settings):
    program = compile(trainer, env, strict=True, **settings)
    wanted = Outcome(*program.interpret())
    assert wanted.reports
    for deployment in deployments:
        found = strict(program.deployed(deployment))
        assert found.reports == wanted.reports, deployment
        assert_same(wanted.resources, found.resources)


@pytest.mark.parametrize("name", LOOPS)
def test_every_loop_under_every_distribution(name):
    check(LOOPS[name], Corridor(), [Deployment(distribution, "inline", 2) for distribution in SPREAD], shards=2)


@pytest.mark.parametrize("name", ["Plain", "While", "Branches", "TwoBuffers"])
@pytest.mark.parametrize("distribution", SPREAD)
def test_threads_and_uneven_instances(name, distribution):
    deployments = [Deployment(distribution, "inline", 1), Deployment(distribution, "inline", 3),
                   Deployment(distribution, "threads", 4), Deployment(distribution, "threads", 3)]
    check(LOOPS[name], Corridor(), deployments, shards=4)


@pytest.mark.parametrize("name", [name for name in LOOPS if name != "Stores"])  # its replay cannot be halved
def test_every_loop_with_several_learners(name):
    """Two learner shards are the same two learners wherever they are, and wherever their gradients are applied."""
    deployments = [Deployment(distribution, "inline", learners=2) for distribution in ("multi-learner", "central")]
    check(LOOPS[name], Corridor(), deployments, shards=2, learner_shards=2)


@pytest.mark.parametrize("name", ["Plain", "Counters", "TwoBuffers"])
def test_learners_in_uneven_instances_and_beside_single_learners(name):
    deployments = [Deployment("multi-learner", "threads", learners=2), Deployment("multi-learner", "inline"),
                   Deployment("central", "threads", learners=2), Deployment("central", "inline"),
                   Deployment("single-learner-coarse", "threads", 2), Deployment("single-learner-fine", "inline", 3)]
    check(LOOPS[name], Corridor(), deployments, num_envs=6, shards=3, learner_shards=3)


@pytest.mark.parametrize("distribution", SPREAD)
def test_environment_on_the_host(distribution):
    check(LOOPS["Plain"], HostCorridor(), [Deployment(distribution, "threads", 2)], shards=2)


@pytest.mark.parametrize("deployment", [Deployment("single-learner-coarse", "inline", 2),
                                        Deployment("multi-learner", "inline", learners=2)],
                         ids=lambda d: d.distribution)
def test_what_is_reported_after_the_last_loop_is_reported_once(deployment):
    program = compile(LOOPS["Branches"], Corridor(), deployment=deployment, shards=2, learner_shards=2)
    assert sum("best" in update.metrics for update in program.run()) == 1
