"""Our own programs, and those written by hand, as contestants of the benchmarks."""

import jax
import jax.numpy as jnp

import msrl
from benchmarks import hand_ppo, pure_ppo
from benchmarks.hand_epochs import make_epochs
from benchmarks.ours import Ours, profiled, shares
from benchmarks.ratios import Jitted

TINY = dict(num_envs=4, rollout=8, epochs=1, minibatches=1, hidden=(8,))
COARSE = msrl.Deployment("single-learner-coarse", "threads")


def test_a_turn_has_whole_passes_and_a_program_that_ends_is_begun_anew():
    ours = Ours("ours", "ppo", "CartPole-v1", steps=32, passes=1, deployment=COARSE, **TINY)
    first = ours.program
    assert ours.turn(0.0) > 0 and ours.looks == 3  # one as it was made, one before the clock, one by the clock
    assert ours._passes() == 3 and first is ours.program
    ours.looks = 199
    ours.turn(0.0)
    assert ours.program is not first and ours.looks == 3
    assert len(ours.worked) == 2
    ours.close()


def test_what_warms_up_is_not_counted():
    ours = Ours("ours", "dqn", "CartPole-v1", steps=1, passes=2, warmup=64, num_envs=1, batch_size=8, hidden=(8,))
    assert ours._passes() == 2  # of the loop that learns
    ours.close()


def test_a_profile_names_the_ops_that_take_time():
    parts = profiled("ppo", "gymnasium:CartPole-v1", 32 * 6, deployment=msrl.Deployment(passes="-call-back"), **TINY)
    assert {"env.step", "moves"} <= set(parts) and any("learner.learn" in name for name in parts)
    assert 0.3 < sum(parts.values()) < 1.01  # the rest is waiting for whoever looks
    assert shares({"a": 0.514, "b": 0.3, "c": 0.01}) == "a 51 %, b 30 %"


def test_programs_by_hand_learn():
    settings = hand_ppo.Settings(envs=16, rollout=64, updates=40)
    for module in (hand_ppo, pure_ppo):
        init, update = module.make(settings)
        state = init(jax.random.key(0))
        for _ in range(40):
            state, metrics = update(state)
        assert bool(jnp.isfinite(metrics).all())
        entropy = float(metrics[3])
        assert 0.0 < entropy < 0.66, module.__name__  # it began at log 2 = 0.69


def test_epochs_by_hand_lower_the_loss():
    state, update = make_epochs(64, 2, 2, (8,))
    losses = []
    for _ in range(30):
        state, loss = update(state)
        losses.append(float(loss))
    assert losses[-1] < losses[0]


def test_a_program_by_hand_is_timed_in_steps():
    contestant = Jitted("doubling", jax.jit(lambda x: (2 * x, x)), jnp.float32(1.0), steps=10)
    assert float(contestant.state) == 2.0  # once, to compile it
    assert contestant.turn(0.0) > 0 and float(contestant.state) == 4.0
