"""Where learners agree: as the identity, over a batched axis, over a mesh, and as a cut on the host."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from msrl.api.agreement import LEARNERS, agree, apply_gradients
from msrl.engines.cut import Cut, Traffic
from msrl.engines.ops import mean


def learn(w, xs):
    """Agreement in a scan, a branch, a nested function and a while loop."""

    def step(w, x):
        grads = jax.grad(lambda w: jnp.sum((w * x - 1) ** 2))(w)
        return w - 0.1 * agree({"g": grads})["g"], w.sum()

    w, sums = jax.lax.scan(step, w, xs, reverse=True)
    w = jax.lax.cond(sums[0] > 0, agree, lambda w: w * 2, w)
    w = jax.jit(lambda w: agree(w + xs[0]))(w)
    _, w = jax.lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, agree(c[1] * 1.1)), (0, w))
    return w, {"sums": sums, "own": xs.sum()}


W, XS = jnp.ones(3), jnp.arange(24.0).reshape(4, 2, 3) / 10


def run_cut(count):
    start = Cut(learn, W, XS[0])
    running = [start(W, XS[number]) for number in range(count)]
    met, agreements = [steps.send(None) for steps in running], 1
    while True:
        agreed = mean([meeting.brought for meeting in met])
        try:
            met = [steps.send(agreed) for steps in running]
            agreements += 1
        except StopIteration as end:
            return end.value, agreements


def test_one_learner_is_the_plain_function():
    (w, out), agreements = run_cut(1)
    wanted, wanted_out = jax.jit(learn)(W, XS[0])
    np.testing.assert_allclose(w, wanted, rtol=1e-6)
    np.testing.assert_allclose(out["sums"], wanted_out["sums"], rtol=1e-6)
    assert agreements == 2 + 1 + 1 + 2


@pytest.mark.parametrize("count", [2, 4])
def test_the_cut_gives_what_a_batched_axis_gives(count):
    (w, _), _ = run_cut(count)
    wanted, _ = jax.vmap(learn, (None, 0), (None, 0), axis_name=LEARNERS)(W, XS[:count])
    np.testing.assert_allclose(w, wanted, rtol=1e-6)


def test_other_axes_pass_by():
    both, _ = jax.vmap(learn, (None, 0))(W, XS)
    for row, xs in zip(both, XS, strict=True):
        np.testing.assert_allclose(row, learn(W, xs)[0], rtol=1e-6)


def test_the_mean_is_taken_in_order():
    """The sum of these differs with the order, so the order is part of the result."""
    parts = [np.float32([1e8]), np.float32([1.0]), np.float32([-1e8])]
    assert mean(parts)[0] == 0.0
    assert mean([parts[0], parts[2], parts[1]])[0] == np.float32(1) / np.float32(3)


# -- where gradients are applied -------------------------------------------------------------------------------------


FAST, SLOW = optax.adam(0.1), optax.sgd(0.01)


def apply(state, xs):
    """Two sites, one of them in a loop; the rate of the other is a value of the learner's own."""

    def step(carry, x):
        w, opt = carry
        return apply_gradients(FAST, w, opt, {"w": x * w["w"]}), None

    (w, opt), _ = jax.lax.scan(step, (state["w"], state["opt"]), xs)
    rate = xs.sum()
    v, _ = apply_gradients(optax.scale(rate), state["v"], optax.EmptyState(), w["w"])
    return {"w": w, "opt": opt, "v": v}


def first_state():
    w = {"w": jnp.ones(3)}
    return {"w": w, "opt": FAST.init(w), "v": jnp.zeros(3)}


def test_gradients_are_applied_at_sites_that_may_be_elsewhere():
    program = Cut(apply, first_state(), XS[0])
    assert [site.number for site in program.sites] == [0, 1]
    elsewhere = Cut(apply, first_state(), XS[0]).sites  # as another process finds them
    steps, kept, met, agreed = program(first_state(), XS[0]), {}, [], None
    while True:
        try:
            meeting = steps.send(agreed)
        except StopIteration as end:
            found = end.value
            break
        number = meeting.site.number
        if number in kept:  # what was handed back comes again as it is, so that it need not be sent
            assert all(mine is theirs for mine, theirs in zip(meeting.state, kept[number], strict=True))
        agreed = kept[number] = elsewhere[number].apply(meeting.others, meeting.state, meeting.brought)
        met.append((number, len(meeting.brought), len(meeting.state), len(meeting.others)))
    assert met == [(0, 1, 4, 0), (0, 1, 4, 0), (1, 1, 1, 1)]
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(jax.jit(apply)(first_state(), XS[0])), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


def test_traffic_is_counted_before_anything_runs():
    adam = 3 * 12 + 4  # parameters, two moments, and the count
    assert Cut(apply, first_state(), XS[0]).traffic == Traffic(3, 3 * 12, 2 * adam + 12)
    assert Cut(learn, W, XS[0]).traffic is None  # it has a while loop
