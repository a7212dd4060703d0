"""Inserts before a sample are counted in the graph, as far as they do not depend on values."""

import pytest

from msrl.frontend.lower import lower
from msrl.ir.filling import find_miscount


class Loops:
    """Every method is a loop over a rollout of length 5."""

    def exact(self, msrl):
        for _ in range(3):
            for _ in range(5):
                msrl.replay_buffer_insert(x=1)
            msrl.report(x=msrl.replay_buffer_sample().x)

    def too_few(self, msrl):
        for _ in range(3):
            for _ in range(3):
                msrl.replay_buffer_insert(x=1)
            msrl.report(x=msrl.replay_buffer_sample().x)

    def too_many(self, msrl):
        for _ in range(6):
            msrl.replay_buffer_insert(x=1)
        msrl.report(x=msrl.replay_buffer_sample().x)

    def too_many_and_never_sampled(self, msrl):
        for _ in range(5):
            msrl.replay_buffer_insert(x=1)
        msrl.report(x=msrl.replay_buffer_sample().x)
        for _ in range(9):
            msrl.replay_buffer_insert(x=1)

    def too_many_on_the_second_pass(self, msrl):
        for _ in range(4):
            msrl.replay_buffer_insert(x=1)
        for _ in range(2):
            msrl.replay_buffer_insert(x=1)
            msrl.report(x=msrl.replay_buffer_sample().x)
            for _ in range(5):
                msrl.replay_buffer_insert(x=1)

    def one_on_the_only_pass(self, msrl):
        for _ in range(1):
            for _ in range(5):
                msrl.replay_buffer_insert(x=1)
            msrl.report(x=msrl.replay_buffer_sample().x)
            msrl.replay_buffer_insert(x=1)

    def sampled_twice(self, msrl):
        for _ in range(5):
            msrl.replay_buffer_insert(x=1)
        msrl.report(x=msrl.replay_buffer_sample().x, y=msrl.replay_buffer_sample().x)

    def in_a_while(self, msrl):
        obs = msrl.env_reset()
        while obs.sum() < 3:
            for _ in range(2):
                msrl.replay_buffer_insert(x=1)
            obs = msrl.replay_buffer_sample().x

    def in_a_branch(self, msrl):
        obs = msrl.env_reset()
        for i in range(20):
            msrl.replay_buffer_insert(x=1)
            if i % 5 == 4:
                obs = msrl.replay_buffer_sample().x
        msrl.report(obs=obs.sum())

    def after_a_loop_of_unknown_length(self, msrl):
        obs = msrl.env_reset()
        for _ in range(obs.sum()):
            msrl.replay_buffer_insert(x=1)
        msrl.report(x=msrl.replay_buffer_sample().x)

    def after_branches_that_differ(self, msrl):
        obs = msrl.env_reset()
        for _ in range(4):
            msrl.replay_buffer_insert(x=1)
        if obs.sum() > 3:
            msrl.replay_buffer_insert(x=1)
        msrl.report(x=msrl.replay_buffer_sample().x)

    def no_pass_at_all(self, msrl):
        for _ in range(0):
            msrl.replay_buffer_insert(x=1)
        for _ in range(5):
            msrl.replay_buffer_insert(x=1)
        msrl.report(x=msrl.replay_buffer_sample().x)


COUNTED = {"too_few": 3, "too_many": 6, "too_many_on_the_second_pass": 6, "sampled_twice": 0, "in_a_while": 2}


@pytest.mark.parametrize("name", [name for name in vars(Loops) if not name.startswith("_")])
def test_inserts_are_counted(name):
    graph = lower(type("T", (), {"train": vars(Loops)[name], "__qualname__": "T"})(), ("rollout",))
    found = find_miscount(graph, "rollout", 5)
    assert (found.inserts if found else None) == COUNTED.get(name)
    assert not found or "replay_buffer_sample" in found.sample.span.text
