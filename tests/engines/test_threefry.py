"""Random numbers in straight lines are the random numbers of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry2x32_p

from msrl.engines.ops import call_key, make_op, op_key, op_keys
from msrl.engines.world import make_world
from msrl.envs.cartpole import CartPole
from msrl.pipeline import compile
from tests.cli.tiny import Tiny

# Key, counter, result: the known answers that the generator's authors published for 20 rounds.
KNOWN = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(("key", "counter", "expected"), KNOWN)
def test_known_answers(key, counter, expected):
    words = jax.jit(threefry2x32_p.bind)(*(jnp.uint32(word) for word in (*key, *counter)))
    assert tuple(int(word) for word in words) == expected


def test_draws_are_those_of_plain_jax():
    """The expected numbers are from a process without msrl."""
    key = jax.random.key(7)
    assert jax.random.bits(key, (2, 3)).tolist() == [
        [2895194379, 4185947648, 1300703658], [1906787632, 3139134342, 2709822315]]
    assert jax.random.key_data(jax.random.split(jax.random.fold_in(key, 5))).tolist() == [
        [3742030581, 1645529880], [642971876, 1539747960]]


def test_shapes_under_vmap_are_brought_together():
    """Of keys in a batch and counters that all share, and the other way round."""
    keys, counters = jnp.arange(3, dtype=jnp.uint32), jnp.arange(5, dtype=jnp.uint32)
    both = jax.vmap(jax.vmap(threefry2x32_p.bind, (None, None, 0, 0)), (0, 0, None, None))
    words = jax.jit(both)(keys, keys + 7, counters, counters * 9)
    for i, key in enumerate(keys):
        for j, counter in enumerate(counters):
            assert [word[i, j] for word in words] == threefry2x32_p.bind(key, key + 7, counter, counter * 9)


def test_programs_draw_without_a_loop():
    text = jax.jit(lambda key: jax.random.bits(key, (64, 4))).trace(jax.random.key(0)).lower(
        lowering_platforms=("cpu",)).as_text()
    assert "xor" in text and "while" not in text


def test_keys_made_at_once_are_those_made_one_by_one():
    """Of methods that run once for all, and of methods that run for each shard."""
    env = CartPole()
    world = make_world(Tiny(Tiny.Config(num_envs=8, shards=4), env.spec), env).part(range(1, 4))
    names = [("env", "step"), ("learner", "learn"), ("actor", "act")]
    root = jax.random.key(3)
    made = op_keys(root, {name: make_op(world, *name) for name in names}, world)
    for name, shards in zip(names, ((1, 2, 3), (0,), (1, 2, 3)), strict=True):
        one_by_one = [jax.random.fold_in(op_key(root, *name), shard) for shard in shards]
        assert np.array_equal(jax.random.key_data(made[name]).reshape(-1, 2),
                              np.stack([jax.random.key_data(key) for key in one_by_one])), name
    last = jax.random.fold_in(made["env", "step"][2], 9)
    assert np.array_equal(jax.random.key_data(last), jax.random.key_data(call_key(op_key(root, "env", "step"), 3, 9)))


def test_a_program_derives_its_keys_once():
    """Of PPO's whole loop, with networks of next to no size: draws for actions, starts and shuffles are left. Without
    the barrier around keys, there are nearly three times as many."""
    program = compile("ppo", "CartPole-v1", num_envs=4, rollout=4, minibatches=1, hidden=(4,), total_steps=64)
    program.prepare()
    chunk, = program.workers[0]._chunks.values()
    rounds = chunk.ahead.result().as_text().count(" xor(")
    assert 100 < rounds < 600
