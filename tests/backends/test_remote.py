"""Workers made again from what they are sent: the same bits as in one process, and errors that say where."""

import dataclasses
import os
import pickle
import subprocess
import sys
import textwrap
import threading

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from msrl.api import Record
from msrl.backends import remote
from msrl.backends.wire import Elsewhere, Message, RemoteExchange, pack, portable, unpack
from msrl.errors import RunError, UsageError
from msrl.ir.placed import Move
from msrl.pipeline import Deployment, compile, weights_sha256
from tests.backends.stations import Pickled
from tests.matrix.comparing import Outcome, assert_same, strict
from tests.matrix.herds import HERDS, Herd
from tests.matrix.loops import LOOPS
from tests.matrix.toys import Corridor, HostCorridor, Steady

# Stations compile the same programs at the same time, and JAX may read an entry of its cache that another has not
# finished writing. It says so, and compiles.
pytestmark = pytest.mark.filterwarnings("ignore:Error reading persistent compilation cache entry")

SPREAD = ["single-learner-coarse", "single-learner-fine"]
PPO = dict(num_envs=4, shards=2, rollout=4, total_steps=48, hidden=(8,), epochs=1, minibatches=2)


def away(trainer, env, distribution, actors, learners=1, max_lag=None, **settings):
    """The program, to be run by stations."""
    deployment = Deployment(distribution, "inline", actors, learners, max_lag=max_lag)
    program = compile(trainer, env, deployment=deployment, **settings)
    program.backend = Pickled(program)
    return program


# -- same result -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "distribution", "actors"), [
    ("Plain", "local", 1), ("While", SPREAD[0], 3), ("TwoBuffers", SPREAD[0], 2), ("Branches", SPREAD[1], 3)])
def test_loops_give_the_interpreters_bits(name, distribution, actors):
    wanted = Outcome(*compile(LOOPS[name], Corridor(), strict=True, shards=4).interpret())
    found = strict(away(LOOPS[name], Corridor(), distribution, actors, strict=True, shards=4))
    assert wanted.reports and found.reports == wanted.reports
    assert_same(wanted.resources, found.resources)


def test_an_environment_on_the_host():
    wanted = Outcome(*compile(LOOPS["Plain"], HostCorridor(), strict=True, shards=2).interpret())
    found = strict(away(LOOPS["Plain"], HostCorridor(), SPREAD[1], 2, strict=True, shards=2))
    assert wanted.reports and found.reports == wanted.reports
    assert_same(wanted.resources, found.resources)


@pytest.mark.parametrize(("name", "distribution", "actors", "learners"), [
    ("Herding", "environments", 1, 2), ("Remembering", "environments", 1, 2), ("Herding", SPREAD[0], 2, 1)])
def test_agent_shards_give_the_interpreters_bits(name, distribution, actors, learners):
    wanted = Outcome(*compile(HERDS[name], Herd(), strict=True, shards=2, agent_shards=2).interpret())
    found = strict(away(HERDS[name], Herd(), distribution, actors, learners, strict=True, shards=2, agent_shards=2))
    assert wanted.reports and found.reports == wanted.reports
    assert_same(wanted.resources, found.resources)


def test_looks_bring_what_all_agent_shards_have_learnt():
    here = compile(HERDS["Herding"], Herd(), agent_shards=4)
    there = away(HERDS["Herding"], Herd(), "environments", 1, 3, agent_shards=4)
    wanted, found = ({update.env_steps: program.params()[0]["w"].tolist() for update in program.run()}
                     for program in (here, there))
    assert wanted == found and len(wanted) == 3


@pytest.mark.parametrize(("distribution", "actors", "learners"), [
    (SPREAD[1], 2, 1), ("multi-learner", 1, 2)])
def test_ppo_trains_as_in_one_process(distribution, actors, learners):
    settings = PPO | {"learner_shards": learners}
    here = compile("ppo", "CartPole-v1", strict=True, deployment=Deployment(distribution, "inline", actors, learners),
                   **settings)
    there = away("ppo", "CartPole-v1", distribution, actors, learners, strict=True, **settings)
    wanted, found = list(here.run()), list(there.run())
    assert [update.metrics for update in found] == [update.metrics for update in wanted]
    assert found[-1].env_steps == wanted[-1].env_steps == 48
    assert found[-1].accounts == wanted[-1].accounts == {"produced": 48, "trained": 48, "dropped": {}, "in_flight": 0}
    assert weights_sha256(there.params()) == weights_sha256(here.params())
    assert_same(here.resources, there.resources)
    assert [played.returns.tolist() for played in there.evaluate(4)] == [
        played.returns.tolist() for played in here.evaluate(4)]


def test_fast_mode_trains_and_looks_bring_no_weights_unless_asked():
    program = away("ppo", "CartPole-v1", SPREAD[0], 2, **PPO)
    run = program.run()
    assert next(run).metrics
    assert program.backend.fetched == []
    before = weights_sha256(program.per_seed("$weights")[0])
    assert program.backend.fetched == ["$weights"]
    assert len(program.evaluate(2)) == 1
    assert program.backend.fetched == ["$weights"]  # kept, not fetched twice
    *_, last = run
    assert last.env_steps == 48
    assert weights_sha256(program.per_seed("$weights")[0]) != before


def test_stopping_early_leaves_no_thread():
    program = away(LOOPS["Plain"], Corridor(), SPREAD[0], 2, strict=True, shards=2)
    run = program.run()
    next(run)
    run.close()
    assert not any(station.thread.is_alive() for station in program.backend.stations.values())


# -- first come, first served ----------------------------------------------------------------------------------------


STEADY = dict(num_envs=8, shards=4, rollout=4, updates=20)


@pytest.mark.parametrize("max_lag", [None, 1])
def test_actors_that_nobody_waits_for(max_lag):
    program = away(Steady, Corridor(), "single-learner-coarse-async", 4, max_lag=max_lag, **STEADY)
    updates = list(program.run())
    for accounts in (update.accounts for update in updates):
        assert accounts["produced"] == accounts["trained"] + sum(accounts["dropped"].values()) + accounts["in_flight"]
    last = updates[-1].accounts
    assert last["trained"] == 640 and sum(last["lags"].values()) == 4 * 20  # the learner's loop is the one that counts
    assert max(last["lags"]) <= (max_lag if max_lag is not None else 20)
    assert last["in_flight"] <= 4 * 3 * 8  # what an actor may have untaken, and one that it is at work on
    assert int(np.asarray(program.resources["#learner.learn"])) == 20


@pytest.mark.parametrize("max_lag", [None, 0])
def test_learners_that_do_not_wait_for_one_another(max_lag):
    program = away("impala", "CartPole-v1", "central-async", 1, 4, max_lag=max_lag, learner_shards=4, num_envs=8,
                   shards=4, rollout=4, total_steps=640, hidden=(8,))
    updates = list(program.run())
    last = updates[-1].accounts
    assert last["produced"] == program.env_steps == 640 and last["in_flight"] == 0
    assert last["trained"] == 8 * sum(last["lags"].values())  # one gradient for each update of a learner
    assert last["trained"] + last["dropped"].get("lag", 0) == 640
    assert set(last["lags"]) == {0} if max_lag == 0 else last["trained"] == 640
    ended = [worker.resources["$learner"] for worker in program.workers if worker.leads]
    assert any(all(map(np.array_equal, jax.tree.leaves(one.params), jax.tree.leaves(program.params()[0])))
               for one in ended)


# -- errors ----------------------------------------------------------------------------------------------------------


class Breaks(HostCorridor):
    """Fails on its third step."""

    def step(self, state, action, key):
        state["steps"] = state.get("steps", 0) + 1
        if state["steps"] == 3:
            raise ValueError("the corridor collapsed")
        return super().step(state, action, key)


class BreaksLater(Breaks):
    def init(self, key, num_envs):
        return {**super().init(key, num_envs), "steps": 0}


def test_an_error_names_the_line_the_instance_and_the_users_traceback():
    program = away(LOOPS["Plain"], BreaksLater(), SPREAD[1], 2, strict=True, shards=2)
    with pytest.raises(RunError) as caught:
        list(program.run())
    error = caught.value
    assert error.what == "`env.step` fails: ValueError."
    assert error.span is not None and error.span.file.endswith("loops_parts.py")
    assert error.span.text.strip() == "step = msrl.env_step(act.action)"
    first, second = error.why.splitlines()
    assert first == "the corridor collapsed"
    assert second in {f"It happened in instance {number} of fragment env." for number in range(2)}
    trace = str(error.__cause__)
    assert 'raise ValueError("the corridor collapsed")' in trace and "test_remote.py" in trace
    assert not any(station.thread.is_alive() for station in program.backend.stations.values())


def test_other_surroundings_are_refused_in_strict_mode(monkeypatch):
    program = away(LOOPS["Plain"], Corridor(), SPREAD[0], 2, strict=True, shards=2)
    there = {**remote.surroundings.record(), "jaxlib": "0.0.1"}
    monkeypatch.setattr(remote.surroundings, "record", lambda: there)
    monkeypatch.setattr(remote.platform, "node", lambda: "elsewhere")
    with pytest.raises(UsageError) as caught:
        remote.settle(program.backend.assignments[0], program.backend.post)
    assert str(caught.value) == f"""\
Strict mode cannot use the worker on elsewhere.
Results have equal bits only under equal settings: jaxlib is '0.0.1' there and '{jax.lib.__version__}' here.
Use machines of one kind, with the same jaxlib; or leave out --strict."""
    fast = dataclasses.replace(program.backend.assignments[0], record=None)
    assert not remote.settle(fast, program.backend.post).strict


# -- in a fresh process ----------------------------------------------------------------------------------------------


MINE = """
from flax import struct
from msrl.algorithms.ppo import PPO

@struct.dataclass
class Note:
    a: float

class Mine(PPO):
    pass
"""


def test_a_users_file_need_not_be_where_the_worker_is(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    program = compile(f"{file}:Mine", "CartPole-v1", strict=True, deployment=Deployment(SPREAD[0], "inline", 2), **PPO)
    assignment = remote.assign(program.workers, program.placed, program.trainer, program.env, seed=0, seeds=1)[0]
    module = type(program.trainer).__module__
    sent = tmp_path / "assignment"
    sent.write_bytes(cloudpickle.dumps(assignment))
    file.unlink()
    code = textwrap.dedent(f"""
        import cloudpickle, pathlib, sys
        import jax
        from msrl.backends.remote import settle
        worker = settle(cloudpickle.loads(pathlib.Path({str(sent)!r}).read_bytes()), None)
        cls = type(worker.ops.world.trainer)
        print(cls.__module__, cls.__name__, worker.program.fragment.name, worker.instance, worker.ops.world.num_envs,
              len(jax.tree.leaves(sys.modules[cls.__module__].Note(1.0))))
    """)
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **remote.environment()}, cwd=tmp_path,
                          capture_output=True, text=True, check=False)
    assert done.stderr == ""
    fragment = program.workers[0].program.fragment.name
    assert done.stdout.split() == [module, "Mine", fragment, "0", "2", "1"]
    assert [name for name, _, _ in assignment.files] == [module]
    assert away(LOOPS["Plain"], Corridor(), SPREAD[0], 1).backend.assignments[0].files == ()  # it has no use for it


@pytest.mark.parametrize("kept", [True, False])
def test_workers_keep_compiled_programs_if_the_coordinator_does(kept, monkeypatch, tmp_path):
    monkeypatch.delenv("MSRL_CACHE_DIR", raising=False)
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path) if kept else None)
    try:
        assert ("MSRL_CACHE_DIR" in remote.environment()) is not kept
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


# -- values on the wire ----------------------------------------------------------------------------------------------


def cross(thing):
    return pickle.loads(cloudpickle.dumps(thing))


@pytest.mark.parametrize("leaf", [
    3, True, 0.1, np.float32(0.1), np.arange(3), np.int64(2), jnp.arange(6.0).reshape(2, 3), jnp.asarray(0.1),
    jnp.float32(0.1), jnp.zeros((0, 2), jnp.bfloat16), jax.random.key(7)], ids=repr)
def test_a_leaf_keeps_its_kind(leaf):
    found, = unpack(cross(pack(leaf)))
    assert type(found) is type(leaf)
    if isinstance(leaf, jax.Array):
        assert found.aval == leaf.aval  # with the weakness of its type
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf, found = jax.random.key_data(leaf), jax.random.key_data(found)
    assert np.asarray(found).dtype == np.asarray(leaf).dtype
    assert np.asarray(found).tobytes() == np.asarray(leaf).tobytes()


def test_what_cannot_leave_is_named_and_what_is_written_over_is_copied():
    place = np.zeros(2)
    record = Record(lock=threading.Lock(), place=place, random=np.random.default_rng(3))
    found = cross(portable({"a": record}))
    place[:] = 9
    assert found["a"].lock == Elsewhere("lock")
    assert found["a"].place.tolist() == [0, 0]
    assert found["a"].random.integers(1000) == np.random.default_rng(3).integers(1000)


def test_what_arrives_may_be_written_to():
    shared = np.arange(3)
    shared.flags.writeable = False
    found, number = unpack(((False, False), [shared, 5]))
    found[0] = 7
    assert (found.tolist(), shared.tolist(), number) == ([7, 1, 2], [0, 1, 2], 5)


GATHER = Move("x.1", "env", "learner", "gather", 0)
SCATTER = Move("y.1", "learner", "env", "scatter", 0)
SIZES = {"env": (2, 1), "learner": (3,)}
TREE = jax.tree.structure(Record(x=0, n=0))


def exchange(instance, post):
    return RemoteExchange((GATHER, SCATTER), SIZES, instance, {GATHER.id: TREE, SCATTER.id: TREE}, post)


def test_a_scatter_sends_each_its_own_rows_only():
    sent = []
    exchange(0, lambda fragment, instances, message: sent.append((fragment, instances, cross(message)))).send(
        SCATTER.id, 0, Record(x=jnp.arange(3000).reshape(3, 1000), n=5))
    assert [(fragment, instances) for fragment, instances, _ in sent] == [("env", [0]), ("env", [1])]
    sizes = [len(cloudpickle.dumps(message)) for _, _, message in sent]
    assert 8000 < sizes[0] < 8600 and 4000 < sizes[1] < 4600
    other = exchange(1, None)
    other.deliver(sent[1][2])
    value = other.receive(SCATTER.id, 1)
    assert isinstance(value.x, jax.Array) and value.x[:, 0].tolist() == [2000] and value.n == 5


def test_order_is_kept_whatever_arrives_first():
    learner = exchange(0, None)

    def message(source, number, rows):
        return Message(GATHER.id, source, number, pack(Record(x=jnp.full((rows,), 10 * source + number), n=number)))

    learner.deliver(message(0, 2, 2))
    learner.deliver(message(1, 1, 1))
    assert not learner.ready(GATHER.id, 0)
    learner.deliver(message(0, 1, 2))
    assert learner.ready(GATHER.id, 0)
    first = learner.receive(GATHER.id, 0)
    assert first.x.tolist() == [1, 1, 11] and first.n == 1
    assert not learner.ready(GATHER.id, 0)
    learner.deliver(message(1, 2, 1))
    assert learner.receive(GATHER.id, 0).x.tolist() == [2, 2, 12]


def test_what_leaves_together_is_one_letter_to_each():
    sent = []
    source = exchange(1, lambda fragment, instances, message: sent.append((fragment, instances, cross(message))))
    values = [Record(x=jnp.full((1,), number), n=number) for number in (4, 5)]
    source.send_together(1, [(GATHER.id, values[0], 0), (GATHER.id, values[1], 0)])
    (fragment, instances, letter), = sent
    assert (fragment, tuple(instances)) == ("learner", (0,))
    learner = exchange(0, None)
    learner.deliver(letter)
    other = Record(x=jnp.zeros(2, int), n=0)
    learner.deliver(Message(GATHER.id, 0, 1, pack(other)))
    learner.deliver(Message(GATHER.id, 0, 2, pack(other)))
    assert [learner.receive(GATHER.id, 0).x.tolist() for _ in range(2)] == [[0, 0, 4], [0, 0, 5]]


AGREE = Move("$learner.1", "learner", "learner", "allreduce", None)


def test_an_agreement_takes_any_tree_from_each_and_asks_oneself_directly():
    def learner(instance):
        return RemoteExchange((AGREE,), {"learner": (2, 2, 2)}, instance, {}, lambda *sent: posted.append(cross(sent)))

    posted = []
    last = learner(2)
    last.send(AGREE.id, 2, [Record(loss=jnp.float32(3)), [4, np.arange(2)]])  # two learners in one place
    (fragment, others, _), = posted
    assert (fragment, others) == ("learner", [0, 1])
    for instance, brought in enumerate([[Record(loss=jnp.float32(1))], [(jnp.float32(2),)]]):
        assert not last.ready(AGREE.id, 2)
        learner(instance).send(AGREE.id, instance, brought)
        last.deliver(posted[-1][2])
    assert last.ready(AGREE.id, 2)
    found = [one for part in last.receive(AGREE.id, 2) for one in part]
    assert [type(one) for one in found] == [Record, tuple, Record, list]
    assert (found[0].loss, found[1], found[2].loss, found[3][0], found[3][1].tolist()) == (1, (2,), 3, 4, [0, 1])
    assert isinstance(found[1][0], jax.Array) and not last.ready(AGREE.id, 2)
