"""Who runs what on threads: an instance that waits leaves its thread to the one that it waits for."""

import threading
from collections import defaultdict
from contextlib import closing

import jax

from msrl.backends.threads import Turn
from msrl.ir.placed import Move
from msrl.pipeline import Deployment, compile
from msrl.runtime.channels import Exchange
from tests.matrix.loops import LOOPS
from tests.matrix.toys import Corridor, HostCorridor

FINE = "single-learner-fine"
MOVE = Move("$weights.1", "learner", "actor", "broadcast", None)


def test_an_answer_is_worked_on_by_the_thread_that_waits_for_it():
    program = compile(LOOPS["Plain"], HostCorridor(), deployment=Deployment(FINE, "threads"))
    threads = defaultdict(set)
    for worker in program.workers:
        engine, name, block = worker.engine, worker.program.fragment.name, worker.engine.block

        def noted(*given, name=name, block=block, **more):
            threads[name].add(threading.get_ident())
            return block(*given, **more)

        engine.block = noted
    assert list(program.run())
    one, two = threads.values()
    assert one & two


def sleeping(exchange: Exchange) -> tuple[threading.Thread, threading.Event]:
    """A thread that waits for news, and whether it has heard of any."""
    ready, heard = threading.Event(), threading.Event()

    def wait() -> None:
        with exchange.changed:
            ready.set()
            exchange.changed.wait()
            heard.set()

    thread = threading.Thread(target=wait)
    thread.start()
    ready.wait()
    with exchange.changed:  # it has begun to wait
        return thread, heard


def test_others_hear_of_what_a_patient_thread_sends_when_it_goes_on():
    exchange = Exchange((MOVE,), {"learner": (1,), "actor": (1,)})
    thread, heard = sleeping(exchange)
    exchange.patient[threading.get_ident()] = 0
    exchange.send(MOVE.id, 0, 1)
    assert exchange.patient.pop(threading.get_ident()) == exchange.news == 1
    assert exchange.untold and exchange.ready(MOVE.id, 0)
    assert not heard.is_set()
    exchange.tell_now()
    thread.join(60)
    assert heard.is_set() and not exchange.untold


def test_others_hear_at_once_of_what_anybody_else_sends():
    exchange = Exchange((MOVE,), {"learner": (1,), "actor": (1,)})
    thread, heard = sleeping(exchange)
    exchange.send(MOVE.id, 0, 1)
    thread.join(60)
    assert heard.is_set() and not exchange.untold


def test_what_it_told_itself_is_no_news_to_it():
    program = compile(LOOPS["Plain"], HostCorridor(), deployment=Deployment(FINE, "threads"))
    backend, (first, second) = program.backend, program.workers
    turns = [Turn(first, iter(())), Turn(second, iter(()))]
    mine = backend.take(turns, None)
    assert mine is turns[0] and mine.busy
    backend.exchange.news += 1  # which it sends
    first.outbox.news += 1
    assert backend.take(turns, mine) is turns[1]
    assert not mine.busy and mine.news == backend.exchange.news


def test_what_the_host_has_looked_at_stays_when_it_leaves():
    """The next chunk is given these arrays to overwrite, so that no worker may begin it once the run is stopped."""
    program = compile(LOOPS["Plain"], Corridor(), deployment=Deployment(backend="threads"))
    with closing(program.run()) as updates:
        next(updates)
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(program.resources) if isinstance(leaf, jax.Array))
