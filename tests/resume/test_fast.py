"""Fast runs go on from a checkpoint, too: with the same bits where nothing else changes. Steps are accounted for."""

import json

import jax
import numpy as np
import pytest

from msrl import envs, pipeline
from msrl.algorithms import load
from msrl.comparing import distance
from msrl.deployment import Deployment
from msrl.runtime.checkpoints import write_checkpoint
from tests.matrix.test_algorithms import TINY
from tests.resume.test_points import finished

COARSE = Deployment("single-learner-coarse", "threads", 2)


def runs(name, deployment, then, every, **more):
    env, settings = TINY[name]
    settings = {**settings, "num_envs": 4, "shards": 4, "total_steps": 64, **more}
    base = settings.pop("env", env)

    def made(deployment, **rest):
        return pipeline.compile(load(name), envs.make(base), deployment=deployment, **settings, **rest)

    whole = made(deployment, checkpoint_every=every)
    points = finished(whole)
    assert points
    others = [made(then, start=point) for point in points]
    return whole, points, others


@pytest.mark.parametrize(("env", "strict", "kept"), [
    ("CartPole-v1", False, "state"), ("gymnasium:CartPole-v1", False, "seeds and actions"),
    ("envpool:CartPole-v1", False, "reset boundary"), ("envpool:CartPole-v1", True, "seeds and actions")])
def test_a_checkpoint_says_how_environments_are_kept(env, strict, kept, tmp_path):
    whole, points, _ = runs("ppo", Deployment(), Deployment(), 3, env=env, strict=strict, shards=2)
    write_checkpoint(tmp_path / "0-1", points[-1])
    manifest = json.loads((tmp_path / "0-1" / "manifest.json").read_text())
    assert manifest["environments"] == {"0": kept, "1": kept}
    whole.env.close()


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_in_the_same_way(name):
    whole, _, others = runs(name, Deployment(), Deployment(), 3)
    for other in others:
        finished(other)
        for one, two in zip(jax.tree.leaves(whole.params()), jax.tree.leaves(other.params()), strict=True):
            np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(("first", "then"), [(Deployment(), COARSE), (COARSE, Deployment())])
def test_in_another_way(first, then):
    whole, _, others = runs("ppo", first, then, 3)
    for other in others:
        finished(other)
        assert distance(whole.params(), other.params())[0] < 2e-4
        assert other.accounts() == {"produced": 64, "trained": 64, "dropped": {}, "in_flight": 0}


def test_several_seeds_at_once():
    whole, _, others = runs("ppo", Deployment(), Deployment(), 3, seeds=3)
    for other in others:
        finished(other)
        for one, two in zip(jax.tree.leaves(whole.params()), jax.tree.leaves(other.params()), strict=True):
            np.testing.assert_array_equal(one, two)


def test_episodes_are_told_once():
    """In strict mode, as other bits would have other episodes."""
    env, settings = TINY["ppo"]
    whole = pipeline.compile("ppo", env, strict=True, checkpoint_every=24, **{
        **settings, "num_envs": 4, "shards": 4, "total_steps": 1024})
    told, points = 0, []
    for update in whole.run():
        told += update.episodes
        points.append(whole.taken())
    assert told > 9
    for point in filter(None, points):
        episodes = [update.episodes for update in whole.deployed(COARSE, point).run()]
        assert min(episodes) >= 0
        assert point.about["episodes"][0] + sum(episodes) == told


@pytest.mark.parametrize(("name", "deployment"), [
    ("impala", Deployment("single-learner-coarse-async", "threads", 2, max_lag=4)),
    ("a3c", Deployment("central-async", "threads", learners=2, max_lag=4))])
def test_nobody_waits_for_anybody(name, deployment):
    shards = {"learner_shards": 2} if name == "a3c" else {}
    _, points, others = runs(name, deployment, deployment, 6, total_steps=256, **shards)
    for point, other in zip(points, others, strict=True):
        finished(other)
        steps, before = other.accounts(), point.about["ledger"]
        assert before["produced"] == before["trained"] + sum(before["dropped"].values())
        assert steps["produced"] == steps["trained"] + sum(steps["dropped"].values()) + steps["in_flight"]
        assert steps["trained"] >= before["trained"]


def test_an_envpool_that_would_be_too_long_to_play_again():
    """It begins new episodes, and what it was stopped in is truncated."""
    _, points, others = runs("ppo", Deployment(), Deployment(), 3, env="envpool:CartPole-v1")
    paths = {path.rpartition("/")[2] for name, parts in points[0].parts.items() if name.startswith("$env")
             for packed in parts.values() for path in packed}
    assert {"seeds", "obs"} < paths and "actions" not in paths
    for other in others:
        finished(other)
        assert other.env_steps == 64


def test_a_learner_that_ended_long_ago_is_not_waited_for():
    """Its last pass is no multiple of the passes between two checkpoints, and nothing follows it."""
    deployment = Deployment("central-async", "inline", learners=2)
    program = pipeline.compile("a3c", "CartPole-v1", deployment=deployment, num_envs=4, shards=2, learner_shards=2,
                               rollout=4, total_steps=64, hidden=(8,), checkpoint_every=3)
    saving, put_down = program.saving, []

    def kept(worker, episodes):
        put_down.append((worker, worker.share))
        worker.share = None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saving, "collect", kept)
        for _ in program.run():
            pass
    lead = [share for worker, share in put_down if worker is program.lead and share]
    assert [(share.passes, share.last) for share in lead] == [(3, False), (4, True)]
    found = []
    for worker, share in sorted(put_down, key=lambda each: each[0] is program.lead):  # the other is done first
        worker.share = share
        found.append(saving.collect(worker, [0.0, 0.0, 0.0]))
    assert [point.update for point in found if point] == [3, 4]
