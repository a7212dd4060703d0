"""What a million transitions cost: their own bytes, and no copy of them in any step of a compiled loop."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from msrl.api import Record
from msrl.buffers import NStep, PrioritisedReplay, Replay

MILLION = 1_000_000
NUM_ENVS = 8
STEP_BYTES = 4 * 4 + 4 + 4 + 1 + 1 + 4 * 4  # obs, action, reward, terminated, truncated, final_obs


def cartpole(fill=0.0) -> Record:
    obs, flag = jnp.full((NUM_ENVS, 4), fill), jnp.zeros(NUM_ENVS, bool)
    return Record(obs=obs, action=jnp.zeros(NUM_ENVS, jnp.int32), reward=jnp.full(NUM_ENVS, fill), terminated=flag,
                  truncated=flag, final_obs=obs)


def nbytes(state) -> int:
    return sum(int(np.prod(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(state))


@pytest.mark.parametrize("where", ["device", "host"])
def test_a_million_transitions_take_little_more_than_their_own_bytes(where):
    buffer = Replay(MILLION, 64, where)
    state = jax.eval_shape(buffer.init, cartpole()) if where == "device" else buffer.init(cartpole())
    assert MILLION * STEP_BYTES <= nbytes(state) <= MILLION * STEP_BYTES + 16


def insert_then_sample(buffer, state, key, fill):
    return buffer.sample(buffer.insert(state, cartpole(fill)), key)


def sample_then_insert(buffer, state, key, fill):
    state, batch = buffer.sample(state, key)
    return buffer.insert(state, cartpole(fill)), batch


def sample_in_a_branch(buffer, state, key, fill):
    state = buffer.insert(state, cartpole(fill))
    nothing = jax.tree.map(jnp.zeros_like, jax.eval_shape(buffer.sample, state, key)[1])
    return jax.lax.cond(fill > 3, lambda s: buffer.sample(s, key), lambda s: (s, nothing), state)


def twice(buffer, state, key, fill):
    state, _ = insert_then_sample(buffer, state, key, fill)
    return insert_then_sample(buffer, state, key, fill)


def learn(buffer, state, key, fill):
    state, batch = insert_then_sample(buffer, state, key, fill)
    return buffer.update(state, key, batch.index, batch.reward)[0], batch


def learn_late(buffer, state, key, fill):
    state, batch = insert_then_sample(buffer, state, key, fill)
    other = jnp.arange(64, dtype=jnp.int32)  # does not depend on what was sampled
    return buffer.update(state, key, other, other + fill)[0], batch


@pytest.mark.parametrize(("buffer", "step"), [
    (Replay(MILLION, 64), insert_then_sample),
    (Replay(MILLION, 64), sample_then_insert),
    (Replay(MILLION, 64), sample_in_a_branch),
    (Replay(MILLION, 64), twice),
    (Replay(MILLION - 1, 64), sample_then_insert),
    (PrioritisedReplay(MILLION, 64), learn),
    (PrioritisedReplay(MILLION, 64), learn_late),
    (NStep(Replay(MILLION, 64), 3, 0.99), sample_then_insert),
], ids=lambda x: x.__name__ if callable(x) else type(x).__name__)
def test_no_step_of_a_loop_copies_the_store(buffer, step):
    """Compiled, never run: no operation but a parameter or an update in place has the size of the store."""

    def loop(state):
        def body(i, carry):
            state, total = carry
            state, batch = step(buffer, state, jax.random.fold_in(jax.random.key(0), i), total)
            return state, total + sum(x.astype(jnp.float32).sum() for x in jax.tree.leaves(batch))

        return jax.lax.fori_loop(0, 1000, body, (state, jnp.float32(0)))

    state = jax.eval_shape(buffer.init, cartpole())
    compiled = jax.jit(loop, donate_argnums=0).lower(state).compile()
    memory = compiled.memory_analysis()
    assert memory.temp_size_in_bytes < MILLION  # one copy of the smallest field would be that much
    assert memory.alias_size_in_bytes >= nbytes(state)  # all of it is updated in place
    large = re.findall(rf"\[(?:{MILLION}|{MILLION - 1}|{2**20}|{2**21})\b[^=]*? (copy|select|concatenate)\(",
                       compiled.as_text())
    assert not large
