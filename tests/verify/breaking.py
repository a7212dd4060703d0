"""Breaks a deployment on purpose: one message is not what was sent."""

import threading
from collections import Counter

import jax
import numpy as np

from msrl.runtime.channels import Exchange
from tests.matrix.toys import HostCorridor


def break_message(monkeypatch, move: str, target: int, number: int, change) -> None:
    """The message of that number (from 1) that an instance receives on a move goes through `change`."""
    honest, seen = Exchange.receive, Counter()

    def receive(exchange, move_id, instance, only=None):
        value = honest(exchange, move_id, instance, only)
        seen[exchange, move_id, instance] += 1
        broken = (move_id, instance, seen[exchange, move_id, instance]) == (move, target, number)
        return change(value) if broken else value

    monkeypatch.setattr(Exchange, "receive", receive)


def one_ulp(tree):
    """The last number of the first array of floats is the next one that there is."""
    return change_last(tree, lambda number: np.nextafter(number, np.float32(np.inf)))


def doubled(tree):
    """The same number is twice what it was: one that others are added to may take up less."""
    return change_last(tree, lambda number: 2 * number)


def change_last(tree, change):
    leaves, form = jax.tree.flatten(tree)
    at = next(at for at, leaf in enumerate(leaves) if np.issubdtype(leaf.dtype, np.floating))
    leaf = np.array(leaves[at])
    leaf.flat[-1] = change(leaf.flat[-1])
    return jax.tree.unflatten(form, [*leaves[:at], leaf, *leaves[at + 1:]])


class ThreadCorridor(HostCorridor):
    """Its rewards depend on the thread that it is stepped in, which they must not."""

    def step(self, state, action, key):
        state, step = super().step(state, action, key)
        elsewhere = threading.current_thread() is not threading.main_thread()
        return state, step.replace(reward=step.reward + np.float32(elsewhere))
