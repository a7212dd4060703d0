"""What the kernels of a compiled program are called, and that XLA tells how long they take."""

import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from benchmarks.kernels import at_once, told


def test_products_are_told_by_their_shapes():
    rows, weights = jnp.ones((2048, 4)), jnp.ones((4, 64))
    found = told(jax.jit(lambda rows, weights: jnp.tanh(rows @ weights)).lower(rows, weights).compile().as_text())
    assert "product f32[2048,4] × f32[4,64] → f32[2048,64]" in found.values()


def test_how_many_kernels_run_at_once():
    spans = [(0.0, 4.0), (1.0, 3.0), (3.0, 4.0), (6.0, 10.0)]
    assert at_once(spans) == pytest.approx({2: 0.3, 1: 0.5, 0: 0.2})


def run(env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.kernels", "ppo", env, "num_envs=64", "rollout=8", "hidden=(64,)",
         "total_steps=8192", "--looks", "2"], cwd=Path(__file__).parents[2], capture_output=True, text=True)


def test_an_environment_on_the_host_is_refused():
    done = run("gymnasium:CartPole-v1")
    assert done.returncode == 2
    assert done.stderr.endswith("gymnasium:CartPole-v1 is stepped by Python, and so not one program: use `msrl train "
                                "--profile`\n")


def test_the_command_shows_where_the_time_goes():
    done = run("CartPole-v1")
    assert done.returncode == 0, done.stderr
    first, second, _, *rows = done.stdout.splitlines()
    assert first.startswith("ppo on CartPole-v1: ") and first.endswith(" ns of kernels for each step")
    assert second.startswith("kernels at once: ") and second.endswith(" of the time")
    assert any("product f32[128,4] × f32[4,64]" in row for row in rows), rows
    shares = [float(row.split("%")[0]) for row in rows]
    assert shares == sorted(shares, reverse=True) and 50 < sum(shares) <= 100.5
