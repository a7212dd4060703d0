"""The move by which trajectories reach the learner, by which environment steps are accounted for.

In: the local programs and their moves. Out: the move's id, or None where nothing is gathered. Where it is to be first
come, first served, a loop for which that has no meaning is refused with its line.
"""

from collections.abc import Iterator

from msrl.errors import UsageError
from msrl.ir.graph import For, Node, Recv, While, blocks, walk
from msrl.ir.placed import LocalProgram, Move


def leading_move(programs: dict[str, LocalProgram], moves: dict[str, Move], unordered: bool) -> str | None:
    """The move by which trajectories reach the learner: the first that it gathers of the environments' place in the
    loop that trains. None where they take another way; only there are steps counted."""
    learner = next(program for program in programs.values() if "learner" in program.fragment.components)
    _, loop, after = around(learner)
    stepping = next(name for name, program in programs.items() if "env" in program.fragment.components)
    found = [group for block in blocks_of(loop)
             if (group := [move for move in gathered(block, moves) if move.source == stepping])]
    if unordered:
        late = [move for block in blocks_of(after) for move in gathered(block, moves)]
        told = [moves[node.move] for program in programs.values() if program is not learner
                for node in walk(around(program)[1]) if isinstance(node, Recv)]
        told = [move for move in told if not move.value.startswith("$weights")]
        for wrong, why in (
            ([] if found else loop, "Nothing that actors make reaches the learner in its last loop, which trains."),
            (late, "Actors run until the learner is done, and here it wants a value of theirs after its last loop."),
            (told, "Actors never wait for the learner, and here they want more of it than weights."),
            ([group[0] for group in found][1:],
             "First come, first served: what the learner takes of one actor it takes in one go, and this value reaches "
             "it in another loop or branch than the first."),
        ):
            if wrong:
                raise UsageError("This loop cannot run asynchronously.", span=wrong[0].span, why=why,
                                 instead="Use a synchronous distribution, or let a pass of the loop act, collect in "
                                         "one buffer, and learn.")
    return found[0][0].id if found else None


def around(program: LocalProgram) -> tuple[tuple[Node, ...], tuple[Node, ...], tuple[Node, ...]]:
    """What comes before the loop that trains (the last one), the loop, and what comes after."""
    at = max((at for at, node in enumerate(program.nodes) if isinstance(node, (For, While))), default=-1)
    return program.nodes[:max(at, 0)], program.nodes[at:at + 1] if at >= 0 else (), program.nodes[at + 1:]


def gathered(block: tuple[Node, ...], moves: dict[str, Move]) -> list[Move]:
    return [moves[node.move] for node in block if isinstance(node, Recv) and moves[node.move].kind == "gather"]


def blocks_of(nodes: tuple[Node, ...]) -> Iterator[tuple[Node, ...]]:
    """The block, and those inside it."""
    yield nodes
    for node in nodes:
        for inner in blocks(node):
            yield from blocks_of(inner)
