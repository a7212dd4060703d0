"""Compiling is counted where it happens, once, and is no part of the time that training took.

A clock that jumps ahead whenever a program is traced makes compiling cost a known time.
"""

import time
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import msrl
from msrl.engines import xla
from msrl.engines.calls import HostCalls
from msrl.engines.tables import Tabular
from tests.cli.conftest import TINY

JUMP = 1000.0


@pytest.fixture
def jumps(monkeypatch):
    """The programs that were traced so far."""
    real, traced, start = time.perf_counter, [], xla.Traced.__init__

    def slow(self, *args):
        traced.append(self)
        start(self, *args)

    monkeypatch.setattr(time, "perf_counter", lambda: real() + JUMP * len(traced))
    monkeypatch.setattr(xla.Traced, "__init__", slow)
    monkeypatch.setenv("MSRL_CACHE_DIR", "off")
    return traced


@pytest.mark.parametrize(("env", "passes", "least"), [
    ("gymnasium:CartPole-v1", "-call-back", 3), ("gymnasium:CartPole-v1", "", 2), ("CartPole-v1", "", 2)])
def test_compiling_is_counted_once_wherever_it_happens(jumps, env, passes, least):
    result = msrl.train(f"{TINY}:Tiny", env=env, eval_episodes=1, deployment=msrl.Deployment(passes=passes))
    assert len(jumps) >= least  # before the loop, and in it: acting and learning are apart where the host steps
    assert JUMP * len(jumps) <= result.compile_seconds < JUMP * (len(jumps) + 0.5)
    assert 0 <= result.train_seconds < JUMP / 2


def test_only_calls_that_compile_are_counted(jumps):
    counted = []
    ops = SimpleNamespace(world=SimpleNamespace(traceable=None), devices=None, non_finite="ignore")
    stretch = xla.CompiledStretch((), ("x",), ops, SimpleNamespace(tabular=Tabular()), None, False, counted.append,
                                  HostCalls(lambda *given: None))
    root = jax.random.key(0)
    for x, compilations in ((np.zeros(2), 1), (np.ones(2), 1), (np.zeros(3), 2), (np.ones(2), 2)):
        assert np.array_equal(stretch({"x": x}, root, {})[0]["x"], x)
        assert len(counted) == compilations
    assert all(JUMP <= seconds < 1.5 * JUMP for seconds in counted)
