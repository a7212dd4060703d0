"""The programs that a run starts with, known before it runs, so that they can be compiled ahead and side by side."""

from typing import TYPE_CHECKING

from msrl.engines.host import HostEngine
from msrl.engines.xla import Chunk, CompiledStretch
from msrl.ir.graph import For, Stretch, While
from msrl.ir.interp import Names

if TYPE_CHECKING:
    from msrl.backends.worker import Worker


def foreseen(worker: "Worker") -> list[CompiledStretch | Chunk]:
    """In the order of their use, traced: blocks and loops of the worker's top level, up to the first of which the
    shapes cannot be known before it runs."""
    assert isinstance(worker.engine, HostEngine)
    names: Names = {}
    found: list[CompiledStretch | Chunk] = []
    for part, _ in worker.parts(worker.program.nodes, top=True):
        match part:
            case tuple():
                stretches = worker.engine.foresee(part, names)
                if stretches is None:
                    break
                found += stretches
            case Stretch(nodes=(For() | While() as loop,)) if isinstance(loop, While) or loop.trips:
                chunk = worker.chunk(loop, loop.trips if isinstance(loop, For) else None)
                given = worker.carries(loop, names), worker.wide(names, chunk.constants), 0, chunk.size, worker.root
                carries = worker.engine.watched(chunk.learns, lambda guards, chunk=chunk, given=given: chunk.foresee(
                    *chunk.arguments(*given, guards)))
                names.update(zip((carry.out for carry in loop.carries), carries, strict=True))
                found.append(chunk)
            case _:
                break
    return found
