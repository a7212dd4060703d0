"""Loops that Python steps: what it need not do in every pass of them."""

import msrl
from msrl.engines.host import HostEngine


def test_python_finds_out_once_what_a_pass_has_to_do(monkeypatch):
    made = []
    step = HostEngine.step
    monkeypatch.setattr(HostEngine, "step", lambda self, node, once: made.append(node) or step(self, node, once))
    counts = []
    for total in (64, 256):
        made.clear()
        program = msrl.compile("ppo", "gymnasium:CartPole-v1", total_steps=total, num_envs=2, rollout=8, epochs=1,
                               minibatches=1, hidden=(8,))
        for _ in program.run():
            pass
        program.env.close()
        counts.append(len(made))
    assert counts[0] == counts[1] > 0


def test_an_insert_on_the_host_needs_no_key():
    program = msrl.compile("ppo", "gymnasium:CartPole-v1", total_steps=16, num_envs=2, rollout=8, epochs=1,
                           minibatches=1, hidden=(8,))
    op = program.ops.op("rollout", "insert")
    program.env.close()
    assert not op.traceable
    assert not op.draws
