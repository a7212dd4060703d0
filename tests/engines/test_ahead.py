"""What a run starts with is compiled before it is needed: once, and with the same outcome."""

import threading
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from msrl.engines import xla
from msrl.engines.ahead import Ahead
from msrl.engines.evaluation import Evaluator
from msrl.pipeline import compile
from tests.cli.tiny import Tiny
from tests.matrix.toys import Corridor, Whole


class TwoLoops(Whole):
    """Both loops and the blocks around them can be foreseen."""

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(3):
            obs = msrl.env_step(msrl.agent_act(obs).action).obs
        seen = obs.sum()
        for i in range(4):
            obs = msrl.env_step(msrl.agent_act(obs).action).obs
            seen = seen + obs.sum() * i
        msrl.report(seen=seen)


class Depends(Whole):
    """How often the second loop runs is known when the first has run."""

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(3):
            obs = msrl.env_step(msrl.agent_act(obs).action).obs
        for _ in range((obs.sum() % 3).astype(int) + 1):
            obs = msrl.env_step(msrl.agent_act(obs).action).obs


@pytest.fixture
def traced(monkeypatch):
    """The programs that were traced so far."""
    found, start = [], xla.Traced.__init__

    def noted(self, *args):
        found.append(self)
        start(self, *args)

    monkeypatch.setattr(xla.Traced, "__init__", noted)
    return found


def compiled_by_calls(worker):
    """How many programs were compiled in the call that needed them."""
    stretches = [program for _, program in worker.engine._programs.values() if program]
    return sum(program.run._cache_size() for program in (*stretches, *worker._chunks.values()))


def test_all_of_a_program_is_traced_once_and_before_it_runs(traced):
    program = compile(TwoLoops, Corridor())
    program.prepare()
    assert len(traced) == 5  # two loops, and the blocks around them
    program.prepare()
    updates = list(program.run())
    assert len(traced) == 5
    assert compiled_by_calls(program.workers[0]) == 0
    assert updates[-1].env_steps == 7 * program.world.num_envs


def test_it_goes_as_far_as_shapes_and_lengths_are_known(traced):
    program = compile(Depends, Corridor())
    program.prepare()
    assert len(traced) == 3  # a block, a loop, and what says how often the next loop runs
    list(program.run())
    assert len(traced) == 4


def test_a_run_prepares_itself(traced):
    program = compile(TwoLoops, Corridor())
    running = program.run()
    next(running)
    assert len(traced) == 5
    running.close()


def test_strict_mode_has_nothing_to_prepare(traced):
    program = compile(TwoLoops, Corridor(), strict=True)
    program.prepare()
    assert traced == []


def test_compilations_go_on_at_the_same_time():
    together = threading.Barrier(2, timeout=30)

    class Function:
        def trace(self, *arguments):
            return SimpleNamespace(lower=lambda: SimpleNamespace(compile=together.wait))

    programs = [Ahead(Function()), Ahead(Function())]
    for program in programs:
        program.begin()
    assert sorted(program.result() for program in programs) == [0, 1]  # each has waited for the other


def test_what_goes_wrong_is_raised_where_the_program_is_asked_for():
    problem = RuntimeError("no such instruction")
    attempts = []

    class Function:
        def trace(self, *arguments):
            return SimpleNamespace(lower=lambda: SimpleNamespace(compile=self.compile))

        def compile(self):
            attempts.append(1)
            raise problem

    program = Ahead(Function())
    program.begin()
    for _ in range(2):
        with pytest.raises(RuntimeError) as caught:
            program.result()
        assert caught.value is problem
    assert len(attempts) == 1


def test_a_program_is_compiled_by_the_options_of_its_function():
    program = Ahead(jax.jit(lambda x: x + 1, compiler_options={"xla_no_such_option": 1}), np.float32(1))
    with pytest.raises(jax.errors.JaxRuntimeError, match="No such compile option: 'xla_no_such_option'"):
        program.result()


def test_an_evaluation_prepared_without_data_plays_as_one_that_was_not():
    """Normalised observations: what is learnt lies in states that are not there yet when it is prepared."""
    program = compile(Tiny, "CartPole-v1", normalise=True, total_steps=128, shards=2)
    program.prepare(episodes=6)
    list(program.run())
    prepared = program.evaluator._play
    (found,) = program.evaluate(6)
    assert program.evaluator._play is prepared  # and so was used
    program.evaluator = Evaluator(program.world.agent.actor)
    (again,) = program.evaluate(6)
    assert found.lengths.min() > 1
    assert np.array_equal(found.returns, again.returns)
