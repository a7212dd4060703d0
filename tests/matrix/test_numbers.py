"""A number means the same in plain Python, the interpreter, strict mode and fast mode."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from msrl.comparing import copies
from msrl.deployment import Deployment
from msrl.errors import MsrlError
from msrl.pipeline import compile
from tests.matrix.random_numbers import numbers
from tests.matrix.toys import Corridor, HostCorridor, Whole
from tests.programs import Entry

ENVS = pytest.mark.parametrize("env", [Corridor, HostCorridor])


def in_every_mode(trainer: type, env: type) -> dict[str, dict[str, float]]:
    """The last report, by mode."""
    program = compile(trainer, env(), strict=True)
    found = {"eager": program.eager()[1][-1], "interpreter": program.interpret()[1][-1],
             "strict": copies(program)[-1].reports[-1]}
    for passes in ("", "-fuse-stretches"):
        metrics: dict[str, float] = {}
        for update in compile(trainer, env(), deployment=Deployment(passes=passes)).run():
            metrics.update(update.metrics)
        found[f"fast {passes}"] = metrics
    return found


def bits(report: dict[str, float]) -> dict[str, bytes]:
    return {name: np.float32(value).tobytes() for name, value in report.items()}


def assert_one_meaning(found: dict[str, dict[str, float]]) -> None:
    assert [bits(report) for report in found.values()] == [bits(found["eager"])] * len(found), found


@ENVS
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(source=numbers())
def test_random_loops(tmp_path, env, source):
    trainer = Entry(tmp_path, "random", (), (), source, "").load(tmp_path)
    try:
        compile(trainer, env())
    except MsrlError as refused:  # 500,000,007 times too much, or so, known when compiling
        assert "32 bits" in str(refused)
        return
    assert_one_meaning(in_every_mode(trainer, env))


class Tenths(Whole):
    def train(self, msrl):
        obs = msrl.env_reset()
        x, passes, n = 0.0, 0, 0
        while x < 1.0:
            obs = msrl.env_step(obs[:, 0] % 3).obs
            x += 0.1
            passes += 1
            n = n + 2_000_000_000
        msrl.report(x=x, passes=passes, n=n)


@ENVS
def test_tenths_and_large_numbers(env):
    found = in_every_mode(Tenths, env)
    assert_one_meaning(found)
    assert (found["eager"]["passes"], found["eager"]["n"]) == (10, np.int32(10 * 2_000_000_000 % 2**32 - 2**32))


class Chosen(Whole):
    """Numbers that a branch or an index chooses, and then arithmetic; the last index after its loop."""

    def train(self, msrl):
        obs = msrl.env_reset()
        for i in range(3):
            if i % 2 == 0:
                x, n = 0.1, 3
            else:
                x, n = 0.7, obs.shape[0]
            y = 1 if obs.sum() > 0 else 0.5
            obs = msrl.env_step(obs[:, 0] % 3).obs
        for j in range(n):
            x += j / 4 + 0.1
        msrl.report(x=x, n=n * 1_000_000_000, y=y + 0.1, i=i * 2_000_000_000, z=i / 4 + 0.1)


@ENVS
def test_numbers_that_are_chosen(env):
    assert_one_meaning(in_every_mode(Chosen, env))
