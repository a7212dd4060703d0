"""`msrl verify` finds each kind of defect that it once said "same" to, planted here one by one."""

import re
from pathlib import Path

import jax.numpy as jnp
import pytest

from msrl.backends import plain
from msrl.cli.main import main
from msrl.engines.divisions import Divisions
from msrl.engines.reference import Reference
from msrl.pipeline import compile
from msrl.verifying import Case, Verifier
from tests.verify.planted import Logging, Sound

PLANTED = Path(__file__).with_name("planted.py")
SMALL = ("--num-envs", "8", "--shards", "4", "--total-steps", "64")


@pytest.fixture
def verify(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("MSRL_CACHE_DIR", "off")
    monkeypatch.chdir(tmp_path)

    def run(trainer, *args):
        code = main(["verify", f"{PLANTED}:{trainer}", "--env", "CartPole-v1", *SMALL, *map(str, args)])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_nothing_is_found_where_nothing_is_planted(verify):
    code, out, err = verify("Sound", "--backends", "eager", "anew", "sizes", "process", "inline", "--distributions",
                            "local")
    assert (code, err) == (0, "")
    assert re.findall(r"^local +(\w+) +1 +(.*)$", out, re.M) == [
        ("eager", "same"), ("anew", "same"), ("sizes", "same"), ("process", "same"), ("inline", "same")]


def test_b1_what_is_cut_by_an_accident_of_its_size(monkeypatch):
    """A table of sixteen entries is taken for something that the environments have."""
    honest = Divisions.alone

    def alone(machine, component, method):
        run = honest(machine, component, method)

        def cutting(root, shard, count, states, args, fields):
            if method == "act" and machine.world.num_envs == 8:
                args = (args[0], args[1][4 * int(shard):4 * int(shard) + 4])
            return run(root, shard, count, states, args, fields)

        return cutting

    def make(config):
        return compile(Sound, "CartPole-v1", strict=True, config=config)

    program = compile(Sound, "CartPole-v1", strict=True, num_envs=8, shards=4)
    case = Case("local", "sizes", 1)
    assert Verifier(program, make=make).verdict(case).result == "same"
    monkeypatch.setattr(Divisions, "alone", alone)
    found = Verifier(program, make=make).verdict(case)
    assert found.result == "differs"
    assert re.sub(r"\(.*planted.py:\d+\)", "(line)", found.reason) == (
        "arguments[1] of actor.act (line) is divided with 8 environments in 4 shards, and given whole with 12 "
        "environments in 2 shards")


def test_b2_numbers_that_are_doubles_in_strict_mode(verify, monkeypatch):
    def pure(machine, node, inputs):
        return machine.ops.scopes.evaluate(node, inputs)

    monkeypatch.setattr(Reference, "pure", pure)
    code, out, _ = verify("Sound", "--backends", "inline", "--distributions", "local")
    assert code == 1
    assert out.splitlines()[-1] == \
        "fast mode differs by more than rounding: env.step was called 20 times, not 22"


def test_b2_numbers_that_are_doubles_in_plain_python(verify, monkeypatch):
    monkeypatch.setattr(plain.Rewrite, "meaning", lambda self, node: None)
    code, out, _ = verify("Sound", "--backends", "eager", "--distributions", "local")
    assert code == 1
    assert re.search(r"local +eager +1 +differs: ", out)
    assert re.search(r"metrics.report .*, call 1: it is given another fields\['\w+'\]\n *fragment +plain Python", out)


@pytest.mark.filterwarnings("ignore::msrl.errors.PurityWarning")  # compiling warns of it already
def test_b3_an_actor_that_counts_how_often_it_is_traced(verify):
    code, out, err = verify("Frozen", "--backends", "anew", "--distributions", "local")
    assert code != 0
    assert "differs" in out or "FrozenActor" in err  # found by verify, or already when compiling


def test_b4_what_several_learners_return_is_put_together_otherwise(verify, monkeypatch):
    honest = Reference.apply

    def apply(machine, component, method, *given):
        out, written = honest(machine, component, method, *given)
        if (component, method) == ("learner", "learn"):
            out = {**out, "means": jnp.concatenate([out["means"], out["means"]])}
        return out, written

    monkeypatch.setattr(Reference, "apply", apply)
    code, out, _ = verify("Sound", "--learner-shards", "2", "--backends", "inline", "--distributions", "local")
    assert code == 1
    assert out.splitlines()[-1].startswith("fast mode differs by more than rounding: metric means is ")


def test_b5_an_effect_that_happens_once_per_instance(monkeypatch):
    """A component on the host that several instances have, wherever the compiler would put it."""
    program = compile(Logging, "CartPole-v1", strict=True, num_envs=8, shards=4, learner_shards=2)
    case = Case("multi-learner", "inline", 2)
    verifier = Verifier(program)
    deployed = verifier.deployed(case)
    for worker in deployed.workers:
        fragment = worker.program.fragment
        if "log" not in fragment.components:
            worker.program = worker.program.__class__(**{
                **{name: getattr(worker.program, name) for name in worker.program.__slots__},
                "fragment": fragment.__class__(fragment.name, (*fragment.components, "log"), fragment.axis)})
    monkeypatch.setattr(verifier, "deployed", lambda case: deployed)
    found = verifier.verdict(case)
    assert (found.result, re.sub(r"\d", "#", found.reason)) == (
        "differs", "log runs on the host in # instances, so that its effects happen # times")


def test_b6_a_value_that_changes_under_its_other_names(verify, monkeypatch):
    honest = plain.Rewrite.visit_AugAssign
    monkeypatch.setattr(plain.Rewrite, "visit_AugAssign",
                        lambda self, node: node if node.target.id == "grown" else honest(self, node))
    code, out, _ = verify("Sound", "--backends", "eager", "--distributions", "local")
    assert code == 1
    assert "differs: metric kept of report 1\n" in out




def test_every_case_may_be_compiled_anew():
    program = compile(Sound, "CartPole-v1", strict=True, num_envs=8, shards=4, total_steps=64)
    verifier, case = Verifier(program, anew=True), Case("single-learner-coarse", "inline", 2)
    assert verifier.verdict(case).result == "same"
    assert {worker.ops.alone for worker in verifier.deployed(case).workers}.isdisjoint({program.ops.alone})
    assert Verifier(program).deployed(case).workers[0].ops.alone is program.ops.alone
