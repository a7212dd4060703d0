"""Passes switched by a flag and by a file: what is printed, what runs, and what is refused."""

from pathlib import Path

import pytest

from msrl.deployment import Deployment
from msrl.errors import UsageError
from msrl.passes import NAMES, chosen
from msrl.pipeline import compile
from tests.cli.conftest import TINY

COARSE = "single-learner-coarse"
PLACED = ("--env", "CartPole-v1", "--num-envs", "4", "--shards", "2", "--distribution", COARSE)


@pytest.fixture
def actor(msrl):
    def shown(*flags: str) -> str:
        code, out, err = msrl("graph", "ppo", *PLACED, "--rollout", "8", "--fragment", "actor", *flags)
        assert (code, err) == (0, "")
        return out

    return shown


def test_by_flag(actor):
    usual = actor()
    assert "with compiled:" in usual and "as one batch" in usual and "weights_before" not in usual
    assert "with compiled:" not in actor("--passes=-fuse-stretches")
    assert "as one batch" not in actor("--passes", "-fuse-instances")
    assert "actor.act(weights_before, obs)" in actor("--passes", "+overlap")


def test_by_file_and_a_flag_that_overrides_it(actor):
    Path("d.toml").write_text('passes = "-fuse-instances,+overlap"\n')
    shown = actor("--deployment", "d.toml")
    assert "weights_before" in shown and "with compiled:" in shown and "as one batch" not in shown
    assert actor("--deployment", "d.toml", "--passes=-overlap") == actor()


def test_a_run_with_passes_of_ones_choice(train, msrl):
    sharded = ("--shards", "2", "--num-envs", "4")
    Path("d.toml").write_text(f'distribution = "{COARSE}"\nactors = 2\npasses = "+overlap"\n')
    result = train("--run-dir", "run", *sharded, "--deployment", "d.toml")
    assert result["env_steps"] == 64
    assert Deployment.from_file(Path("run") / "deployment.toml").passes == "+overlap"
    code, out, err = msrl("train", f"{TINY}:Tiny", "--env", "CartPole-v1", *sharded, "--passes=-fuse-stretches",
                          "--eval-episodes", "1", "--run-dir", "other")
    assert (code, err) == (0, "")
    assert "engine       every op a compiled call" in out


def test_seeds_follow_one_another_without_stretches(train):
    result = train("--run-dir", "run", "--seeds", "2", "--passes=-fuse-stretches", "--total-steps", "32")
    assert [row["seed"] for row in result["per_seed"]] == [0, 1]
    with pytest.raises(UsageError) as caught:
        compile("ppo", "CartPole-v1", seeds=2, deployment=Deployment(passes="-fuse-stretches"))
    assert str(caught.value) == """\
2 seeds cannot be trained at once without fuse-stretches.
They share one compiled program, and may leave a loop after different numbers of passes.
Leave out -fuse-stretches, or train them one after another: with one seed at a time.
See docs/distributions.md#passes."""


def test_which_are_on():
    assert chosen({}, strict=False) == set(NAMES) - {"overlap"}
    assert chosen({}, strict=True) == {"decide-branches", "coalesce-moves"}
    assert chosen({"overlap": True, "coalesce-moves": False, "fuse-instances": False}, strict=True) == {
        "overlap", "decide-branches"}
    assert chosen({"fuse-stretches": False}, strict=False) == {
        "decide-branches", "coalesce-moves", "fuse-instances", "call-back"}


def test_strict_mode_fuses_nothing(msrl):
    with pytest.raises(UsageError) as caught:
        compile("ppo", "CartPole-v1", strict=True, deployment=Deployment(passes="+fuse-instances"))
    assert str(caught.value) == """\
fuse-instances cannot be had in strict mode.
It changes rounding, and strict mode runs every op of every shard by itself.
Leave out +fuse-instances, or --strict.
See docs/distributions.md#passes."""
