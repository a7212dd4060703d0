"""Signals while training: the first asks to stop at the next opportunity, the second stops at once.

Ctrl-C, SIGTERM (Slurm, Kubernetes, a spot node's last minutes) and SIGHUP (a terminal that was closed) are the same.
Python runs its signal handlers between two of its own instructions, and a compiled program can take minutes. So the
interpreter's wake-up descriptor tells a thread, which hears of signals at any time. Outside the main thread, where
Python allows no handlers, `Interrupts` hears of none. A signal that the process was started to ignore, as `nohup` does,
is ignored.
"""

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """Whether a run is to stop: `stop()`. `hasten`, if it is set, is called once somebody asks for it, in a thread of
    its own: it brings the next opportunity nearer."""

    def __init__(self) -> None:
        self.hasten: Callable[[], object] | None = None
        self._asked = threading.Event()

    def __call__(self) -> bool:
        return self._asked.is_set()

    def ask(self) -> None:
        """Once for all: to hasten it again would put it off."""
        again = self()
        self._asked.set()
        if (hasten := self.hasten) is not None and not again:
            threading.Thread(target=_quietly, args=(hasten,), name="msrl-hasten", daemon=True).start()


def _quietly(hasten: Callable[[], object]) -> None:
    with contextlib.suppress(Exception):  # the run meets it, too
        hasten()


class Interrupts:
    """`with Interrupts(asked, at_once) as interrupts:` and then look at `interrupts.stop()` from time to time."""

    def __init__(self, asked: Callable[[int], None], at_once: Callable[[int, bool], None], grace: float = 0.0):
        """`asked` is told of the first signal; `at_once` of the second, after which the process is gone. `grace`: the
        seconds that a stop may take before that happens by itself, which `at_once` is told as well; 0 for any time."""
        self.asked, self.at_once, self.grace = asked, at_once, grace
        self.signal: int | None = None
        self.stop = Stop()
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

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
        handled = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, lambda *_: None) for number in handled}
        self._descriptor = signal.set_wakeup_fd(self._tell.fileno(), warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._listen, name="msrl-interrupts", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._active:
            return
        signal.set_wakeup_fd(self._descriptor)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._tell.close()  # which ends the thread
        self._thread.join()
        self._hear.close()

    def ask(self, number: int) -> bool:
        """Asks to stop, as if the signal had come; False if somebody has before."""
        with self._lock:
            if self.signal is not None:
                return False
            self.signal = number
            if self.grace:
                self._timer = threading.Timer(self.grace, self._leave, (number, True))
                self._timer.daemon = True
                self._timer.start()
        self.stop.ask()
        self.asked(number)
        return True

    def _listen(self) -> None:
        while heard := self._hear.recv(1):
            if heard[0] in self._before and not self.ask(heard[0]):
                self._leave(heard[0], False)

    def _leave(self, number: int, late: bool) -> None:
        try:
            self.at_once(number, late)
        finally:
            os._exit(128 + number)


# -- of others who take signals for themselves -------------------------------------------------------------------------

HANDLER_SECONDS = 0.001  # for which SIGTERM may be nobody's while another program in this process ends
_starting = False  # are processes being started that are no part of this one's group?


@contextlib.contextmanager
def signals_kept(owner: Any) -> Iterator[None]:
    """Ray starts in here, and leaves SIGTERM to those who handle it, if anybody does: Ray would exit where the run has
    an update to finish. `owner` is the module whose `set_sigterm_handler` it calls. What it installs from C++ reports a
    signal as a crash, hands it on, and aborts the process three seconds later: for the part of a second that this is in
    place, the report cannot be helped, but the alarm can."""
    global _starting
    before = signal.getsignal(signal.SIGTERM)
    handled = threading.current_thread() is threading.main_thread() and before not in (None, signal.SIG_DFL)
    alarm, install = signal.getitimer(signal.ITIMER_REAL)[0], owner.set_sigterm_handler
    if handled:
        owner.set_sigterm_handler = lambda handler: None
    _starting = True
    try:
        yield
    finally:
        _starting, owner.set_sigterm_handler = False, install
        if handled:
            signal.signal(signal.SIGTERM, before)
            if not alarm:
                signal.alarm(0)


def leave_group() -> None:
    """In a process that Ray starts: out of the group of ours. What is sent to all of a group, as when its terminal is
    closed, is for this process to answer, which still needs Ray for it."""
    if _starting:
        os.setpgid(0, 0)


os.register_at_fork(after_in_child=leave_group)


def end_keeping_signals(end: Callable[[], object]) -> None:
    """Ends Ray, which resets SIGTERM to what kills a process. The handler is put back from the main thread, as Python
    demands, as soon as that has happened."""
    before = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or before is None:
        end()
        return
    with ThreadPoolExecutor(1, "msrl-leave") as pool:
        ending = pool.submit(end)
        while not ending.done():
            signal.signal(signal.SIGTERM, before)
            wait([ending], HANDLER_SECONDS)
    signal.signal(signal.SIGTERM, before)
    ending.result()
