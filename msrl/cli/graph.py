"""`msrl graph`: prints the graph that an algorithm's loop is compiled to, or how a distribution cuts it up."""

import json
import sys
from collections import Counter

import jax

from msrl.backends.agreeing import program_of
from msrl.cli.deploying import PlacementOptions
from msrl.cli.options import GRAPH, Given, GraphOptions, read_with_algorithm
from msrl.deployment import nearest
from msrl.engines.ops import strong
from msrl.engines.shapes import Shapes, unknown
from msrl.errors import UsageError
from msrl.ir import drawing, json_form, mermaid, python_form, text
from msrl.ir.page import page
from msrl.ir.picture import picture
from msrl.pipeline import Program
from msrl.training import compile


def main(args: list[str], began: float) -> int:
    given = read_with_algorithm(GraphOptions, PlacementOptions, args, "msrl graph", GRAPH)
    program = compile(given.algorithm, given.options.env, config=given.config, deployment=given.deployment)
    if given.options.fragment is not None:
        shown = fragment(program, given.options.fragment)
    elif given.deployment.distribution != "local" or given.flags or given.options.format == "html":
        shown = placed(program, given)
    else:
        shown = whole(program, given.options.format)
    sys.stdout.write(shown)
    return 0


def whole(program: Program, form: str) -> str:
    """The graph as it is before anything is placed."""
    match form:
        case "mermaid":
            return mermaid.draw(program.graph)
        case "json":
            return json.dumps(json_form.to_json(program.graph), indent=2) + "\n"
    return text.show(program.graph)


def placed(program: Program, given: Given) -> str:
    """The fragments, and what moves between them."""
    found = picture(f"{given.algorithm} on {program.env.spec.id} under {given.deployment.distribution}", program.placed,
                    {worker.program.fragment.name: worker.program for worker in program.workers},
                    Counter(worker.program.fragment.name for worker in program.workers), sizes(program.shapes),
                    agreed(program))
    match given.options.format:
        case "mermaid":
            return drawing.mermaid(found)
        case "json":
            return json.dumps(drawing.to_json(found), indent=2) + "\n"
        case "html":
            return page(found, program.placed)
    return drawing.text(found)


def sizes(shapes: Shapes) -> dict[str, int]:
    """The bytes of every name."""
    return {name: sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(strong(tree)))
            for name, tree in shapes.names.items() if not unknown(tree)}


def agreed(program: Program) -> dict[str, tuple[int, int]]:
    """How often learners agree in an update, and the bytes of each time, by move."""
    found = {}
    for move in program.placed.moves:
        if move.agrees and move.axis == "agent":  # learners of agent shards share what they return, and no more
            found[move.id] = 1, sizes(program.shapes).get(program.shapes.learns[move.value].out or "", 0)
        elif move.agrees and (each := program_of(program.lead, move.value).traffic):
            found[move.id] = each.times, (each.brought if "learner" in program.placed.fragment(
                move.source).components else each.taken) // max(each.times, 1)
    return found


def fragment(program: Program, name: str) -> str:
    mine = [worker.program for worker in program.workers if worker.program.fragment.name == name]
    if not mine:
        names = tuple(fragment.name for fragment in program.placed.fragments)
        raise UsageError(f"There is no fragment {name!r}.", why=f"There are {', '.join(names)}." if len(names) > 1 else
                         f"There is {names[0]}, as nothing is cut up.", instead=nearest(name, names))
    return python_form.show(mine[0], program.placed, len(mine))
