"""The lease of a run folder: only one process at a time writes to it.

    lease.json   who writes to the folder, or did so last, and a token that grows with every holder

The file is locked for as long as its holder lives (`flock`), so that a holder that crashed blocks nobody. Where the
file system has no locks, the holder's process is looked for instead: by its number and start, on the same boot of the
same machine. Before a holder writes, `check` sees that the folder is still there and that the token in it is still its
own: one that has lost its lease writes no more.
"""

import errno
import fcntl
import json
import os
import socket
from pathlib import Path
from typing import Any

from msrl.errors import RunError, UsageError

FILE = "lease.json"
DOCS = "docs/resuming.md#one-process-at-a-time"
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


class LeaseError(RunError):
    """The run folder is gone, or another process has it now: nothing more may be written to it."""


class Lease:
    """`take` one; then `check` before each write, and `release` it in the end."""

    def __init__(self, run: Path, descriptor: int, token: int):
        self.run, self.token = run, token
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, run: Path) -> "Lease":
        """The lease of a run folder that exists. Refused while another holder lives."""
        try:
            descriptor = os.open(run / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise UsageError(f"The run folder {run} cannot be written to.", why=f"{FILE}: {error.strerror}.",
                             instead="Give permission, or copy the folder and resume the copy.", docs=DOCS) from error
        try:
            found = _read(descriptor)
            if not _lock(descriptor, found):
                raise in_use(run, _read(descriptor))
            lease = cls(run, descriptor, _token(_read(descriptor)) + 1)
            _write(descriptor, {"token": lease.token, **_me()})
            return lease
        except BaseException:
            os.close(descriptor)
            raise

    def check(self) -> None:
        """Raises if the folder is gone, or is another's."""
        assert self._descriptor is not None, "it was released"
        try:
            there = (self.run / FILE).lstat()
        except OSError as error:
            gone = "The run folder" if not self.run.exists() else "The lease of the run folder"
            raise LeaseError(f"{gone} {self.run} is gone.", why="It was deleted or moved while the run was at work.",
                             instead="Leave a run folder alone until its run has ended. If it was moved: msrl resume "
                                     "with its new name.", docs=DOCS) from error
        mine = os.fstat(self._descriptor)
        now = _read(self._descriptor)
        if (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino) or _token(now) != self.token:
            raise LeaseError(f"The run in {self.run} has lost its lease.",
                             why="Another process writes to the folder now; what this one did since its last "
                                 "checkpoint is not saved.",
                             instead="Let the other one go on.", docs=DOCS)

    def release(self) -> None:
        """Calls after the first do nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        try:
            if _token(_read(descriptor)) == self.token:
                _write(descriptor, {"token": self.token})  # nobody's, also where there are no locks
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child that was forked meanwhile would keep it
        except OSError:
            pass  # a full disk, or no locks: the process will end some day
        finally:
            os.close(descriptor)

    def __del__(self) -> None:
        self.release()


def in_use(run: Path, found: dict[str, Any]) -> UsageError:
    who = f"Process {found.get('pid')} on {found.get('host')} is at work on it." if found else \
        "Another process is at work on it."
    return UsageError(f"The run in {run} is still going on.", why=who,
                      instead="Wait until it has ended, or stop it: on SIGTERM it saves a checkpoint first.", docs=DOCS)


def _lock(descriptor: int, found: dict[str, Any]) -> bool:
    """Is it ours now? A lock goes with its process, however that ends."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError as error:
        if error.errno not in NO_LOCKS:
            return False
    return not _alive(found)


def _alive(found: dict[str, Any]) -> bool:
    """Without locks: of another machine nothing is known, so that its holder counts as alive."""
    me = _me()
    if not found or found.get("host") != me["host"]:
        return bool(found)
    pid = found.get("pid")
    same = found.get("boot") == me["boot"] and isinstance(pid, int)
    return same and pid != me["pid"] and found.get("started") == _started(pid)


def _me() -> dict[str, Any]:
    return {"host": socket.gethostname(), "boot": _boot(), "pid": os.getpid(), "started": _started(os.getpid())}


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process began, in ticks since boot: a number may be given to another process later."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _read(descriptor: int) -> dict[str, Any]:
    """Who holds it. What is damaged says nothing: the lock is what counts."""
    try:
        found = json.loads(os.pread(descriptor, 4096, 0))
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError, RecursionError):
        return {}


def _token(found: dict[str, Any]) -> int:
    token = found.get("token")
    return token if type(token) is int and 0 <= token < 2**53 else 0


def _write(descriptor: int, record: dict[str, Any]) -> None:
    """In place, as the lock belongs to this very file."""
    content = (json.dumps(record) + "\n").encode()
    os.pwrite(descriptor, content, 0)
    os.ftruncate(descriptor, len(content))
    os.fsync(descriptor)
