"""Who is given which fault: the first instance of a fragment, at the head of the pass that was named."""

import pytest

from msrl import envs
from msrl.backends.injecting import Doomed
from msrl.backends.remote import assign
from msrl.backends.schedule import Schedule
from msrl.pipeline import Deployment, compile
from msrl.runtime.chaos import Fault, Link, parse
from tests.matrix.loops import LOOPS


def test_a_worker_dies_at_the_head_of_its_pass_and_no_chunk_goes_past_it():
    fault, died = Fault("kill", "actor", 5), []
    schedule = Doomed(Schedule(("i", "j"), every=8), "j", (fault,), died.append)
    assert schedule.passes("i", 4, 3) == 3 and schedule.passes("j", 0, 10) == 4 and schedule.passes("j", 3, 10) == 1
    assert died == []
    assert schedule.passes("j", 4, 2) == 2
    assert died == [fault]
    assert schedule.passes("j", 5, 10) == 3  # as the schedule has it
    assert died == [fault] and schedule.ahead == (1, 8)


@pytest.fixture
def env():
    found = envs.make("gymnasium:CartPole-v1")
    yield found
    found.close()


def test_processes_are_told_of_their_own_faults_only(env):
    program = compile(LOOPS["Plain"], env, strict=True, shards=4, deployment=Deployment(
        "single-learner-coarse", "inline", actors=2))
    chaos = parse("kill:env@2,kill:learner@3,kill:learner@1,raise:env@7,delay:moves=2ms")
    first, second, learner = assign(program.workers, program.placed, program.trainer, program.env, seed=0, seeds=1,
                                    chaos=chaos)
    assert (first.kills, first.trouble) == ((Fault("kill", "env", 2),), (("raise", 7),))
    assert (second.kills, second.trouble) == ((), ())
    assert (learner.kills, learner.trouble) == ((Fault("kill", "learner", 3), Fault("kill", "learner", 1)), ())
    assert {each.link for each in (first, second, learner)} == {Link(0.002)}
    assert not env._trouble  # it befalls those of another process
