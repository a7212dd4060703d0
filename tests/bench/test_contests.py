"""The harness of the benchmarks: turns, ratios, reports, and peers in processes of their own."""

import json
import os
import sys
import time

import pytest

from benchmarks import all as everything
from benchmarks import peer, report
from benchmarks.ratios import Effort, Row, alternate, compare, figure, spread
from benchmarks.report import Company, Report, command, table

FAKE = "tests.bench.fake_peer"


class Scripted:
    """A contestant with speeds written down beforehand."""

    def __init__(self, name, speeds, log):
        self.name, self.speeds, self.log = name, iter(speeds), log

    def turn(self, seconds):
        self.log.append((self.name, seconds))
        return next(self.speeds)

    def close(self):
        pass


def test_all_have_a_turn_in_each_round_and_take_turns_to_begin():
    log = []
    contestants = [Scripted("a", [0, 1, 2, 3], log), Scripted("b", [0, 4, 5, 6], log)]
    assert alternate(contestants, Effort(3, 2.0)) == {"a": [1, 2, 3], "b": [4, 5, 6]}
    assert log[:2] == [("a", 1.0), ("b", 1.0)]  # a short turn each, which does not count
    assert [name for name, _ in log[2:]] == ["a", "b", "b", "a", "a", "b"]
    assert {seconds for _, seconds in log[2:]} == {2.0}


def test_a_ratio_is_of_turns_of_the_same_round():
    row = compare("work", "other", [10.0, 100.0, 30.0], [5.0, 10.0, 10.0], 3.0)
    assert row == Row("work", "other", "30.0 steps/s", "10.0 steps/s", 3.0, 2.0, 10.0, 3.0)
    assert row.met
    assert compare("w", "o", [1.0], [2.0], 0.4, at_least=False).met is False
    assert compare("w", "o", [1.0], [2.0]).met is None


def test_spread_is_by_quartiles_where_there_are_enough():
    assert spread([3.0, 1.0, 2.0]) == (1.0, 2.0, 3.0)
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == (1.5, 3.0, 4.5)


@pytest.mark.parametrize("value, text", [(0.1234, "0.12"), (1.0, "1.00"), (12.34, "12.3"), (999.4, "999"),
                                         (999.9, "1.00 k"), (12340, "12.3 k"), (1.5e6, "1.50 M"), (4.2e10, "42.0 G")])
def test_figures_have_three_digits(value, text):
    assert figure(value) == text


def test_table():
    rows = [Row("a", "SB3", "2 k", "1 k", 2.0, 1.9, 2.1, 1.5), Row("b", "SB3", "1", "2", 0.5, 0.4, 0.6, 0.4, False)]
    assert table(rows).splitlines()[2:] == [
        "| a | SB3 | 2 k | 1 k | 2.00 (1.90 to 2.10) | ≥ 1.5 | met |",
        "| b | SB3 | 1 | 2 | 0.50 (0.40 to 0.60) | ≤ 0.4 | **missed** |"]


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(everything, "RESULTS", tmp_path)
    return tmp_path


def test_a_command_writes_what_it_found(results, monkeypatch, capsys):
    def measure(effort, told):
        told.add(Row("a", "b", "2", "1", 2.0, 2.0, 2.0, float(effort.rounds)))
        told.limit("It is limited.")
        told.leave_out("somebody")

    monkeypatch.setattr(sys, "argv", ["bench", "--rounds", "2"])
    command("thing", measure, "what it is", Effort(9, 1.5))
    written = json.loads((results / "thing.json").read_text())
    assert (written["rounds"], written["seconds"], written["limits"]) == (2, 1.5, ["It is limited."])
    assert 0.0 <= written["others"] <= 1.0 and written["versions"]["jax"]
    assert "left out: somebody" in capsys.readouterr().out
    monkeypatch.setattr(everything, "WORKLOADS", ("thing",))
    monkeypatch.setattr(sys, "argv", ["all", "--report"])
    assert everything.main() == 0
    text = (results / "performance.md").read_text()
    assert "| a | b | 2 | 1 | 2.00 (2.00 to 2.00) | ≥ 2 | met |" in text and "- It is limited." in text
    assert (results / "performance.png").stat().st_size > 1000


def test_the_page_gets_the_report_and_the_plots(results, tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "performance.md").write_text(f"before {everything.BEGIN} old {everything.END} after")
    (results / "one.png").write_bytes(b"plot")
    for text in ("new\n", "newer\n"):
        everything.publish(text, docs)
    assert (docs / "performance.md").read_text() == \
        f"before {everything.BEGIN}\n\nnewer\n\n![one](plots/one.png)\n\n{everything.END} after"
    assert (docs / "plots" / "one.png").read_bytes() == b"plot"


def test_a_workload_that_fails_is_named_and_the_rest_goes_on(results, monkeypatch, capsys):
    (results / "thing.json").write_text(json.dumps(dict(
        name="thing", rows=[dict(workload="a", against="b", ours="2", theirs="1", ratio=2.0, low=2.0, high=2.0)],
        limits=[], left_out=[], rounds=1, seconds=1.0, took=1.0, others=0.0)))
    monkeypatch.setattr(everything, "WORKLOADS", ("none_such", "thing"))
    monkeypatch.setattr(sys, "argv", ["all", "--only", "none_such"])
    assert everything.main() == 1
    out = capsys.readouterr().out
    assert out.endswith("failed: none_such\n") and "| a | b | 2 | 1 | 2.00 (2.00 to 2.00) |  |  |" in out


def test_work_of_this_process_is_not_that_of_others():
    company = Company()
    began = time.process_time()
    while time.process_time() - began < 0.2:
        pass
    cores = (time.perf_counter() - company.began) * (os.cpu_count() or 1)
    assert company.share() <= 1.0 - 0.15 / cores


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setenv("MSRL_PEERS", sys.executable)


def test_a_peer_answers_from_its_own_process(here):
    told = Report("test")
    contestant = peer.start(told, "Fake", f"{FAKE}:make", factor=2)
    assert contestant is not None and contestant.name == "Fake 1.0" and contestant.threads == 1
    assert contestant.turn(0.01) > 0
    contestant.close()
    assert contestant.process.returncode == 0 and told.left_out == []


def test_a_peer_that_does_not_start_is_left_out(here):
    told = Report("test")
    assert peer.start(told, "Fake", f"{FAKE}:broken", factor=2) is None
    assert told.left_out == [f"Fake, which does not start: try `{sys.executable} -m benchmarks.peers.serve "
                             f"{FAKE}:broken '{{\"factor\": 2}}'`"]


def test_without_an_environment_peers_are_left_out(monkeypatch, tmp_path):
    monkeypatch.setenv("MSRL_PEERS", str(tmp_path / "python"))
    told = Report("test")
    assert peer.start(told, "SB3", "benchmarks.peers.sb3:ppo") is None
    assert told.left_out == ["SB3, as there is no environment for peers: run `make peers`"]
