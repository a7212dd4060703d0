"""The worker for a local program: an ordinary one, or for the parameters of learners that do not wait for one another
one that talks to each of them by turns."""

from collections.abc import Iterator

import jax

from msrl.backends.worker import Look, Worker
from msrl.engines.library import Ops
from msrl.engines.shapes import Shapes
from msrl.ir.placed import PARAMETERS, LocalProgram
from msrl.runtime.channels import Exchange


class Switchboard(Worker):
    """Keeps the parameters of learners that do not wait for one another: talks to each as if it were the only one, and
    listens to whoever has something to say."""

    def run(self) -> Iterator[Look]:
        exchange, mine = self.exchange, self.program.fragment.name
        (learners,) = {move.source for move in exchange.moves.values() if move.agrees} - {mine}
        lines = [Worker(self.program, learner, self.shapes, self.ops, self.root, self.strict, exchange.line(learner))
                 for learner in range(len(exchange.sizes[learners]))]
        for line in lines:
            line.given, line.order, line.trace = self.given, self.order, self.trace
        running = [line.run() for line in lines]
        while running:
            for steps in list(running):
                for look in steps:
                    if look is None:
                        break
                    yield look
                else:
                    running.remove(steps)
            self.messages = sum(line.messages for line in lines)
            if running:
                yield None


def make_worker(program: LocalProgram, instance: int, shapes: Shapes, ops: Ops, root: jax.Array, strict: bool,
                exchange: Exchange) -> Worker:
    alone = PARAMETERS in program.fragment.components and not exchange.lockstep
    return (Switchboard if alone else Worker)(program, instance, shapes, ops, root, strict, exchange)
