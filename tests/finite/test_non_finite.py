"""An update that is not finite is not kept: every deployment finds the same one, and goes on as if it had not been."""

from threading import Condition

import jax
import numpy as np
import pytest

from msrl.api import LearnerState
from msrl.engines.finite import flags_of
from msrl.errors import NonFiniteError
from msrl.ir.counting import steps_before
from msrl.pipeline import Deployment, compile
from msrl.runtime.ledger import Ledger
from msrl.runtime.store import Store
from tests.finite.spoiling import Ditch, HostDitch, OneProgram, Walk, WithoutThird, trees_equal

AT = 10  # in the third update of 4 steps each
NAMES = ("batch.reward", "metrics.loss", "params/w")
ONE = {"shards": 2}
TWO = {"shards": 2, "learner_shards": 2}
COARSE, MULTI = "single-learner-coarse", "multi-learner"

DEPLOYMENTS = {
    "fast": (Deployment(), {}),
    "fast, every op a call": (Deployment(passes="-fuse-stretches"), {}),
    "strict": (Deployment(), {"strict": True}),
    "coarse on threads": (Deployment(COARSE, "threads", actors=2), ONE),
    "strict coarse": (Deployment(COARSE, "inline", actors=2), {**ONE, "strict": True}),
    "two learners in one program": (Deployment(), TWO),
    "two learners on threads": (Deployment(MULTI, "threads", learners=2), TWO),
    "two strict learners": (Deployment(MULTI, "inline", learners=2), {**TWO, "strict": True}),
    "central": (Deployment("central", "threads", learners=2), TWO),
}


def finish(program):
    update = None
    for each in program.run():
        update = each
    return update


def fault_of(run):
    with pytest.raises(NonFiniteError) as caught:
        run()
    return caught.value


@pytest.mark.parametrize(("name", "env"), [
    *((name, Ditch) for name in DEPLOYMENTS),
    *((name, HostDitch) for name in ("fast", "strict", "coarse on threads"))])
def test_every_deployment_stops_at_the_same_update(name, env):
    deployment, settings = DEPLOYMENTS[name]
    program = compile(Walk, env(AT), deployment=deployment, **settings)
    error = fault_of(lambda: finish(program))
    assert (error.fault.update, error.fault.names, error.fault.env_steps) == (3, NAMES, 48)
    assert error.span is not None
    assert "msrl.agent_learn" in error.span.text
    # Up to the update all was well: what was kept of it is what goes in there.
    last = error.fault.batches[-1][0]
    assert np.isnan(last.reward).any(1).tolist() == [False, True, False, False]
    assert np.isfinite(error.fault.state.params["w"]).all()
    assert int(error.fault.state.extra) == 3 - len(error.fault.batches)


@pytest.mark.parametrize("name", ["fast", "strict", "coarse on threads", "two learners in one program",
                                  "two strict learners", "central"])
def test_a_skipped_update_has_never_been(name):
    deployment, settings = DEPLOYMENTS[name]
    wanted = compile(WithoutThird, Ditch(), deployment=deployment, non_finite="ignore", **settings)
    finish(wanted)
    program = compile(Walk, Ditch(AT), deployment=deployment, non_finite="skip", **settings)
    update = finish(program)
    assert update.updates_skipped == 1
    assert update.accounts == {"produced": 96, "trained": 80, "dropped": {"non-finite": 16}, "in_flight": 0}
    assert trees_equal(program.resources["$learner"], wanted.resources["$learner"])
    assert trees_equal(program.resources["$weights"], wanted.resources["$weights"])
    assert int(program.resources["$learner"].extra) == 5


def test_the_meaning_stops_there_too():
    program = compile(Walk, Ditch(AT), strict=True)
    for run in (program.interpret, program.eager):
        assert (lambda fault: (fault.update, fault.names))(fault_of(run).fault) == (3, NAMES)


def test_of_several_seeds_the_first_that_is_not_finite_is_named():
    error = fault_of(lambda: finish(compile(Walk, Ditch(AT), seeds=2)))
    assert (error.fault.update, error.fault.names, error.fault.seed) == (3, NAMES, 0)
    assert error.fault.batches[-1][0].reward.shape == (4, 4)


def test_seeds_skip_each_for_itself():
    program = compile(Walk, Ditch(AT), seeds=2, non_finite="skip")
    update = finish(program)
    alone = compile(Walk, Ditch(AT), non_finite="skip")
    finish(alone)
    assert update.updates_skipped == 2
    assert program.skips.each.tolist() == [1, 1]
    for state in program.per_seed("$learner"):
        assert trees_equal(state, alone.resources["$learner"])


def test_within_one_compiled_call_the_first_update_is_named():
    """Others come after it there, all of which have NaN parameters; and the learner is large, so that it is not copied
    for every learn."""
    error = fault_of(lambda: finish(compile(OneProgram, Ditch(AT))))
    assert (error.fault.update, error.fault.names, error.fault.env_steps) == (3, NAMES, 48)
    assert len(error.fault.batches) == 3
    assert int(error.fault.state.extra) == 0


def test_a_learn_in_a_branch_is_kept_with_those_before_it():
    """Its batches are put aside in the branch; passes without a learn leave none."""
    fault = fault_of(lambda: finish(compile(WithoutThird, Ditch(14)))).fault
    assert (fault.update, fault.names) == (3, NAMES)
    assert int(fault.state.extra) == 0
    assert [float(batch[0].obs[0, 0, 1]) for batch in fault.batches] == [0, 4, 12]
    assert [bool(np.isfinite(batch[0].reward).all()) for batch in fault.batches] == [True, True, False]


def test_parameters_that_others_go_on_from_are_not_spoilt():
    """Learners that do not wait for one another: a gradient is refused where the parameters are."""
    ledger = Ledger()
    store = Store(ledger, Condition(), lockstep=False, watched=True)
    for steps, state in ((8, [np.float32(1)]), (8, [np.float32(np.nan)])):
        store.begin(steps)
        assert store.step(("$learner", 0), 0, [np.float32(0)], lambda _, state=state: state) == [np.float32(1)]
        store.end(0, steps)
    assert ledger.asdict() == {"produced": 16, "trained": 8, "dropped": {"non-finite": 8}, "in_flight": 0,
                               "lags": {0: 1}}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_found_wherever_it_is(value):
    spoilt = np.full((3, 5), np.float32(3e38))  # their sum is no float, and they are
    state = LearnerState({"w": spoilt, "count": np.int32(7)}, None)
    assert flags_of((spoilt, np.arange(3)), {}, state).tolist() == [False, False]
    spoilt = spoilt.copy()
    spoilt[2, 4] = value
    assert flags_of((spoilt, np.arange(3)), {}, state).tolist() == [True, False]


def test_what_is_ignored_goes_through():
    program = compile(Walk, Ditch(AT), non_finite="ignore")
    assert finish(program).updates_skipped == 0
    assert np.isnan(program.resources["$learner"].params["w"]).all()


def test_without_a_fault_nothing_changes():
    found = []
    for mode in ("stop", "skip", "rollback", "ignore"):
        program = compile(Walk, Ditch(), non_finite=mode)
        finish(program)
        found.append(jax.device_get(program.resources["$learner"]))
    assert all(trees_equal(found[0], other) for other in found[1:])


@pytest.mark.parametrize(("learn", "steps"), [(1, 4), (3, 12), (6, 24), (7, None)])
def test_steps_before_a_learn_are_told_by_the_graph(learn, steps):
    graph = compile(Walk, Ditch()).graph
    assert steps_before(graph, learn) == steps


def test_steps_before_a_learn_may_depend_on_values():
    assert steps_before(compile(WithoutThird, Ditch()).graph, 1) is None


def test_the_error_says_all():
    error = fault_of(lambda: finish(compile(Walk, Ditch(AT))))
    assert str(error).replace(error.span.file, "FILE") == f"""\
Update 3 is not finite: batch.reward, metrics.loss, params/w.

  FILE:{error.span.line}
{error.span.line:>5} | msrl.report(msrl.agent_learn(msrl.replay_buffer_sample()))
                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

It came after 48 environment steps. What it would have made of the learner is not kept.
See docs/non-finite.md."""
