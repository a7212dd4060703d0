"""The shares of all instances as one checkpoint, and a checkpoint as shares for instances, however many there are.

In: what each instance has put down. Out: every name of the graph once, whole; states by shard. It always holds that
`deal` gives an instance of any distribution all that its program reads from the loop on.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from msrl.backends.snapshots import WHOLE, Share, key, loops_of, shards, wanted
from msrl.backends.worker import Worker
from msrl.ir.graph import is_resource
from msrl.ir.placed import LocalProgram, same_form
from msrl.runtime.checkpoints import Parts
from msrl.runtime.packing import Leaf, Packed


def gather(shares: Sequence[tuple[Worker, Share]]) -> Parts:
    found: Parts = {}
    partial: dict[tuple[str, str], list[tuple[Worker, Packed]]] = {}
    for worker, share in shares:
        fragment = worker.program.fragment.name
        alone = len(worker.exchange.sizes[fragment]) == 1
        for name, parts in share.parts.items():
            if WHOLE not in parts:
                found.setdefault(name, {}).update({n: one for n, one in parts.items() if n not in found[name]})
            elif name in worker.divided and not is_resource(name) and not alone:
                partial.setdefault((fragment, name), []).append((worker, parts[WHOLE]))
            elif name.startswith("#") and name in found:  # of instances that do not wait for one another, the largest
                found[name] = {WHOLE: max(found[name][WHOLE], parts[WHOLE], key=_count)}
            else:
                found.setdefault(same_form(name), parts)
    for (_, name), each in partial.items():
        if name not in found:
            found[name] = {WHOLE: join(name, each)}
    return found


def _count(packed: Packed) -> int:
    return int(np.max(packed[""].array))


def join(name: str, each: list[tuple[Worker, Packed]]) -> Packed:
    """A value of which every instance has a part, in the order of the instances."""
    worker, first = each[0]
    dims = worker.ops.agents.of(name) or (-1,) * len(first) if worker.program.fragment.axis == "agent" else [
        worker.divided[name] if leaf.array.ndim > worker.divided[name] else -1 for leaf in first.values()]
    return {path: leaf if dim < 0 else Leaf(leaf.kind, np.concatenate([packed[path].array for _, packed in each], dim))
            for dim, (path, leaf) in zip(dims, first.items(), strict=True)}


def deal(worker: Worker, whole: Share) -> Share:
    """What one instance is to begin with."""
    loop, live = wanted(worker, whole.loop)
    parts: Parts = {}
    for name in (*live, *map(key, loop.carries if loop else ())):
        logical = name if name in whole.parts else same_form(name)
        if logical in whole.parts:
            mine = shards(worker, name)
            parts[name] = whole.parts[logical] if mine is None or WHOLE in whole.parts[logical] else {
                str(number): whole.parts[logical][str(number)] for number in mine}
    return replace(whole, parts=parts)


def common_loops(programs: Iterable[LocalProgram]) -> list[str]:
    """The loops that all take part in, in order."""
    first, *others = [loops_of(program) for program in programs]
    return [name for name in first if all(name in other for other in others)]
