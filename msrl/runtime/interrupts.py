"""Ctrl-C and SIGTERM while training: the first asks to stop at the next opportunity, the second stops at once.

Python runs its signal handlers between two of its own instructions, and a compiled program can take minutes. So the
interpreter's wake-up descriptor tells a thread, which hears of signals at any time. Outside the main thread, where
Python allows no handlers, `Interrupts` does nothing.
"""

import os
import signal
import socket
import threading
from collections.abc import Callable
from types import TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """`with Interrupts(asked, at_once) as interrupts:` and then look at `interrupts.signal` from time to time."""

    def __init__(self, asked: Callable[[int], None], at_once: Callable[[int], None]):
        """`asked` is told of the first signal; `at_once` of the second, after which the process is gone."""
        self.asked, self.at_once = asked, at_once
        self.signal: int | None = None

    @property
    def exit_code(self) -> int:
        """What a shell expects of a process that a signal ended; 0 if there was none."""
        return 128 + self.signal if self.signal else 0

    def __enter__(self) -> "Interrupts":
        self._active = threading.current_thread() is threading.main_thread()
        if not self._active:
            return self
        self._hear, self._tell = socket.socketpair()
        self._tell.setblocking(False)
        self._before = {number: signal.signal(number, lambda *_: None) for number in SIGNALS}
        self._descriptor = signal.set_wakeup_fd(self._tell.fileno(), warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._listen, name="msrl-interrupts", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._active:
            return
        signal.set_wakeup_fd(self._descriptor)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._tell.close()  # which ends the thread
        self._thread.join()
        self._hear.close()

    def _listen(self) -> None:
        while heard := self._hear.recv(1):
            number = heard[0]
            if number not in SIGNALS:
                continue
            if self.signal is None:
                self.signal = number
                self.asked(number)
            else:
                self.at_once(number)
                os._exit(128 + number)
