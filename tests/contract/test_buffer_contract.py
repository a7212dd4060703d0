"""What holds for every buffer, on the device and on the host: one suite over one table."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest

from msrl.api import Buffer, Record
from msrl.buffers import NStep, PrioritisedReplay, Replay, Rollout
from msrl.errors import RunError, TypeCheckError, UsageError
from tests.buffers.records import assert_same, numbered, record_of, shapes_of

B = 3
BUFFERS = {
    "rollout": lambda where: Rollout(4, where),
    "replay": lambda where: Replay(10, 6, where),  # 3 does not divide 10: inserts wrap
    "prioritised": lambda where: PrioritisedReplay(10, 6, where=where),
    "n_step": lambda where: NStep(Replay(10, 6, where), n=2, gamma=0.5),
    "n_step_prioritised": lambda where: NStep(PrioritisedReplay(10, 6, where=where), n=3, gamma=0.5),
}
CARRIED = ("action", "obs", "even")  # fields that all of them hand over as they came
insert = jax.jit(lambda buffer, state, item: buffer.insert(state, item), static_argnums=0)
sample = jax.jit(lambda buffer, state, key: buffer.sample(state, key), static_argnums=0)


@pytest.fixture(params=[f"{name}-{where}" for name in BUFFERS for where in ("device", "host")])
def buffer(request) -> Buffer:
    name, where = request.param.split("-")
    return BUFFERS[name](where)


@pytest.fixture(params=BUFFERS)
def name(request) -> str:
    return request.param


def title(buffer: Buffer) -> str:
    return type(buffer).__name__


def filled(buffer: Buffer, inserts: int = 4):
    """A state after inserts number 0, 1, ... (compiled on the device: that it can be is part of the contract)."""
    put = partial(insert, buffer) if buffer.traceable else buffer.insert
    state = buffer.init(numbered(0, B))
    for i in range(inserts):
        state = put(state, numbered(i, B))
    return state


def carried(record: Record) -> Record:
    return Record(**{field: record.asdict()[field] for field in CARRIED})


def avals(tree):
    return [(x.shape, x.dtype, getattr(x, "weak_type", False)) for x in jax.tree.leaves(tree)]


def test_what_comes_out_is_what_went_in(buffer):
    _, batch = buffer.sample(filled(buffer), jax.random.key(0))
    ids = np.asarray(batch.action).reshape(-1)
    assert set(ids) <= set(range(1, 4 * B + 1))
    rows = jax.tree.map(lambda x: np.asarray(x).reshape(len(ids), *x.shape[batch.action.ndim:]), carried(batch))
    assert_same(rows, carried(record_of(ids)))


def test_a_state_keeps_its_tree_shapes_and_strong_dtypes(buffer):
    state = buffer.init(numbered(0, B))
    structure, leaves = jax.tree.structure(state), avals(state)
    assert not any(weak for _, _, weak in leaves)
    state = filled(buffer)
    assert (jax.tree.structure(state), avals(state)) == (structure, leaves)
    state, _ = buffer.sample(state, jax.random.key(0))
    assert (jax.tree.structure(state), avals(state)) == (structure, leaves)


def test_shapes_are_enough_to_make_one(buffer):
    assert_same(buffer.init(shapes_of(numbered(0, B))), buffer.init(numbered(0, B)))


def test_the_host_keeps_one_state_of_numpy_arrays_and_never_changes_a_batch_it_gave(name):
    buffer = BUFFERS[name]("host")
    state = filled(buffer)
    after, batch = buffer.sample(state, jax.random.key(0))
    assert after is state
    assert buffer.insert(state, numbered(4, B)) is state
    assert all(type(x) is np.ndarray for x in jax.tree.leaves((state, batch)))
    before = jax.tree.map(np.copy, batch)
    for i in range(5, 15):
        buffer.insert(state, numbered(i, B))
    assert_same(batch, before)


def test_device_and_host_agree_to_the_bit(name):
    device, host = BUFFERS[name]("device"), BUFFERS[name]("host")
    on_device, on_host = filled(device), filled(host)
    for round_ in range(3):
        on_device, from_device = sample(device, on_device, jax.random.key(round_))
        on_host, from_host = host.sample(on_host, jax.random.key(round_))
        assert_same(from_device, from_host)
        if "weight" in from_host.asdict():
            priority = np.abs(np.sin(from_host.index)).astype(np.float32)
            on_device, _ = device.update(on_device, jax.random.key(0), from_device.index, priority)
            on_host, _ = host.update(on_host, jax.random.key(0), from_host.index, priority)
        for i in range(4):
            on_device = insert(device, on_device, numbered(4 + 4 * round_ + i, B))
            on_host = host.insert(on_host, numbered(4 + 4 * round_ + i, B))
        assert_same(on_device, on_host)


def test_compiled_and_eager_agree(name):
    buffer = BUFFERS[name]("device")
    state = buffer.init(numbered(0, B))
    for i in range(4):
        state = buffer.insert(state, numbered(i, B))
    assert_same(state, filled(buffer))
    assert_same(buffer.sample(state, jax.random.key(5)), sample(buffer, state, jax.random.key(5)))


def test_a_compiled_loop_can_carry_it(name):
    """Insert and sample inside `scan`, with the state donated, equal the same calls one by one."""
    buffer = BUFFERS[name]("device")
    keys = jax.random.split(jax.random.key(1), 6)
    items = [numbered(4 + i, B) for i in range(6)]

    def body(state, x):
        item, key = x
        return buffer.sample(buffer.insert(state, item), key)

    stacked = jax.tree.map(lambda *xs: np.stack(xs), *items)
    state, batches = jax.jit(lambda s, xs: jax.lax.scan(body, s, xs), donate_argnums=0)(filled(buffer), (stacked, keys))
    expected = filled(buffer)
    for i, item in enumerate(items):
        expected, batch = sample(buffer, insert(buffer, expected, item), keys[i])
        assert_same(jax.tree.map(lambda x, i=i: np.asarray(x)[i], batches), batch)
    assert_same(state, expected)


def test_shards_can_be_batched(name):
    """`vmap` over shards' states equals each shard by itself: fused runs do this."""
    buffer = BUFFERS[name]("device")
    states = [filled(buffer, inserts) for inserts in (0, 3, 5)]
    keys = jax.random.split(jax.random.key(2), 3)
    items = [numbered(10 + i, B) for i in range(3)]

    def step(state, item, key):
        return buffer.sample(buffer.insert(state, item), key)

    stack = lambda trees: jax.tree.map(lambda *xs: np.stack(xs), *trees)
    together = jax.jit(jax.vmap(step))(stack(states), stack(items), keys)
    together = jax.tree.map(np.asarray, together)
    for i in range(3):
        alone = sample(buffer, insert(buffer, states[i], items[i]), keys[i])
        assert_same(jax.tree.map(lambda x, i=i: x[i], together), alone)


def test_64_bit_numpy_is_stored_as_32_bit(buffer):
    wide = numbered(0, B).replace(even=np.arange(B, dtype=np.int64), extra=np.full(B, 0.1, np.float64))
    state = buffer.init(wide)
    for _ in range(4):
        state = buffer.insert(state, wide)
    _, batch = buffer.sample(state, jax.random.key(0))
    assert (batch.even.dtype, batch.extra.dtype) == (np.int32, np.float32)
    assert (np.asarray(batch.extra) == np.float32(0.1)).all()


def test_an_empty_record_is_an_error(buffer):
    for empty in (Record(), Record(obs={}, action=None)):
        with pytest.raises(TypeCheckError) as error:
            buffer.init(empty)
        assert str(error.value) == (
            f"{title(buffer)} is given a record without arrays.\n"
            "There would be nothing to store.\n"
            "Insert at least one field: replay_buffer_insert(obs=obs, ...).")


@pytest.mark.parametrize(("value", "shown"), [(np.zeros((2, 4), np.float32), "float32[2, 4]"), (1.0, "float32[]")])
def test_fields_that_disagree_on_the_environments_are_an_error(buffer, value, shown):
    with pytest.raises(TypeCheckError) as error:
        buffer.init(numbered(0, B).replace(extra=value))
    assert str(error.value) == (
        f"{title(buffer)}: field extra is {shown}, and field action is int32[3].\n"
        "The first dimension of every field is the number of environments, and has to be the same.\n"
        "Give extra one entry per environment.")


@pytest.mark.parametrize(("field", "change", "shown"), [
    ("action", lambda item: item.replace(action=item.action.astype(np.float32)), "int32[3] / float32[3]"),
    ("final_obs", lambda item: item.replace(final_obs=np.zeros((3, 2), np.float32)), "float32[3, 1] / float32[3, 2]"),
    ("obs['state']", lambda item: item.replace(obs={**item.obs, "state": np.zeros((3, 2), np.uint8)}),
     "float32[3, 2] / uint8[3, 2]"),
    ("action", lambda item: jax.tree.map(lambda x: x[:2], item), "int32[3] / int32[2]"),
])
def test_another_shape_or_dtype_is_an_error(buffer, field, change, shown):
    state = filled(buffer, 1)
    with pytest.raises(TypeCheckError) as error:
        buffer.insert(state, change(numbered(1, B)))
    before, now = shown.split(" / ")
    assert str(error.value) == (
        f"{title(buffer)}: field {field} was {before} when the buffer was made, and is {now} now.\n"
        "A buffer's arrays are laid out once, for one shape and dtype per field.\n"
        "Insert the same shapes everywhere, or use a second buffer.")


def test_other_fields_are_an_error(buffer):
    with pytest.raises(TypeCheckError) as error:
        buffer.insert(filled(buffer, 1), Record(obs=np.zeros(3), action=np.zeros(3)))
    assert str(error.value) == (
        f"{title(buffer)} is given other fields than it was made for.\n"
        "  made for: action, even, final_obs, obs['image'], obs['state'], reward, terminated, truncated\n"
        "  given:    action, obs\n"
        "One buffer holds records of one kind.\n"
        "Insert the same fields everywhere, or use a second buffer.")


def test_sampling_an_empty_host_store_is_an_error(name):
    buffer = BUFFERS[name]("host")
    inner = getattr(buffer, "inner", buffer)
    expected = {
        "Rollout": "Rollout of length 4 is sampled after 0 inserts.\n"
                   "A rollout is handed over whole, one row per insert since the last sample.\n"
                   "Insert exactly 4 records before each sample, or change the length.\n"
                   "See docs/buffers.md#how-many-inserts.",
    }.get(title(inner), f"{title(inner)} is sampled before anything was inserted.\n"
                        "There is no transition to return.\n"
                        "Insert first, or learn only after a warm-up: if step >= warm_up: ...")
    with pytest.raises(RunError) as error:
        buffer.sample(filled(buffer, 0), jax.random.key(0))
    assert str(error.value) == expected


def test_sampling_an_empty_device_store_gives_zeros(name):
    buffer = BUFFERS[name]("device")
    state = filled(buffer, 0)
    after, batch = sample(buffer, state, jax.random.key(0))
    if name == "rollout":  # which remembers that this was wrong
        assert buffer.miscounted(after) == 0
        after = after.replace(miscounted=state.miscounted)
    assert_same(after, state)
    assert all((np.asarray(x) == 0).all() for x in jax.tree.leaves(batch))


@pytest.mark.parametrize(("env_traceable", "rollout", "others"), [(True, True, True), (False, False, True)])
def test_auto_follows_the_environment(name, env_traceable, rollout, others):
    auto = BUFFERS[name]("auto")
    assert auto.traceable
    assert_same(auto.init(numbered(0, B)), BUFFERS[name]("device").init(numbered(0, B)))
    assert all(isinstance(x, jax.Array) for x in jax.tree.leaves(auto.init(numbered(0, B))))
    chosen = auto.for_env(env_traceable)
    assert chosen.traceable == (rollout if name == "rollout" else others)
    assert chosen == BUFFERS[name]("device" if chosen.traceable else "host")
    assert auto.home == ("actor" if name == "rollout" else "learner")


def test_a_place_that_was_chosen_stays(buffer):
    assert buffer.for_env(True) == buffer == buffer.for_env(False)


def test_a_buffer_is_a_frozen_hashable_description(buffer):
    assert hash(buffer) == hash(dataclasses.replace(buffer))
    with pytest.raises(dataclasses.FrozenInstanceError):
        buffer.home = "actor"


@pytest.mark.parametrize(("make", "message"), [
    (lambda: Rollout(0), "Rollout: length=0 leaves nothing to store or to sample.\nUse length=1 or more."),
    (lambda: Replay(0, 1), "Replay: capacity=0 leaves nothing to store or to sample.\nUse capacity=1 or more."),
    (lambda: PrioritisedReplay(4, 0),
     "PrioritisedReplay: batch_size=0 leaves nothing to store or to sample.\nUse batch_size=1 or more."),
    (lambda: NStep(Replay(4, 1), 0, 0.9), "NStep: n=0 leaves nothing to store or to sample.\nUse n=1 or more."),
    (lambda: Replay(4, 1, "gpu"), "Replay: where='gpu' is not a place for a buffer.\n"
                                  'Use where="auto", where="device" or where="host".'),
    (lambda: PrioritisedReplay(4, 1, alpha=1.5),
     "PrioritisedReplay: alpha=1.5 is not between 0 and 1.\n"
     "Use alpha=0 to switch it off, up to alpha=1 for its full effect."),
    (lambda: PrioritisedReplay(4, 1, beta=-1),
     "PrioritisedReplay: beta=-1 is not between 0 and 1.\n"
     "Use beta=0 to switch it off, up to beta=1 for its full effect."),
    (lambda: NStep(Replay(4, 1), 2, 1.1), "NStep: gamma=1.1 is not between 0 and 1.\n"
                                          "It discounts the rewards of later steps.\n"
                                          "Use the discount that the learner uses, such as gamma=0.99."),
])
def test_options_that_make_no_sense_are_errors(make, message):
    with pytest.raises(UsageError) as error:
        make()
    assert str(error.value) == message
