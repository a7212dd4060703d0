"""Values are taken at their first use, in the order in which they were sent."""

import pytest

from msrl.backends.inbox import Inbox, Pending, may_wait, reads_at_once
from msrl.ir.graph import Recv, Send
from msrl.ir.placed import Move
from msrl.ir.text import parse_local
from msrl.pipeline import Deployment, compile
from msrl.runtime.channels import Exchange
from msrl.runtime.unordered import UnorderedExchange
from tests.matrix.loops import LOOPS
from tests.matrix.toys import Corridor

MOVE = Move("$weights.1", "learner", "actor", "broadcast", None)
SIZES = {"learner": (1,), "actor": (1,)}
RECEIVE = Recv("$weights.1", MOVE.id)


class Counting(Inbox):
    def __init__(self, exchange):
        self.count = 0
        super().__init__(exchange, 0, lambda names: None, self.add)

    def add(self):
        self.count += 1


def received(inbox, *names):
    """Receives once into each of these; nothing may wait."""
    for name in names:
        assert list(inbox.receive(RECEIVE, name)) == []


def test_a_later_value_takes_the_earlier_ones_first():
    exchange, first, second = Exchange((MOVE,), SIZES), {}, {}
    inbox = Counting(exchange)
    received(inbox, first, second)
    waiting = inbox.force(second, ("$weights.1",))
    assert next(waiting) is None
    exchange.send(MOVE.id, 0, "old")
    assert next(waiting) is None  # which was the first one's
    exchange.send(MOVE.id, 0, "new")
    assert list(waiting) == []
    assert (second["$weights.1"], inbox.count) == ("new", 2)
    assert list(inbox.force(first, ("$weights.1",))) == []
    assert first["$weights.1"] == "old"


def test_what_is_there_is_taken_at_once_and_what_nobody_wants_at_the_end():
    exchange, first, second = Exchange((MOVE,), SIZES), {}, {}
    inbox = Counting(exchange)
    received(inbox, first)
    exchange.send(MOVE.id, 0, "old")
    exchange.send(MOVE.id, 0, "new")
    received(inbox, second)
    assert (first["$weights.1"].value, second["$weights.1"].value) == ("old", "new")
    received(inbox, {})
    rest = inbox.drain()
    assert next(rest) is None
    exchange.send(MOVE.id, 0, "newest")
    assert list(rest) == []
    assert inbox.count == 3


def test_first_come_first_served_is_taken_where_it_is_received():
    exchange = UnorderedExchange((MOVE,), SIZES, None)
    inbox, names = Counting(exchange), {}
    taking = inbox.receive(RECEIVE, names)
    assert next(taking) is None
    exchange.send(MOVE.id, 0, "newest")
    with pytest.raises(StopIteration):
        next(taking)
    assert (names, inbox.count) == ({"$weights.1": "newest"}, 1)


def test_names_that_may_wait_are_followed_through_loops_and_branches():
    program = parse_local("""\
local actor {
  w.1 = recv w.1:learner>actor
  for i.1 in 0, 4, 1 {
    carry w.2 = w.1 next w.4 out w.5
    carry x.1 = x.0 next w.2 out x.2
    carry y.1 = y.0 next y.2 out y.3
    y.2 = actor.act(w.2)
    if c.1 {
      w.3 = recv w.3:learner>actor
    } else {
      merge w.4 = w.3 or w.2
    }
  }
  send x.2 by x.2:actor>learner
}
""")
    assert may_wait(program.nodes) == {"w.1", "w.2", "w.3", "w.4", "w.5", "x.1", "x.2"}
    loop, send = program.nodes[1:]
    assert list(reads_at_once(loop)) == []  # it hands on what it was given
    assert list(reads_at_once(send)) == ["x.2"]
    assert list(reads_at_once(loop.body[1])) == ["c.1"]
    assert list(reads_at_once(loop.body[:1])) == ["w.2"]


def test_actors_go_on_without_the_learners_answer():
    """Under overlap, an actor that is never answered sends the trajectory of a second pass before it waits."""
    program = compile(LOOPS["Plain"], Corridor(), strict=True, shards=2,
                      deployment=Deployment("single-learner-coarse", "inline", 2, passes="+overlap"))
    plain = compile(LOOPS["Plain"], Corridor(), strict=True, shards=2,
                    deployment=Deployment("single-learner-coarse", "inline", 2))
    sent = []
    for each in (plain, program):
        actor = each.workers[0]
        weights = next(node for node in each.lead.program.nodes if isinstance(node, Send))
        each.lead.exchange.send(weights.move, 0, each.interpret()[0]["$weights"])
        for look in actor.run():
            if look is None:
                break
        sent.append(actor.outbox.sent)
    assert sent == [1, 2]


def test_a_look_leaves_out_what_has_not_arrived():
    program = compile(LOOPS["Plain"], Corridor(), strict=True, shards=2,
                      deployment=Deployment("single-learner-coarse", "inline", 2))
    actor = program.workers[0]
    arrived = Pending("m")
    arrived.there, arrived.value = True, 3
    look = actor.look({"$env.1": 1, "$weights.1": Pending("m")}, {"$learner.2": arrived})
    assert look == {"$env": 1, "$learner": 3}
