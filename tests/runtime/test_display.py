"""What people see of a run."""

import io

import pytest
from rich.console import Console

from msrl.runtime import display
from msrl.runtime.display import ConsoleDisplay, State, clock
from msrl.runtime.files import dumps, write


def state(steps: int) -> State:
    return State(steps, total=1000, seeds=2, seconds=steps / 50, episode_return=12.34, loss=0.5)


def test_plain_lines_come_with_every_tenth(monkeypatch):
    monkeypatch.setattr(display.time, "monotonic", lambda: 0.0)
    out = io.StringIO()
    shown = ConsoleDisplay(Console(file=out))
    shown.begin(1000)
    for steps in (10, 20, 99, 100, 101, 350, 360, 1000):
        shown.update(state(steps))
    shown.end()
    assert [line.split()[0] for line in out.getvalue().splitlines()] == ["10", "100", "350", "1,000"]
    assert out.getvalue().splitlines()[0] == "10 of 1,000 steps (1%) | 100 steps/s | return 12.3 | loss 0.5 | 0:20 left"


def test_plain_lines_come_after_some_seconds(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    shown = ConsoleDisplay(Console(file=out))
    shown.begin(1000)
    for steps in range(1, 13):
        shown.update(state(steps))
        now[0] += 1.0
    assert [line.split()[0] for line in out.getvalue().splitlines()] == ["1", "6", "11"]


def test_a_terminal_shows_one_line_that_goes_away():
    out = io.StringIO()
    shown = ConsoleDisplay(Console(file=out, force_terminal=True, width=120))
    shown.begin(1000)
    shown.update(state(500))
    shown.end()
    assert "500 of 1,000 steps (50%)" in out.getvalue()
    assert out.getvalue().endswith("\x1b[1A\x1b[2K")  # back up, and cleared


@pytest.mark.parametrize("seconds", [-3.0, 0.0, 1e-9])
def test_where_no_speed_can_be_told_none_is(seconds):
    """As after a resume, when all of the time so far went into compiling."""
    shown = State(499_712, 1_000_000, 1, seconds, None, 0.5, before=450_000).show()
    assert shown == "499,712 of 1,000,000 steps (50%) | loss 0.5"


def test_steps_of_an_earlier_run_tell_nothing_of_the_speed():
    assert State(500, 1000, 1, 2.0, None, None, before=500).show() == "500 of 1,000 steps (50%)"
    shown = State(700, 1000, 1, 2.0, None, None, before=500).show()
    assert shown == "700 of 1,000 steps (70%) | 100 steps/s | 0:03 left"


def test_an_evaluation_is_told_of_if_it_takes_long(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    shown = ConsoleDisplay(Console(file=out))
    for ended in range(12):
        now[0] += 1.0
        shown.evaluate(ended, 20)
    assert out.getvalue().splitlines() == ["evaluating: 4 of 20 episodes have ended",
                                           "evaluating: 9 of 20 episodes have ended"]


def test_a_terminal_shows_an_evaluation():
    out = io.StringIO()
    shown = ConsoleDisplay(Console(file=out, force_terminal=True, width=120))
    shown.evaluate(3, 20)
    shown.end()
    assert "evaluating: 3 of 20 episodes have ended" in out.getvalue()


@pytest.mark.parametrize("seconds, shown", [(0, "0:00"), (61.4, "1:01"), (3725, "1:02:05")])
def test_clock(seconds, shown):
    assert clock(seconds) == shown


def test_json_has_no_numbers_that_json_has_not():
    assert dumps({"a": float("nan"), "b": [float("inf"), 1.5, (2,)]}) == '{"a": null, "b": [null, 1.5, [2]]}'


def test_a_file_is_complete_or_absent(tmp_path, monkeypatch):
    write(tmp_path / "f", b"old")
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write(tmp_path / "f", b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("f", b"old")]


def test_a_loop_that_steps_no_environment_tells_its_passes():
    shown = State(0, 0, 1, 2.0, None, 0.25, passes=1200)
    assert shown.show() == "pass 1,200 of the loop | loss 0.25" and shown.share == 0.0
