"""How much there is to do, and in pieces of what size."""

import jax
import jax.numpy as jnp
import pytest

from msrl.engines.work import LARGE, NUMBER, Work, work_of
from msrl.pipeline import compile


def of(function, *shapes: tuple[int, ...]) -> Work:
    return work_of(jax.make_jaxpr(function)(*map(jnp.zeros, shapes)).jaxpr)


def small(total: int) -> Work:
    return Work(total, 0)


def test_products():
    assert of(jnp.matmul, (5, 7), (7, 3)) == small(5 * 7 * 3)
    assert of(lambda x, y: jnp.einsum("bij,bjk->bik", x, y), (4, 5, 7), (4, 7, 3)) == small(4 * 5 * 7 * 3)
    assert of(jnp.matmul, (512, 128), (128, 128)) == Work(LARGE, LARGE)


def test_convolutions():
    def convolve(x, kernel):
        return jax.lax.conv_general_dilated(x, kernel, (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    assert of(convolve, (2, 20, 20, 4), (8, 8, 4, 16)) == small(2 * 7 * 7 * 16 * 8 * 8 * 4)


def test_whatever_else_counts_by_its_numbers():
    assert of(jnp.tanh, (10, 3)) == small(30 * NUMBER)
    assert of(lambda x: x.sum(), (10, 3)) == small(NUMBER)


def test_moves_count_for_nothing():
    assert of(lambda store, row: jax.lax.dynamic_update_slice(store, row, (7, 0)), (100_000, 4), (1, 4)) == small(0)
    assert of(lambda store: store[17], (100_000, 4)).total < 100 * NUMBER  # an index from the end is looked for


def test_loops_count_by_their_passes_and_branches_by_the_larger():
    def looped(x, y):
        return jax.lax.scan(lambda x, _: (x @ y, None), x, length=9)[0]

    def branched(x, y):
        return jax.lax.cond(x[0, 0] > 0, lambda: x @ y, lambda: x)

    assert of(looped, (5, 7), (7, 7)) == small(9 * 5 * 7 * 7)
    assert of(branched, (50, 70), (70, 70)).total // (50 * 70 * 70) == 1


@pytest.mark.parametrize(("num_envs", "share"), [(64, 0.82), (16, 0.05)])
def test_of_a_program(num_envs, share):
    """What is learnt from many rows at once outweighs the rollout; the critic's values, a single time, do not."""
    program = compile("ppo", "CartPole-v1", total_steps=10_000, num_envs=num_envs, rollout=128, epochs=4, minibatches=4,
                      hidden=(64, 64))
    work = program.ops.tracing.work
    assert work.large / work.total == pytest.approx(share, abs=0.01)
