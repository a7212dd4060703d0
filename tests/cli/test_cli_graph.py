"""`msrl graph` of what is placed: what it counts, and what it refuses."""

import json

import pytest

from tests.cli.conftest import TINY

SIZES = ("--env", "CartPole-v1", "--num-envs", "8", "--shards", "4", "--total-steps", "256", "--steps", "8")


@pytest.fixture
def graph(msrl):
    def run(*flags: str, algorithm: str = f"{TINY}:Tiny", sizes: tuple[str, ...] = SIZES) -> str:
        code, out, err = msrl("graph", algorithm, *sizes, *flags)
        assert code == 0, err
        return out

    return run


def test_bytes_are_sizes_times_passes_of_inner_loops(graph):
    found = json.loads(graph("--distribution", "single-learner-fine", "--actors", "2", "--format", "json"))
    assert [(each["name"], each["instances"], each["axis"]) for each in found["fragments"]] == [
        ("env", 2, "env"), ("learner", 1, None)]
    moves = [(move["kind"], move["label"], move["when"], move["times_per_update"], move["bytes"],
              move["bytes_per_update"]) for move in found["moves"]]
    obs, action = 8 * 4 * 4, 8 * 4  # float32 and int32 for each of 8 environments
    assert moves == [("gather", "obs", "once", 0, obs, 0),
                     ("scatter", "agent_act_.action", "per step", 8, action, 8 * action),
                     ("gather", "obs", "per step", 8, obs, 8 * obs)]
    assert found["bytes_per_update"] == 8 * (obs + action)


def test_loops_of_unknown_length_are_not_counted(graph, tmp_path):
    (tmp_path / "open.py").write_text(f'''
import sys
sys.path.insert(0, {str(TINY.parents[2])!r})
from tests.cli.tiny import Tiny

class Open(Tiny):
    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(2):
            going = True
            while going:
                step = msrl.env_step(msrl.agent_act(obs).action)
                obs, going = step.obs, step.done.any()
            msrl.report(msrl.agent_learn(obs))
''')
    flags = ("--distribution", "single-learner-fine")
    out = graph(*flags, algorithm="open.py:Open", sizes=("--env", "CartPole-v1"))
    assert out.splitlines()[-1] == "At least 0 B move per update, a broadcast counted once."
    moves = json.loads(graph(*flags, "--format", "json", algorithm="open.py:Open", sizes=("--env", "CartPole-v1")))
    assert {move["times_per_update"] for move in moves["moves"] if move["depth"] == 2} == {None}


def test_one_place(graph):
    assert graph("--distribution", "local") == f"""\
{TINY}:Tiny on jax:CartPole-v1 under local

fragment all: env, actor, learner, metrics

Nothing moves.
"""
    assert "<svg" in graph("--format", "html")


def test_a_fragment_that_is_not_there(msrl):
    assert msrl("graph", f"{TINY}:Tiny", *SIZES, "--distribution", "single-learner-fine", "--fragment", "learn") == (
        2, "", "UsageError: There is no fragment 'learn'.\nThere are env, learner.\nDid you mean learner?\n")
    assert msrl("graph", f"{TINY}:Tiny", *SIZES, "--fragment", "actor") == (
        2, "", "UsageError: There is no fragment 'actor'.\nThere is all, as nothing is cut up.\nUse one of these.\n")


def test_more_actors_than_shards_is_refused_here_too(msrl):
    code, out, err = msrl("graph", f"{TINY}:Tiny", *SIZES, "--distribution", "single-learner-fine", "--actors", "5")
    assert (code, out) == (2, "")
    assert err.startswith("UsageError: 5 actors cannot share 4 shards.\n")


def test_moves_by_agent_and_where_learners_agree(graph):
    sizes = ("--env", "simple_spread", "--num-envs", "4", "--rollout", "8", "--total-steps", "64",
             "--agent-shards", "3")
    found = json.loads(graph("--distribution", "environments", "--learners", "3", "--format", "json",
                             algorithm="mappo", sizes=sizes))
    assert [(each["name"], each["instances"], each["axis"]) for each in found["fragments"]] == [
        ("env", 1, None), ("learner", 3, "agent")]
    moves = [(move["kind"], move["label"], move["dim"], move["when"]) for move in found["moves"]]
    assert moves == [
        ("scatter", "obs", 1, "once"), ("gather", "act.action", 1, "per step"), ("gather", "act.action", 1, "per step"),
        ("gather", "act.log_prob", 1, "per step"), ("scatter", "obs", 1, "per step"),
        ("broadcast", "batch", None, "per update"), ("send", "learner.learn", None, "per update"),
        ("allreduce", "learner", None, "per update")]
    assert found["moves"][-1]["bytes"] == 4 * 4  # the four metrics
    assert "each with its part of the agents" in graph("--distribution", "environments", "--learners", "3",
                                                       "--fragment", "learner", algorithm="mappo", sizes=sizes)
