"""Channels within a process: what is sent is received, in order, and nobody sleeps through it."""

from threading import Thread

import jax
import jax.numpy as jnp
import numpy as np

from msrl.ir.placed import Move
from msrl.runtime.channels import Exchange

GATHER = Move("x.1", "actor", "learner", "gather", 0)
SCATTER = Move("y.1", "learner", "actor", "scatter", 0)


def exchange():
    return Exchange((GATHER, SCATTER), {"actor": (2, 1), "learner": (3,)})


def test_a_gather_joins_in_the_order_of_instances_and_waits_for_all():
    channels = exchange()
    channels.send(GATHER.id, 1, np.float32([3]))
    channels.send(GATHER.id, 1, np.float32([6]))
    assert not channels.ready(GATHER.id, 0)
    channels.send(GATHER.id, 0, np.float32([1, 2]))
    assert channels.ready(GATHER.id, 0)
    assert channels.receive(GATHER.id, 0).tolist() == [1, 2, 3]
    assert not channels.ready(GATHER.id, 0)


def test_a_scatter_gives_each_its_part_and_all_the_same_number():
    channels = exchange()
    channels.send(SCATTER.id, 0, (np.float32([1, 2, 3]), 7))
    parts = [channels.receive(SCATTER.id, target) for target in (0, 1)]
    assert [(part.tolist(), number) for part, number in parts] == [([1, 2], 7), ([3], 7)]


def test_a_scatter_divides_arrays_of_jax_too_and_gives_one_target_the_very_value():
    channels = exchange()
    channels.send(SCATTER.id, 0, jnp.float32([1, 2, 3]))
    parts = [channels.receive(SCATTER.id, target) for target in (0, 1)]
    assert all(isinstance(part, jax.Array) for part in parts) and [part.tolist() for part in parts] == [[1, 2], [3]]
    alone, value = Exchange((SCATTER,), {"actor": (3,), "learner": (3,)}), jnp.float32([1, 2, 3])
    alone.send(SCATTER.id, 0, value)
    assert alone.receive(SCATTER.id, 0) is value


def test_what_arrives_before_the_sleep_is_not_slept_through():
    channels = exchange()
    seen = channels.news
    channels.send(GATHER.id, 0, np.float32([1, 2]))  # after the look at the channels, before the sleep
    sleeper = Thread(target=channels.wait, args=(seen,), daemon=True)
    sleeper.start()
    sleeper.join(10)
    assert not sleeper.is_alive()


def test_a_message_wakes_a_sleeper():
    channels = exchange()
    sleeper = Thread(target=channels.wait, args=(channels.news,), daemon=True)
    sleeper.start()
    channels.send(GATHER.id, 0, np.float32([1, 2]))
    sleeper.join(10)
    assert not sleeper.is_alive()
