"""Where agents learn apart, all of them leave out an update that is not finite for one."""

import jax.numpy as jnp
import pytest

from msrl.errors import NonFiniteError
from msrl.pipeline import Deployment, compile
from tests.finite.spoiling import trees_equal
from tests.matrix.herds import Herd, Herding

APART = Deployment("environments", "threads", learners=2)


class SpoiltHerd(Herd):
    """The last of the herd is paid NaN where it has come to the fourth place, which takes it some updates."""

    def step(self, state, action, key):
        state, step = super().step(state, action, key)
        spoilt = (step.final_obs[..., 0] == 4) & (jnp.arange(4) == 3)
        return state, step.replace(reward=jnp.where(spoilt, jnp.nan, step.reward))


def run(deployment, mode, strict):
    program = compile(Herding, SpoiltHerd(), deployment=deployment, agent_shards=2, updates=5, rollout=2, num_envs=1,
                      strict=strict, non_finite=mode)
    update = None
    for each in program.run():
        update = each
    return program, update


@pytest.mark.parametrize(("deployment", "strict"), [
    (Deployment(), False), (APART, True), (Deployment("environments", "threads"), False)])
def test_stops_at_the_same_update(deployment, strict):
    with pytest.raises(NonFiniteError) as caught:
        run(deployment, "stop", strict)
    fault = caught.value.fault
    assert (fault.update, fault.names) == (1, ("batch.reward", "everyone.reward"))


def test_all_skip_alike():
    (one, wanted), (other, found) = run(Deployment(), "skip", False), run(APART, "skip", True)
    assert 0 < found.updates_skipped < 5
    assert (found.updates_skipped, found.accounts) == (wanted.updates_skipped, wanted.accounts)
    assert trees_equal(other.per_seed("$learner"), one.per_seed("$learner"))
