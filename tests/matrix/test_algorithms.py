"""The algorithms that come with MSRL, at their smallest: plain Python, the interpreter and strict execution agree to
the bit; fast execution learns the same within a tolerance."""

import pytest

from msrl import envs
from msrl.algorithms import load
from tests.matrix.comparing import check

TINY = {
    "a2c": ("CartPole-v1", dict(total_steps=32, rollout=4, hidden=(4,))),
    "a3c": ("CartPole-v1", dict(total_steps=32, rollout=4, hidden=(4,))),
    "impala": ("CartPole-v1", dict(total_steps=32, rollout=4, hidden=(4,))),
    "ppo": ("CartPole-v1", dict(total_steps=32, rollout=4, epochs=1, minibatches=2, hidden=(4,))),
    "dqn": ("CartPole-v1", dict(total_steps=32, warmup=8, capacity=64, batch_size=4, hidden=(4,))),
    "sac": ("Pendulum-v1", dict(total_steps=32, warmup=8, capacity=64, batch_size=4, hidden=(4,))),
    "mappo": ("simple_spread", dict(total_steps=32, rollout=4, epochs=1, minibatches=2, hidden=(4,))),
}
TOLERANCE = 2e-4  # relative and absolute, on weights after some updates by Adam


@pytest.mark.parametrize("name", TINY)
def test_same_everywhere(name):
    env, settings = TINY[name]
    outcome = check(load(name), envs.make(env), num_envs=4, shards=2, tolerance=TOLERANCE, **settings)
    assert outcome.reports
