"""Every environment step is accounted for, under every distribution; and asynchronous ones keep their bounds."""

import pytest

from msrl.errors import UsageError
from msrl.pipeline import Deployment, compile
from tests.matrix.loops import LOOPS
from tests.matrix.toys import Corridor, HostCorridor, Steady

COARSE, ASYNC, CENTRAL = "single-learner-coarse", "single-learner-coarse-async", "central-async"
TINY = dict(num_envs=8, shards=4, rollout=4, updates=50)
IMPALA = dict(num_envs=8, shards=4, rollout=4, total_steps=1600, hidden=(8,))


def balanced(accounts):
    return accounts["produced"] == accounts["trained"] + sum(accounts["dropped"].values()) + accounts["in_flight"]


@pytest.mark.parametrize("deployment", [
    Deployment(), Deployment(COARSE, "inline", 2), Deployment(COARSE, "threads", 3),
    Deployment("single-learner-fine", "threads", 2), Deployment("multi-learner", "inline", learners=2),
    Deployment("device-only", "inline"), Deployment("central", "inline", learners=2),
    Deployment(CENTRAL, "inline", learners=2), Deployment(CENTRAL, "threads", learners=4, max_lag=3),
    Deployment(ASYNC, "inline", 2), Deployment(ASYNC, "threads", 4, max_lag=1),
], ids=lambda d: f"{d.distribution}-{d.backend}")
def test_steps_are_produced_trained_on_dropped_or_in_flight(deployment):
    program = compile(Steady, Corridor(), deployment=deployment, learner_shards=deployment.learners, **TINY)
    updates = list(program.run())
    assert all(balanced(update.accounts) for update in updates)
    last = updates[-1].accounts
    if deployment.distribution == CENTRAL:  # each learner has a loop of its own
        assert program.env_steps == last["produced"] == 1600 and last["in_flight"] == 0
        return
    assert last["trained"] == 50 * 32  # the learner's loop is the one that counts
    if deployment.distribution != ASYNC:
        assert last == {"produced": 1600, "trained": 1600, "dropped": {}, "in_flight": 0}
        assert program.env_steps == 1600


def test_a_step_of_all_agents_is_one_step():
    program = compile("mappo", "simple_spread", deployment=Deployment("environments", "threads", learners=3),
                      num_envs=2, agent_shards=3, rollout=4, total_steps=32, hidden=(4,), epochs=1, minibatches=1)
    updates = list(program.run())
    assert all(balanced(update.accounts) for update in updates)
    assert updates[-1].accounts == {"produced": 32, "trained": 32, "dropped": {}, "in_flight": 0}


@pytest.mark.parametrize("backend", ["inline", "threads"])
@pytest.mark.parametrize("max_lag", [0, 2])
def test_what_is_too_old_is_dropped(backend, max_lag):
    """Actors run ahead as far as their queues let them, which is further than these bounds."""
    program = compile(Steady, Corridor(), deployment=Deployment(ASYNC, backend, 4, max_lag=max_lag), **TINY)
    accounts = list(program.run())[-1].accounts
    assert balanced(accounts)
    assert max(accounts["lags"]) <= max_lag
    assert sum(accounts["lags"].values()) == 50 * 4  # four parts in each of the learner's batches
    assert accounts["dropped"]["lag"] > 0


def test_without_a_bound_nothing_is_dropped():
    program = compile(Steady, Corridor(), deployment=Deployment(ASYNC, "inline", 4), **TINY)
    accounts = list(program.run())[-1].accounts
    assert accounts["dropped"] == {} and max(accounts["lags"]) >= 1


def test_gradients_that_are_too_old_are_dropped():
    """Inline, four learners take turns, so that each comes when the three others have taken a step."""
    bound, free = (list(compile("impala", "CartPole-v1", learner_shards=4, deployment=Deployment(
        CENTRAL, "inline", learners=4, max_lag=max_lag), **IMPALA).run())[-1].accounts for max_lag in (0, None))
    assert free == {"produced": 1600, "trained": 1600, "dropped": {}, "in_flight": 0, "lags": free["lags"]}
    assert sum(free["lags"].values()) == 4 * 50 and max(free["lags"]) == 3
    assert set(bound["lags"]) == {0}
    assert bound["dropped"]["lag"] > 0 and bound["trained"] == 8 * sum(bound["lags"].values())
    assert balanced(bound)


@pytest.mark.parametrize("env", [Corridor(), HostCorridor()], ids=["jax", "host"])
@pytest.mark.parametrize("name", ["Plain", "Components"])
def test_other_loops_run_asynchronously(name, env):
    program = compile(LOOPS[name], env, deployment=Deployment(ASYNC, "threads", 2), shards=2)
    updates = list(program.run())
    assert balanced(updates[-1].accounts)
    meant = compile(LOOPS[name], env, shards=2)
    assert list(meant.run())
    learnt = [int(each.resources["$learner"].opt["learnt"]) for each in (program, meant)]
    assert learnt[0] == learnt[1]  # the learner's loop is the one that counts


@pytest.mark.parametrize("name, why", [
    ("TwoBuffers", "First come, first served: what the learner takes of one actor it takes in one go, and this value "
                   "reaches it in another loop or branch than the first."),
    ("Rows", "Actors run until the learner is done, and here it wants a value of theirs after its last loop."),
    ("Ends", "Nothing that actors make reaches the learner in its last loop, which trains."),
    ("Logic", "Actors never wait for the learner, and here they want more of it than weights."),
])
def test_loops_that_have_no_asynchronous_meaning_are_refused(name, why):
    with pytest.raises(UsageError) as error:
        compile(LOOPS[name], Corridor(), deployment=Deployment(ASYNC, "threads", 2), shards=2)
    assert (error.value.what, error.value.why) == ("This loop cannot run asynchronously.", why)
    assert error.value.span is not None


def test_an_early_end_leaves_no_thread_waiting():
    program = compile(Steady, Corridor(), deployment=Deployment(ASYNC, "threads", 4), **TINY)
    run = program.run()
    next(run)
    run.close()
