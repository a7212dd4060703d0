"""What Ray leaves behind in a process that has shut it down, and where it may leave it.

In: nothing. Out: a folder that is nobody else's, for a cluster that is started for one run; and the closing of sockets
that gRPC has forgotten. It always holds that a process which trains again and again has as many files open, and as many
folders, as after its first run.
"""

import contextlib
import os
import shutil
import signal
import socket
import stat
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path

LONGEST = 107 - len("/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store")  # of a Unix socket's path
CLOSED = 7  # TCP_CLOSE, in Linux's <net/tcp_states.h>


class Session:
    """The folder of a cluster: private, as whoever reads its logs and sockets can run code in it."""

    def __init__(self) -> None:
        inside = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
        self._made = Path(tempfile.mkdtemp(prefix="msrl-", dir=inside if len(inside) + 20 <= LONGEST else "/tmp"))
        self.path = self._made / "ray"  # one below: Ray lets everybody into the folder that it is given

    def remove(self) -> None:
        """Processes that are about to end may still write to it."""
        for _ in range(3):
            shutil.rmtree(self._made, ignore_errors=True)
            if not self._made.exists():
                return


def logs_of(session: Session | None) -> str:
    """Where they are, in words; nothing of a cluster that is not ours."""
    return f" in {session.path}" if session is not None else ""


class DeadSockets:
    """gRPC shuts connections to processes that have ended, and never closes some of them: two for each run. `sweep`,
    called after each, closes those that were dead after the run before already, so that gRPC has had its time."""

    def __init__(self) -> None:
        self.known: set[tuple[int, int]] = set()

    def sweep(self) -> None:
        dead = find_dead_sockets()
        for descriptor, _ in dead & self.known:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self.known = dead - self.known


def find_dead_sockets() -> set[tuple[int, int]]:
    """Those of gRPC to this machine, connected once and closed from both ends: (descriptor, inode)."""
    found = set()
    opened = Path("/proc/self/fd")
    for descriptor in [int(file.name) for file in opened.iterdir()] if opened.is_dir() else ():
        with contextlib.suppress(OSError):
            about = os.fstat(descriptor)
            if stat.S_ISSOCK(about.st_mode) and is_dead(descriptor):
                found.add((descriptor, about.st_ino))
    return found


def is_dead(descriptor: int) -> bool:
    with socket.socket(fileno=os.dup(descriptor)) as same:
        if same.family != socket.AF_INET6 or same.type != socket.SOCK_STREAM:
            return False
        state, = struct.unpack_from("B", same.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8))
        host, port, *_ = same.getsockname()  # a socket that was never used has neither
        return state == CLOSED and host == "::ffff:127.0.0.1" and port != 0


def kill_all(processes: Sequence[int]) -> None:
    """Of these processes of this machine, those that are workers of Ray's."""
    for process in processes:
        with contextlib.suppress(OSError):
            if b"ray::" in Path(f"/proc/{process}/cmdline").read_bytes():
                os.kill(process, signal.SIGKILL)
