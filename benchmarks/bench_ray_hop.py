"""Workload 7, on Ray: what a message between two workers costs, against a bare actor call of the same bytes.

    python -m benchmarks.bench_ray_hop [--rounds 8] [--quick]

A value goes from one actor to another and back. `bare`: a method that returns its argument, called with `ray.get`.
`msrl`: what instances do at each step of a finely cut loop: pack, send, deliver, wake the thread that waits, unpack;
and the same again on the way back. `channel`: the same bytes through two of Ray's shared-memory channels, which
compiled graphs are made of. Rounds of the three alternate in one run, so that all see the same machine.
"""

import threading
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import ray
from ray.experimental.channel.shared_memory_channel import Channel

from benchmarks.ratios import Effort, compare
from benchmarks.report import Report, command
from msrl.api import Record
from msrl.backends.mail import Address, Mailbox
from msrl.backends.ray_backend import join_cluster
from msrl.backends.wire import RemoteExchange
from msrl.ir.placed import Move

THERE, BACK = Move("t.1", "env", "actor", "gather", 0), Move("t.2", "actor", "env", "scatter", 0)
ROOM = 2_000_000  # bytes that a channel holds
ROWS = {"1 kB": 64, "100 kB": 6400, "1 MB": 64000}  # of four numbers each
TRIPS = 100


@ray.remote(concurrency_groups={"inbox": 1, "work": 1})
class End:
    """One end: half of a worker, without a program to run."""

    @ray.method(concurrency_group="work")
    def mailbox(self) -> Address:
        self.mail = Mailbox("127.0.0.1", b"benchmark", lambda message: self.exchange.deliver(message))
        return self.mail.address

    @ray.method(concurrency_group="work")
    def settle(self, other: Any, address: Address, rows: int) -> None:
        self.rows, self.other = rows, other
        tree = {move.id: _tree() for move in (THERE, BACK)}
        self.exchange = RemoteExchange((THERE, BACK), {"env": (rows,), "actor": (rows,)}, 0, tree,
                                       lambda fragment, instances, message: self.mail.send(message, [address]))

    @ray.method(concurrency_group="inbox")
    def echo(self, value: Any) -> Any:
        return value

    @ray.method(concurrency_group="work")
    def answer(self, trips: int) -> None:
        threading.Thread(target=lambda: [self.exchange.send(BACK.id, 0, self._wait(THERE)) for _ in range(trips)],
                         daemon=True).start()

    @ray.method(concurrency_group="work")
    def trips(self, count: int) -> list[float]:
        """Seconds that each took, with an `answer` on the other end."""
        value, spent = Record(x=jnp.zeros((self.rows, 4), jnp.float32)), []
        for _ in range(count):
            began = time.perf_counter()
            self.exchange.send(THERE.id, 0, value)
            self._wait(BACK).x.block_until_ready()
            spent.append(time.perf_counter() - began)
        return spent

    @ray.method(concurrency_group="work")
    def bare_trips(self, count: int) -> list[float]:
        value, spent = np.zeros((self.rows, 4), np.float32), []
        for _ in range(count):
            began = time.perf_counter()
            ray.get(self.other.echo.remote(value))
            spent.append(time.perf_counter() - began)
        return spent

    @ray.method(concurrency_group="work")
    def open(self, me: Any, other: Any) -> Channel:
        self.out = Channel(me, [(other, ray.get_runtime_context().get_node_id())], ROOM)  # all are on one host
        return self.out

    @ray.method(concurrency_group="work")
    def listen(self, channel: Channel) -> None:
        self.into = channel

    @ray.method(concurrency_group="work")
    def answer_channel(self, trips: int) -> None:
        threading.Thread(target=lambda: [self.out.write(self.into.read()) for _ in range(trips)], daemon=True).start()

    @ray.method(concurrency_group="work")
    def channel_trips(self, count: int) -> list[float]:
        value, spent = np.zeros((self.rows, 4), np.float32), []
        for _ in range(count):
            began = time.perf_counter()
            self.out.write(value)
            self.into.read()
            spent.append(time.perf_counter() - began)
        return spent

    def _wait(self, move: Move) -> Any:
        with self.exchange.changed:
            self.exchange.changed.wait_for(lambda: self.exchange.ready(move.id, 0))
        return self.exchange.receive(move.id, 0)


def _tree() -> Any:
    return jax.tree.structure(Record(x=0))


def measure(effort: Effort, report: Report) -> None:
    join_cluster(None, 4)
    for title, rows in ROWS.items():
        ends = env, actor = End.remote(), End.remote()
        here, there = ray.get([end.mailbox.remote() for end in ends])
        ray.get([env.settle.remote(actor, there, rows), actor.settle.remote(env, here, rows)])
        there, back = ray.get([env.open.remote(env, actor), actor.open.remote(actor, env)])
        ray.get([actor.listen.remote(there), env.listen.remote(back)])
        medians: dict[str, list[float]] = {"bare": [], "msrl": [], "channel": []}  # microseconds, by round
        for number in range(effort.rounds + 1):
            bare = ray.get(env.bare_trips.remote(TRIPS))
            ray.get(actor.answer.remote(TRIPS))
            ours = ray.get(env.trips.remote(TRIPS))
            ray.get(actor.answer_channel.remote(TRIPS))
            channel = ray.get(env.channel_trips.remote(TRIPS))
            if number:  # the first warms up
                for name, spent in (("bare", bare), ("msrl", ours), ("channel", channel)):
                    medians[name].append(float(np.median(spent)) * 1e6)
        report.add(compare(f"a round trip of {title} between Ray workers", "a bare actor call", medians["msrl"],
                           medians["bare"], 1.5, unit="µs", at_least=False),
                   compare(f"a round trip of {title} between Ray workers", "Ray's shared-memory channels",
                           medians["msrl"], medians["channel"], unit="µs"))
        for end in ends:
            ray.kill(end)
    ray.shutdown()


if __name__ == "__main__":
    command("ray_hop", measure, __doc__, Effort(rounds=8))
