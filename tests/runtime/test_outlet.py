"""Output that is never a reason to lose a run."""

import io
import os

import pytest

from msrl.runtime.outlet import Outlet


class Broken(io.StringIO):
    def __init__(self, problem: Exception):
        super().__init__()
        self.problem = problem

    def flush(self):
        raise self.problem


def test_what_a_closed_pipe_does_not_take_goes_to_the_next():
    read, write = os.pipe()
    os.close(read)
    first, second, gone = os.fdopen(write, "w"), io.StringIO(), []
    outlet = Outlet([first, second], lambda: gone.append(True))
    for line in ("one", "two"):
        outlet.line(line)
    assert (second.getvalue(), gone) == ("one\ntwo\n", [True])
    first.close()  # it goes nowhere now, and fails no more


@pytest.mark.parametrize("problem", [OSError(5, "the terminal is gone"), OSError(28, "No space left on device"),
                                     ValueError("I/O operation on closed file.")])
def test_other_problems_ask_nobody_to_stop(problem):
    gone = []
    outlet = Outlet([Broken(problem)], lambda: gone.append(True))
    outlet.line("one")
    outlet.line("two")
    assert not gone


@pytest.mark.parametrize("encoding, shown", [("ascii", "9.4 +/- 0.5, actor x2, caf? -> ?"),
                                             ("latin-1", "9.4 ± 0.5, actor ×2, café -> ?")])
def test_characters_that_an_encoding_has_not(encoding, shown):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="msrl-plain")
    stream.write("9.4 ± 0.5, actor ×2, café → 象".replace("é", "é" if encoding == "latin-1" else "象"))
    stream.flush()
    assert stream.buffer.getvalue().decode(encoding) == shown
