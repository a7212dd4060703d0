"""Workers that are killed on threads, wherever and whenever: the run goes on to the same bits, or says why not."""

import json
import random
from functools import cache

import pytest

from msrl import running
from msrl.errors import LostError, RunError, UsageError
from msrl.jobs import prepare
from msrl.pipeline import Deployment, Program, compile
from msrl.runtime.chaos import parse
from msrl.runtime.display import Display
from tests.matrix.loops import LOOPS
from tests.matrix.toys import Corridor, HostCorridor

UPDATES = 8
ONE = (Deployment("local", "threads"), Deployment("single-learner-coarse", "threads", 2),
       Deployment("single-learner-fine", "threads", 2))
TWO = (Deployment("multi-learner", "threads", learners=2), Deployment("central", "threads", learners=2))
SEED = 20261116  # of the random kill points


class Lines(Display):
    def __init__(self):
        self.lines = []

    def say(self, *lines):
        self.lines += [line for line in lines if line.startswith("lost")]


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(running, "BACK_OFF", 0.0)
    monkeypatch.setattr(running, "SNAPSHOT_SECONDS", 0.0)
    # What is learnt is compared as it is: to play it would take longer than to learn it.
    monkeypatch.setattr(Program, "evaluate", lambda program, *given: [])
    monkeypatch.setattr(Program, "prepare", lambda program, episodes: None)


def run(deployment, chaos="", path=None, display=None, **more):
    shards = {"learner_shards": 2} if deployment.learners > 1 else {}
    job = prepare(LOOPS["Plain"], Corridor(), strict=True, shards=2, updates=UPDATES, eval_episodes=1,
                  deployment=deployment, chaos=chaos, **{**shards, **more})
    return running.run(job, path, display or Lines())


@cache
def undisturbed(learners):
    return run(Deployment("local", "inline") if learners == 1 else TWO[0])


FRAGMENTS = {"local": ("all",), "single-learner-coarse": ("actor", "learner"), "multi-learner": ("learner",),
             "single-learner-fine": ("env", "learner"), "central": ("learner", "parameters")}


def cases(count):
    """Where to kill, drawn from the recorded seed: (deployment, chaos)."""
    draw, deployments = random.Random(SEED), (*ONE, *TWO)
    for number in range(count):
        deployment = deployments[number % len(deployments)]
        names = FRAGMENTS[deployment.distribution]
        kills = {f"kill:{draw.choice(names)}@{draw.randint(1, UPDATES)}" for _ in range(draw.randint(1, 3))}
        yield deployment, ",".join(sorted(kills))


@pytest.mark.parametrize(("deployment", "chaos"), list(cases(5)),
                         ids=lambda each: each if isinstance(each, str) else each.distribution)
def test_random_kill_points_end_with_the_same_bits(deployment, chaos):
    wanted, result = undisturbed(deployment.learners), run(deployment, chaos)
    assert result.weights_sha256 == wanted.weights_sha256
    assert result.restarts == len(parse(chaos).faults)
    assert result.per_seed[0]["steps"] == wanted.per_seed[0]["steps"]
    assert result.env_steps == wanted.env_steps


def metrics(result):
    """Of all updates. At the end there may be looks without any, if an actor's last steps are heard of after the last
    update that learnt from them."""
    return [update.metrics for update in result.curve if update.metrics]


def test_nothing_is_told_twice(tmp_path):
    """With a run folder and no checkpoints, as with them, rows end where the run goes on."""
    display = Lines()
    result = run(ONE[1], "kill:actor@4,kill:learner@7", tmp_path / "run", display)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["learnt"] for row in rows if "learnt" in row] == list(range(1, UPDATES + 1))
    assert metrics(result) == metrics(undisturbed(1))
    assert sum(row["episodes"] for row in rows) == sum(each.episodes for each in undisturbed(1).curve)
    assert result.weights_sha256 == undisturbed(1).weights_sha256
    first, second = display.lines
    assert first.startswith("lost         The worker of instance 0 of fragment actor died. Going on from ")
    assert second.startswith("lost         The worker of instance 0 of fragment learner died. Going on from ")
    assert second.endswith(" steps (2 of 3 times).") and "from 0 steps" not in second


def test_workers_are_not_lost_for_ever():
    with pytest.raises(LostError) as lost:
        run(ONE[1], "kill:actor@2,kill:learner@3", restarts=1)
    assert str(lost.value) == """\
The worker of instance 0 of fragment learner died.
--chaos kill:learner@3 ended it.
Allow for more losses with --restarts, or leave out --chaos."""


# -- what is lost, and what is wrong -----------------------------------------------------------------------------------


class Reaches(HostCorridor):
    """An environment of one's own, whose third step in a process goes wrong: so many times."""

    def __init__(self, problem, times):
        self.problem, self.times, self.steps = problem, times, 0

    def step(self, state, action, key):
        self.steps += 1
        if self.steps >= 3 and self.times:
            self.times -= 1
            raise self.problem
        return super().step(state, action, key)


def reach(problem, times, restarts=3):
    env = Reaches(problem, times)
    job = prepare(LOOPS["Plain"], env, strict=True, deployment=Deployment("single-learner-fine", "threads"),
                  eval_episodes=1, restarts=restarts)
    display = Lines()
    return job, env, display


def test_a_connection_that_breaks_is_a_loss():
    job, env, display = reach(ConnectionResetError("peer hung up"), 2)
    result = running.run(job, None, display)
    assert (result.status, result.restarts, env.times) == ("finished", 2, 0)
    assert display.lines[0] == ("lost         `env.step` lost its connection: ConnectionResetError. "
                                "Going on from 0 steps (1 of 3 times).")


def test_a_connection_that_never_works_ends_the_run():
    job, env, _ = reach(ConnectionResetError("peer hung up"), 9, restarts=1)
    with pytest.raises(LostError) as lost:
        running.run(job, None, Lines())
    assert env.times == 7
    assert lost.value.what == "`env.step` lost its connection: ConnectionResetError."
    assert lost.value.why == "peer hung up"
    assert lost.value.span is not None and lost.value.span.text.strip() == "step = msrl.env_step(act.action)"


def test_a_mistake_is_not_tried_again():
    problem = ValueError("the corridor collapsed")
    job, env, display = reach(problem, 9)
    with pytest.raises(RunError) as wrong:
        running.run(job, None, display)
    assert env.times == 8 and not display.lines
    error = wrong.value
    assert not isinstance(error, LostError)
    assert error.what == "`env.step` fails: ValueError."
    assert error.why == "the corridor collapsed\nIt happened in instance 0 of fragment env."
    assert error.span is not None and error.span.text.strip() == "step = msrl.env_step(act.action)"
    assert error.__cause__ is not None and error.__cause__.__cause__ is problem


# -- what cannot be ----------------------------------------------------------------------------------------------------

SEE = "See docs/reliability.md#faults-on-purpose."


@pytest.mark.parametrize(("deployment", "chaos", "says"), [
    (Deployment("local", "inline"), "kill:actor@3", f"""\
--chaos kill:actor@3 is not possible on inline.
One thread runs everything there: with it, the whole run would be gone.
Add --backend threads, or --backend ray.
{SEE}"""),
    (ONE[1], "kill:lerner@3", f"""\
--chaos kill:lerner@3: there is no fragment 'lerner'.
The fragments of this run: actor, learner.
For instance: kill:learner@3
{SEE}"""),
    (ONE[1], "kill:actor@9", f"""\
--chaos kill:actor@9 would never happen.
The loop that trains makes 8 passes.
For instance: kill:actor@4
{SEE}"""),
    (Deployment("central-async", "threads", learners=2), "kill:parameters@3", f"""\
--chaos kill:parameters@3 would never happen.
This fragment makes no passes of its own: it answers learners whenever they ask.
For instance: kill:learner@3
{SEE}"""),
    (ONE[1], "raise:env@3", f"""\
--chaos raise:env cannot befall corridor.
Its steps are part of compiled programs, which do not raise or hang.
Use an environment of gymnasium:, envpool: or pettingzoo:, or nan:reward or nan:observation.
{SEE}"""),
    (ONE[1], "nan:observation@3", f"""\
--chaos nan:observation cannot befall corridor.
Its observations are of int32, which has no NaN.
Rewards have: nan:reward.
{SEE}""")], ids=lambda each: each if isinstance(each, str) and len(each) < 30 else "")
def test_refused_before_the_run(deployment, chaos, says):
    with pytest.raises(UsageError) as refused:
        compile(LOOPS["Plain"], Corridor(), strict=True, shards=2, updates=UPDATES, chaos=parse(chaos),
                learner_shards=deployment.learners, deployment=deployment)
    assert str(refused.value) == says
