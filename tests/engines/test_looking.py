"""What a run says of itself between two chunks."""

import pytest

from msrl.pipeline import compile
from tests.matrix.toys import Corridor, Whole


class Reports(Whole):
    """`x` is reported at two places in the loop, `y` before it."""

    def train(self, msrl):
        obs = msrl.env_reset()
        msrl.report(y=7)
        for i in range(4):
            obs = msrl.env_step(msrl.agent_act(obs).action).obs
            msrl.report(x=i)
            if i % 2 == 0:
                msrl.report(x=i + 10)
        for _ in range(2):
            obs = msrl.env_step(msrl.agent_act(obs).action).obs


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "fast"])
def test_metrics_are_means_since_the_last_look(strict):
    updates = list(compile(Reports, Corridor(), strict=strict).run())
    assert [update.metrics for update in updates] == [
        {"y": 7.0, "x": 5.0}, {"x": 1.0}, {"x": 7.0}, {"x": 3.0}, {}, {}, {}]
    assert [update.env_steps for update in updates] == [4, 8, 12, 16, 20, 24, 24]
