"""A strict run that goes on from any of its points, under any distribution of its class, ends with the same bits."""

import pytest

from msrl import envs, pipeline
from msrl.algorithms import load
from msrl.comparing import left, resource_difference
from msrl.deployment import Deployment
from msrl.errors import UsageError
from msrl.runtime.checkpoints import Checkpoint, read, write_checkpoint
from tests.matrix.loops import LOOPS
from tests.matrix.test_algorithms import TINY
from tests.matrix.toys import Corridor

ONE_LEARNER = (Deployment("single-learner-coarse", "inline", 2), Deployment(),
               Deployment("single-learner-fine", "threads", 2), Deployment("single-learner-coarse", "threads", 1))
SEVERAL = (Deployment("multi-learner", "inline", learners=2), Deployment("central", "inline", learners=2),
           Deployment("device-only", learners=2), Deployment("multi-learner", "threads", learners=1))


def finished(program: pipeline.Program) -> list[Checkpoint]:
    """Runs it to its end: all checkpoints that it made."""
    found = []
    for _ in program.run():
        found.append(program.taken())
    return [point for point in (*found, program.taken()) if point]


def unlike(one: pipeline.Program, other: pipeline.Program) -> str | None:
    """What two runs have left behind that is not the same. Handles of the host's environments cannot be compared."""
    mine, theirs = ({name: value for name, value in left(program)[0].resources.items()
                     if name != "$env" or program.env.traceable} for program in (one, other))
    return resource_difference(mine, theirs)


def check(trainer, env, deployments, tmp_path, every, **settings):
    """From each of its points, a run goes on under the next of the deployments."""
    whole = pipeline.compile(trainer, env, strict=True, deployment=deployments[-1], checkpoint_every=every, **settings)
    points = finished(whole)
    for number, point in enumerate(points):
        path = tmp_path / f"0-{number:08d}"
        write_checkpoint(path, point)
        other = whole.deployed(deployments[number % len(deployments)], read(path))
        finished(other)
        assert unlike(whole, other) is None, (number, point.update)
    return points


@pytest.mark.parametrize("name", [name for name in LOOPS if name not in ("Nothing", "Names")])
def test_every_loop(name, tmp_path):
    assert check(LOOPS[name], Corridor(), ONE_LEARNER, tmp_path, 1, shards=2)


def test_loop_without_a_pass_has_no_point(tmp_path):
    assert not check(LOOPS["Nothing"], Corridor(), ONE_LEARNER, tmp_path, 1, shards=2)


def test_loop_that_not_all_take_part_in(tmp_path):
    with pytest.raises(UsageError) as refused:
        check(LOOPS["Names"], Corridor(), ONE_LEARNER, tmp_path, 1, shards=2)
    assert str(refused.value) == (
        "This run cannot be saved while it trains.\n"
        "`train` has no loop at its top level that all fragments take part in.\n"
        "Leave out --checkpoint-every, or put what is repeated into one loop.")


@pytest.mark.parametrize("name", ["Plain", "While", "Branches", "Counters", "TwoBuffers", "Trees"])
def test_several_learners(name, tmp_path):
    assert check(LOOPS[name], Corridor(), SEVERAL, tmp_path, 1, shards=2, learner_shards=2)


@pytest.mark.parametrize("name", TINY)
def test_algorithms(name, tmp_path):
    env, settings = TINY[name]
    points = check(load(name), envs.make(env), ONE_LEARNER, tmp_path, 2, **{
        **settings, "num_envs": 4, "shards": 4, "total_steps": 64})
    assert len(points) > 1


@pytest.mark.parametrize("env", ["gymnasium:CartPole-v1", "envpool:CartPole-v1"])
def test_environments_on_the_host(env, tmp_path):
    _, settings = TINY["ppo"]
    base = envs.make(env)
    assert check(load("ppo"), base, ONE_LEARNER, tmp_path, 3, **{
        **settings, "num_envs": 4, "shards": 2, "total_steps": 256})
    base.close()
