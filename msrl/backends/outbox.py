"""What an instance sends: at once, or held until it leaves together with others for the same fragment.

Messages are counted where they leave. What is held has a bound, above which it leaves at once.
"""

from collections.abc import Callable
from threading import get_ident
from typing import Any

import jax
import jax.numpy as jnp

from msrl.ir.graph import Send, is_resource
from msrl.runtime.channels import Exchange, Line
from msrl.runtime.delayed import nbytes

HELD_BYTES = 4 << 20  # how much is held for one fragment at most, before it leaves at once


class Outbox:
    """One instance's. `told` is told of every message."""

    def __init__(self, exchange: Exchange | Line, instance: int, told: Callable[[], None]):
        self.exchange, self.instance, self.told = exchange, instance, told
        self.sent = 0  # messages to other fragments, so far
        # Does it tell others of what it sends only when it goes on to something else? (msrl/backends/threads.py)
        self.patient = False
        self.news = 0  # that it has kept to itself so far
        self.held: dict[str, list[tuple[str, Any, int]]] = {}  # fragment → what leaves together: move, value, steps
        self.bytes: dict[str, int] = {}  # fragment → how much that is

    def send(self, node: Send, value: Any, steps: int) -> None:
        # A resource may be written over where it lives; what was sent must not change under its reader.
        value = jax.tree.map(jnp.copy, value) if is_resource(node.value) else value
        if not node.held:
            self.leave(self.exchange.send, node.move, self.instance, value, steps)
            return
        target = self.exchange.moves[node.move].target
        self.held.setdefault(target, []).append((node.move, value, steps))
        self.bytes[target] = self.bytes.get(target, 0) + nbytes(value)
        if self.bytes[target] > HELD_BYTES:
            self.flush(target)

    def flush(self, target: str) -> None:
        if held := self.held.pop(target, None):
            self.leave(self.exchange.send_together, self.instance, held)
            self.bytes[target] = 0

    def leave(self, send: Callable[..., None], *given: Any) -> None:
        if self.patient:
            self.exchange.patient[thread := get_ident()] = 0
            send(*given)
            self.news += self.exchange.patient.pop(thread)
        else:
            send(*given)
        self.sent += 1
        self.told()
