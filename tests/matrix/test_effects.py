"""What a component on the host does is done once for every call of the loop, wherever it runs."""

from pathlib import Path

import pytest

from msrl.errors import UsageError
from msrl.pipeline import Deployment, compile
from tests.matrix.comparing import Outcome, assert_same, strict
from tests.matrix.effects import Logged
from tests.matrix.toys import Corridor

DEPLOYMENTS = [Deployment("single-learner-coarse", "threads", 2), Deployment("single-learner-fine", "inline", 2),
               Deployment("multi-learner", "inline", learners=2), Deployment("multi-learner", "threads", learners=2),
               Deployment("central", "inline", learners=2), Deployment("central", "threads", learners=2),
               Deployment("multi-learner", "inline"), Deployment("device-only", "inline")]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """(a strict program, its log, what the interpreter leaves behind, the log that it writes)."""
    log = tmp_path_factory.mktemp("effects") / "log.txt"
    program = compile(Logged, Corridor(), strict=True, num_envs=4, shards=2, learner_shards=2, log=str(log))
    wanted = Outcome(*program.interpret())
    return program, log, wanted, take(log)


def take(log: Path) -> list[str]:
    lines = log.read_text().splitlines()
    log.unlink()
    return lines


def test_the_interpreter_writes_a_line_per_call(written):
    program, _, _, lines = written
    assert [int(line.split()[0]) for line in lines] == list(range(len(lines)))
    assert len(lines) > program.trainer.config.updates + 1


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda d: f"{d.distribution}-{d.backend}-{d.learners}")
def test_every_distribution_writes_the_same(written, deployment):
    program, log, wanted, lines = written
    found = strict(program.deployed(deployment))
    assert take(log) == lines
    assert found.reports == wanted.reports
    assert_same(wanted.resources, found.resources)


@pytest.mark.parametrize("distribution", ["multi-learner", "central"])
def test_fast_mode_writes_as_many(written, distribution, tmp_path):
    log = tmp_path / "log.txt"
    program = compile(Logged, Corridor(), num_envs=4, shards=2, learner_shards=2, log=str(log),
                      deployment=Deployment(distribution, "threads", learners=2))
    for _ in program.run():
        pass
    assert take(log) == written[3]


def test_a_replicable_one_is_in_every_instance(tmp_path):
    log = tmp_path / "log.txt"
    program = compile(Logged, Corridor(), num_envs=4, shards=2, learner_shards=2, log=str(log), replicable=True,
                      strict=True, deployment=Deployment("multi-learner", "inline", learners=2))
    assert [fragment.name for fragment in program.placed.fragments] == ["learner"]
    for _ in program.run():
        pass
    lines = take(log)
    assert len(lines) % 2 == 0 and len(set(lines)) == len(lines) // 2


def test_it_goes_on_from_a_checkpoint(written):
    """The lines of a run that was cut short and one that goes on from its checkpoint are those of one that was not."""
    _, log, wanted, lines = written
    settings = dict(num_envs=4, shards=2, learner_shards=2, log=str(log), strict=True,
                    deployment=Deployment("multi-learner", "inline", learners=2))
    first = compile(Logged, Corridor(), checkpoint_every=1, **settings)
    for _ in first.run():
        if (checkpoint := first.taken()) is not None:
            break
    take(log)
    again = compile(Logged, Corridor(), start=checkpoint, **settings)
    found = strict(again)
    assert_same(wanted.resources, found.resources)
    rest = take(log)
    assert 0 < len(rest) < len(lines) and rest == lines[-len(rest):]


def test_there_is_one_place_for_it(written):
    program = written[0].deployed(Deployment("multi-learner", "inline", learners=2))
    assert [(each.name, each.components, each.axis) for each in program.placed.fragments][1:] == [
        ("host", ("log",), None)]
    assert sum(worker.program.fragment.name == "host" for worker in program.workers) == 1


@pytest.mark.parametrize(("distribution", "why", "instead"), [
    ("device-only", "The whole loop is one compiled program on several devices, and this component is Python on the "
                    "host.",
     "Make it traceable, or use a distribution with a place for it: --distribution multi-learner."),
    ("central-async", "There are 2 instances of learner, none of which waits for the others: what this component does "
                      "would be done in each of them, or by one for all at no particular time.",
     "Use a synchronous distribution; or, if it may run once in every instance, say so in its class: "
     "`replicable = True`.")])
def test_where_there_is_no_place(written, distribution, why, instead):
    with pytest.raises(UsageError) as caught:
        written[0].deployed(Deployment(distribution, "inline", learners=2))
    error = caught.value
    assert error.what == f"{distribution}: the component log cannot run here."
    assert (error.why, error.instead, error.docs) == (why, instead, "docs/distributions.md#components-on-the-host")
    assert error.span is not None and error.span.text.startswith('odd = msrl.call("log", "write", obs)')
