"""Messages between processes, straight from one to the other: a connection for each pair that has something to say.

In: messages and whom they are for. Out: the same messages, handed to `deliver` in the receiver's process, those of one
sender in their order. A sender does not wait for the receiver's program. Only who knows the run's key is let in, and
everybody listens at the address given, no other. What is sent to a process that is gone is lost; that it is gone is for
others to notice.
"""

import contextlib
import os
import pickle
import socket
from collections.abc import Callable, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from threading import Lock, Thread

from msrl.backends.wire import Message

Address = tuple[str, int]


class Mailbox:
    """A process's end. `deliver` is called by threads of its own, one for each sender."""

    def __init__(self, host: str, key: bytes, deliver: Callable[[Message], None]):
        self.key, self.deliver = key, deliver
        self.listener = Listener((host, 0), backlog=64)
        self.address: Address = self.listener.address  # type: ignore[assignment]
        self.lines: dict[Address, tuple[Connection, Lock]] = {}
        self.closed = False
        self.listening = Thread(target=self._listen, name="mailbox", daemon=True)
        self.listening.start()

    def _listen(self) -> None:
        while not self.closed:
            try:
                line = self.listener.accept()
            except OSError:  # one who hung up
                continue
            if self.closed:
                line.close()
                break
            Thread(target=self._read, args=(line,), name="mail", daemon=True).start()

    def _read(self, line: Connection) -> None:
        # Who knows the key is found out here, so that one who says nothing keeps nobody else waiting.
        with line, contextlib.suppress(EOFError, OSError, AuthenticationError):
            deliver_challenge(line, self.key)
            answer_challenge(line, self.key)
            while True:
                self.deliver(pickle.loads(line.recv_bytes()))

    def send(self, message: Message, addresses: Sequence[Address]) -> None:
        content = pickle.dumps(message, protocol=5)
        for address in addresses:
            with contextlib.suppress(OSError, EOFError):
                if address not in self.lines:
                    self.lines[address] = prompt(Client(address, authkey=self.key)), Lock()
                line, lock = self.lines[address]
                with lock:
                    line.send_bytes(content)

    def close(self) -> None:
        self.closed = True
        with contextlib.suppress(Exception):  # a caller ends the wait for one, which closing alone does not
            Client(self.address, authkey=self.key).close()
        self.listening.join()
        self.listener.close()
        for line, _ in self.lines.values():
            line.close()


def prompt(line: Connection) -> Connection:
    """Sends at once: two small messages in a row would else wait for the receiver's system to acknowledge the first."""
    with socket.socket(fileno=os.dup(line.fileno())) as same:
        same.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return line
