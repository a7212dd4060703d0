"""Standard output and standard error, for programs that must not end with whoever reads them.

A reader may leave (`| head`), a terminal may be closed, the disk behind a redirection may be full, and an encoding may
have no ± sign. None of it is a reason to lose a run.
"""

import codecs
import contextlib
import io
import os
import sys
import unicodedata
from collections.abc import Callable
from typing import TextIO

PLAIN = {"±": "+/-", "×": "x", "→": "->", "←": "<-", "…": "...", "–": "-", "—": "-", "‘": "'", "’": "'", "“": '"',
         "”": '"', "─": "-", "│": "|", "━": "-", "•": "*"}


def plain(error: UnicodeError) -> tuple[str, int]:
    """What to write instead of characters that an encoding does not have: an error handler, as `codecs` wants it."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = []
    for character in error.object[error.start:error.end]:
        ascii_ = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
        found.append(PLAIN.get(character) or ascii_ or "?")
    return "".join(found), error.end


codecs.register_error("msrl-plain", plain)


def speak_plainly() -> None:
    """Lets this process write to standard output and standard error whatever their encoding."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="msrl-plain")


def silence(stream: TextIO) -> None:
    """What is written to it from now on goes nowhere: not even the interpreter's own end fails on it."""
    with contextlib.suppress(OSError, ValueError):  # one that is not a file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class Outlet(io.TextIOBase):
    """Writes to the first of some streams that still takes it, and to none in the end. `gone` is called when the reader
    of the first has left."""

    def __init__(self, streams: list[TextIO], gone: Callable[[], object] = lambda: None):
        self.streams, self.gone = streams, gone
        self._unsent = ""

    def writable(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.streams[0].encoding or "utf-8" if self.streams else "utf-8"

    def isatty(self) -> bool:
        return bool(self.streams) and self.streams[0].isatty()

    def fileno(self) -> int:
        return self.streams[0].fileno() if self.streams else super().fileno()

    def write(self, text: str) -> int:
        self._unsent += text
        if self.streams:
            self._try(self.streams[0].write, text)
        return len(text)

    def flush(self) -> None:
        if self.streams:
            self._try(self.streams[0].flush)
        self._unsent = ""

    def line(self, text: str) -> None:
        """A line that is there when this returns, if anybody reads it."""
        self.write(f"{text}\n")
        self.flush()

    def _try(self, act: Callable[..., object], *text: str) -> None:
        try:
            act(*text)
        except UnicodeError:
            raise
        except (OSError, ValueError) as problem:  # a closed file is a ValueError
            silence(self.streams.pop(0))
            unsent = self._unsent
            if isinstance(problem, BrokenPipeError):
                gone, self.gone = self.gone, lambda: None
                gone()
            if self.streams:
                self._try(self.streams[0].write, unsent)
            if self.streams:
                self._try(self.streams[0].flush)
