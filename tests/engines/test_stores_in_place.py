"""Compiled loops of whole algorithms update a replay in place: no pass of them copies a million transitions."""

import re

import pytest

from msrl.pipeline import compile

MILLION = 1_000_000
SMALL = dict(num_envs=1, capacity=MILLION, batch_size=32, warmup=64, hidden=(16,), total_steps=4000)


@pytest.mark.parametrize("non_finite", ["stop", "skip", "ignore"])
@pytest.mark.parametrize(("algorithm", "env", "settings"), [
    ("sac", "Pendulum-v1", {}),
    ("dqn", "CartPole-v1", dict(train_every=1)),  # learns on every pass, so there is no branch
    ("dqn", "CartPole-v1", dict(train_every=2)),
])
def test_no_pass_copies_the_store(algorithm, env, settings, non_finite):
    """Compiled, never run."""
    program = compile(algorithm, env, non_finite=non_finite, **SMALL, **settings)
    program.prepare()
    compiled = [chunk.ahead.result() for chunk in program.workers[0]._chunks.values()]
    assert len(compiled) == 2  # the warm-up and the loop that trains
    for each in compiled:
        assert each.memory_analysis().temp_size_in_bytes < MILLION  # one copy of the smallest field would be that much
        assert not re.findall(rf"\[{MILLION}\b[^=]*? (copy|select|concatenate)\(", each.as_text())
