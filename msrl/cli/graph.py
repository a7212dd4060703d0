"""`msrl graph`: prints the graph that an algorithm's loop is compiled to."""

import json
import sys

from msrl.cli.deploying import PlacementOptions
from msrl.cli.options import GRAPH, GraphOptions, read_with_algorithm
from msrl.ir import json_form, mermaid, text
from msrl.training import compile


def main(args: list[str], began: float) -> int:
    given = read_with_algorithm(GraphOptions, PlacementOptions, args, "msrl graph", GRAPH)
    graph = compile(given.algorithm, given.options.env, config=given.config).graph
    match given.options.format:
        case "text":
            shown = text.show(graph)
        case "mermaid":
            shown = mermaid.draw(graph)
        case "json":
            shown = json.dumps(json_form.to_json(graph), indent=2) + "\n"
    sys.stdout.write(shown)
    return 0
