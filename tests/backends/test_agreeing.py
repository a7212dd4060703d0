"""Parameters in one place: whoever changes them in another way than by applying gradients is noticed."""

import jax
import pytest

from msrl.algorithms.a2c import A2C
from msrl.algorithms.actor_critic import ActorCriticLearner
from msrl.api import Agent
from msrl.errors import RunError
from msrl.pipeline import Deployment, compile, weights_sha256

TINY = dict(num_envs=4, shards=2, learner_shards=2, rollout=4, total_steps=64, hidden=(8,))


class Shrinking(A2C):
    """Its learner makes all parameters a little smaller after each step."""

    def agent(self):
        agent = super().agent()
        return Agent(agent.actor, shrunk(agent.learner))


def shrunk(learner: ActorCriticLearner) -> ActorCriticLearner:
    learn = learner.learn

    def smaller(state, key, batch):
        state, out = learn(state, key, batch)
        return state.replace(params=jax.tree.map(lambda leaf: leaf * 0.99, state.params)), out

    learner.learn = smaller
    return learner


def test_parameters_that_learners_change_themselves_are_brought_along():
    found = []
    for distribution in ("multi-learner", "central"):
        program = compile(Shrinking, "CartPole-v1", strict=True, **TINY,
                          deployment=Deployment(distribution, "inline", learners=2))
        assert list(program.run())
        found.append(weights_sha256(program.params()[0]))
    assert found[0] == found[1]


def test_without_waiting_they_are_refused():
    program = compile(Shrinking, "CartPole-v1", deployment=Deployment("central-async", "inline", learners=2), **TINY)
    with pytest.raises(RunError) as error:
        list(program.run())
    assert error.value.what == "The parameters are not those that were taken from where they are kept."
    assert error.value.instead == (
        "Change them by `apply_gradients` alone, once in an update for each set of parameters; or use --distribution "
        "central.")
    assert error.value.span is not None
