"""n-step transitions against a plain loop over episodes."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msrl.api import Record
from msrl.buffers import NStep, PrioritisedReplay, Replay
from msrl.errors import RunError, TypeCheckError, UsageError

GAMMA = 0.9
insert = jax.jit(lambda buffer, state, item: buffer.insert(state, item), static_argnums=0)


def random_steps(seed: int, steps: int, batch: int, agents: int = 0) -> list[Record]:
    """A run of `batch` environments, with frequent ends of both kinds (and of both at once)."""
    rng = np.random.default_rng(seed)
    reward = (batch, agents) if agents else (batch,)
    return [Record(obs=rng.normal(size=(batch, 2)).astype(np.float32), action=rng.integers(0, 9, batch, np.int32),
                   reward=rng.normal(size=reward).astype(np.float32), terminated=rng.random(batch) < 0.15,
                   truncated=rng.random(batch) < 0.15, final_obs={"x": rng.normal(size=(batch, 2)).astype(np.float32)},
                   logits=np.full((batch, 3), t, np.float32)) for t in range(steps)]


def reference(run: list[Record], start: int, env: int, n: int) -> Record:
    """The n-step transition that starts at one step of one environment, in Python's own numbers."""
    reward, discount = 0.0, 1.0
    for t in range(start, start + n):
        reward = reward + discount * run[t].reward[env].astype(float)
        discount *= GAMMA
        if run[t].terminated[env] or run[t].truncated[env]:
            break
    first, last = run[start], run[t]
    return Record(obs=first.obs[env], action=first.action[env], logits=first.logits[env], reward=reward,
                  discount=0.0 if last.terminated[env] else discount, final_obs={"x": last.final_obs["x"][env]})


def stored(buffer: NStep, run: list[Record]):
    put = (lambda s, x: insert(buffer, s, x)) if buffer.traceable else buffer.insert
    state = buffer.init(run[0])
    for step in run:
        state = put(state, step)
    return state


def assert_is_n_step(state, run: list[Record], n: int, batch: int) -> None:
    """The store holds each step that is n - 1 inserts old, once, in the order of time."""
    ring = getattr(state.inner, "ring", state.inner)
    starts = max(0, len(run) - n + 1)
    assert ring.size == starts * batch
    for row in range(starts * batch):
        expected = reference(run, row // batch, row % batch, n)
        found = jax.tree.map(lambda x, row=row: np.asarray(x)[row], ring.store)
        assert sorted(found.asdict()) == sorted(expected.asdict())
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, expected)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("where", ["device", "host"])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**16), steps=st.integers(1, 20))
def test_every_step_starts_one_record_that_ends_with_its_episode(where, n, seed, steps):
    run = random_steps(seed, steps, batch=3)
    assert_is_n_step(stored(NStep(Replay(60, 4, where), n, GAMMA), run), run, n, batch=3)


@pytest.mark.parametrize("where", ["device", "host"])
def test_episodes_longer_than_the_window_and_rewards_per_agent(where):
    run = random_steps(3, 40, batch=2, agents=3)
    assert any(s.terminated.any() for s in run) and any(s.truncated.any() for s in run)
    assert_is_n_step(stored(NStep(PrioritisedReplay(80, 4, where=where), 5, GAMMA), run), run, 5, batch=2)


@pytest.mark.parametrize("where", ["device", "host"])
def test_a_truncated_episode_bootstraps_and_a_terminated_one_does_not(where):
    def step(t, terminated, truncated):
        x = np.full(1, t, np.float32)
        return Record(obs=x, action=x, reward=x, final_obs=x + 0.5, terminated=np.array([terminated]),
                      truncated=np.array([truncated]))

    run = [step(1, False, True), step(2, False, False), step(4, True, False), step(8, False, False)]
    ring = stored(NStep(Replay(8, 4, where), n=2, gamma=0.5), run).inner
    np.testing.assert_array_equal(ring.store.reward[:3], [1, 2 + 0.5 * 4, 4])
    np.testing.assert_array_equal(ring.store.discount[:3], [0.5, 0, 0])
    np.testing.assert_array_equal(ring.store.final_obs[:3], [1.5, 4.5, 4.5])


@pytest.mark.parametrize("where", ["device", "host"])
def test_it_runs_on_after_the_ring_has_wrapped(where):
    run = random_steps(5, 30, batch=2)
    state = stored(NStep(Replay(6, 4, where), 3, GAMMA), run)
    assert state.count < 6  # counts modulo n once it is warm, and so never overflows
    ring = state.inner
    assert ring.size == 6
    order = (int(ring.position) + np.arange(6)) % 6
    np.testing.assert_array_equal(np.asarray(ring.store.logits)[order, 0], [25, 25, 26, 26, 27, 27])


@pytest.mark.parametrize("make", [Replay, PrioritisedReplay])
def test_until_n_steps_are_seen_there_is_nothing_to_sample(make):
    run = random_steps(1, 2, batch=2)
    on_device, on_host = (NStep(make(8, 4, where=where), 3, GAMMA) for where in ("device", "host"))
    _, batch = on_device.sample(stored(on_device, run), jax.random.key(0))
    assert all((np.asarray(x) == 0).all() for x in jax.tree.leaves(batch))
    with pytest.raises(RunError, match=f"^{make.__name__} is sampled before anything was inserted.\n"):
        on_host.sample(stored(on_host, run), jax.random.key(0))


@pytest.mark.parametrize("where", ["device", "host"])
def test_priorities_are_those_of_the_inner_replay(where):
    run = random_steps(1, 4, batch=2)
    buffer = NStep(PrioritisedReplay(8, 4, alpha=1.0, where=where), 3, GAMMA)
    state = stored(buffer, run)
    np.testing.assert_array_equal(np.asarray(state.inner.tree)[8:], [1, 1, 1, 1, 0, 0, 0, 0])
    state, out = buffer.update(state, jax.random.key(0), np.array([2], np.int32), np.array([5], np.float32))
    assert out is None
    np.testing.assert_array_equal(np.asarray(state.inner.tree)[8:], [1, 1, 5, 1, 0, 0, 0, 0])


def test_without_priorities_there_is_nothing_to_update():
    buffer = NStep(Replay(8, 4), 3, GAMMA)
    with pytest.raises(UsageError) as error:
        buffer.update(None, jax.random.key(0), np.zeros(1, np.int32), np.ones(1, np.float32))
    assert str(error.value) == ("NStep over Replay has no priorities to update.\n"
                                "Use NStep(PrioritisedReplay(...), ...), or leave the update out.")


@pytest.mark.parametrize(("change", "message"), [
    (lambda step: Record(obs=step.obs, action=step.action, reward=step.reward),
     "NStep is given records without terminated, truncated, final_obs.\n"
     "Summing over steps takes the fields obs, action, reward, terminated, truncated, final_obs.\n"
     "Insert them: replay_buffer_insert(obs=obs, action=act.action, reward=step.reward, ...)."),
    (lambda step: step.replace(discount=step.reward),
     "NStep is given a field of the name discount.\n"
     "Its records have a field of that name already, which the buffer itself adds.\n"
     "Give the field another name."),
    (lambda step: step.replace(truncated=step.truncated.astype(np.float32)),
     "NStep: field truncated is float32[2], and should be bool[2].\n"
     "It says for every environment whether the episode ended.\n"
     "Insert truncated=step.truncated."),
    (lambda step: step.replace(terminated=step.terminated[:, None]),
     "NStep: field terminated is bool[2, 1], and should be bool[2].\n"
     "It says for every environment whether the episode ended.\n"
     "Insert terminated=step.terminated."),
])
def test_records_it_cannot_sum_are_errors(change, message):
    with pytest.raises(TypeCheckError) as error:
        NStep(Replay(8, 4), 3, GAMMA).init(change(random_steps(0, 1, batch=2)[0]))
    assert str(error.value) == message
