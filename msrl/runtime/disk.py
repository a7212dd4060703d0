"""Disks that are full: what fails then, and loggers that get by.

In: an error, or a writer of TensorBoard's. Out: whether there was no room; a writer that fails once and is silent from
then on. It always holds that nobody waits for a disk that is full.
"""

import contextlib
import errno
import logging
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
WORDS = tuple(map(os.strerror, FULL))  # TensorStore's errors have no number


def reason(error: BaseException | None) -> str:
    """What a system says of a disk that has no room, if that is what led to the error; else nothing."""
    while error is not None:
        said = error.strerror if isinstance(error, OSError) and error.errno in FULL else \
            next((words for words in WORDS if words in str(error)), "")
        if said:
            return said
        error = error.__cause__ or error.__context__
    return ""


def is_full(error: BaseException | None) -> bool:
    return bool(reason(error))


def hush(library: str, logger: str) -> None:
    """A library raises the errors of its threads where it is waited for; its logger and Python print them as well, at
    length. Those of a full disk are not printed from now on: one message is enough."""
    before = threading.excepthook
    if getattr(before, "hushes", None) == library:
        return

    def hook(args: Any) -> None:
        if not (type(args.thread).__module__.startswith(library) and is_full(args.exc_value)):
            before(args)

    hook.hushes = library  # type: ignore[attr-defined]
    threading.excepthook = hook
    logging.getLogger(logger).addFilter(_not_of_a_full_disk)


def _not_of_a_full_disk(record: logging.LogRecord) -> bool:
    return not is_full(record.exc_info[1] if record.exc_info else None)


@contextlib.contextmanager
def room_not_needed() -> Iterator[None]:
    """What does not fit is left out."""
    try:
        yield
    except Exception as error:
        if not is_full(error):
            raise


class Board:
    """A `tensorboardX.SummaryWriter` that neither stops nor delays a run. It writes in a thread of its own: one that
    dies of an error takes nothing from its queue any more, and whoever logs waits for ever."""

    def __init__(self, make: Callable[[], Any]):
        self.problem: OSError | None = None
        self.board: Any = None
        try:
            self.board = make()
            events = self.board.file_writer.event_writer._ev_writer
            self.writer, events._py_recordio_writer = events._py_recordio_writer, self
        except OSError as problem:
            self.problem = problem

    def add(self, tag: str, value: float, step: int) -> None:
        if self.problem is None and not self.board.file_writer.event_writer._event_queue.full():
            self.board.add_scalar(tag, value, step)

    def end(self) -> None:
        if self.board is not None:
            self.board.close()

    # What its thread calls.

    def write(self, record: bytes) -> None:
        self._try(self.writer.write, record)

    def flush(self) -> None:
        self._try(self.writer.flush)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.writer.close()

    def _try(self, method: Callable[..., Any], *args: Any) -> None:
        if self.problem is None:  # after half a record, nothing that follows can be read
            try:
                method(*args)
            except OSError as problem:
                self.problem = problem
