"""PPO and DQN under single-learner-coarse, as each pass by itself writes their fragments, and as none does: files.

`plain` has no pass; each of the others is to be read beside it. call-back, which is for environments on the host, does
nothing by itself: see tests/passes/test_call_back_pass.py. `pytest tests/golden --update-golden` writes them anew.
"""

from pathlib import Path

import pytest

from msrl.cli.main import main
from msrl.passes import NAMES

SIZES = {
    "ppo": ("--total-steps", "4096", "--rollout", "64", "--hidden", "64", "64"),
    "dqn": ("--total-steps", "4096", "--warmup", "256", "--batch-size", "32", "--hidden", "64", "64"),
}


@pytest.mark.parametrize("alone", ["plain", *(name for name in NAMES if name != "call-back")])
@pytest.mark.parametrize("algorithm", SIZES)
def test_one_pass_alone(algorithm, alone, capsys, monkeypatch, update_golden):
    monkeypatch.setenv("MSRL_CACHE_DIR", "off")
    passes = ",".join(f"{'+' if name == alone else '-'}{name}" for name in NAMES)
    parts = []
    for fragment in ("actor", "learner"):
        assert main(["graph", algorithm, "--env", "CartPole-v1", "--num-envs", "8", "--shards", "4", "--actors", "2",
                     *SIZES[algorithm], "--distribution", "single-learner-coarse", f"--passes={passes}",
                     "--fragment", fragment]) == 0
        parts.append(capsys.readouterr().out)
    file = Path(__file__).parent / "passes" / f"{algorithm}-{alone}.txt"
    found = "\n".join(parts)
    if update_golden:
        file.parent.mkdir(exist_ok=True)
        file.write_text(found)
    assert found == file.read_text()
    if algorithm == "dqn" and alone != "plain":
        assert found != (file.parent / "dqn-plain.txt").read_text()
