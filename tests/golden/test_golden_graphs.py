"""The graphs of the algorithms that come with MSRL, as text files.

A change to lowering that should not change graphs shows no difference here. One that should is written down by
`pytest tests/golden --update-golden`, and read before it is committed.
"""

from pathlib import Path

import pytest

from msrl import envs
from msrl.algorithms import ALGORITHMS, load
from msrl.frontend.lower import lower
from msrl.ir.text import parse, show
from msrl.ir.verify import verify

# Sizes are given, so that tuning an algorithm's defaults does not change its graph.
SETUPS = {
    "a2c": ("CartPole-v1", dict(total_steps=4096, num_envs=8, rollout=16)),
    "a3c": ("CartPole-v1", dict(total_steps=4096, num_envs=8, rollout=4)),
    "impala": ("CartPole-v1", dict(total_steps=4096, num_envs=8, rollout=16)),
    "ppo": ("CartPole-v1", dict(total_steps=4096, num_envs=8, rollout=64)),
    "dqn": ("CartPole-v1", dict(total_steps=4096, num_envs=8, warmup=256, batch_size=32)),
    "sac": ("Pendulum-v1", dict(total_steps=4096, num_envs=8, warmup=256, batch_size=32)),
    "mappo": ("simple_spread", dict(total_steps=4096, num_envs=8, rollout=64)),
}


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_graph(name, update_golden):
    cls = load(name)
    env, sizes = SETUPS[name]
    trainer = cls(cls.Config(**sizes), envs.make(env).spec)
    graph = lower(trainer, tuple(trainer.buffers()), tuple(trainer.components()))
    verify(graph)
    assert parse(show(graph)) == graph
    file = Path(__file__).with_name(f"{name}.txt")
    found = show(graph, spans=False)
    if update_golden:
        file.write_text(found)
    assert found == file.read_text()
