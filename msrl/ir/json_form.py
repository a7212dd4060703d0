"""A graph as JSON: `to_json` gives plain dicts and lists, `from_json` reads them back, and nothing is lost.

A node is a dict with its `kind` (call, pure, for, while, if) and its fields as in msrl.ir.graph, blocks nested. Spans
are kept, though they are not part of a graph's equality.
"""

import dataclasses
from typing import Any

from msrl.errors import Span
from msrl.ir.graph import Call, Carry, For, Graph, If, Merge, Pure, While

_KINDS = {kind.__name__.lower(): kind for kind in (Graph, Call, Pure, For, While, If, Carry, Merge, Span)}


def to_json(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        fields = {each.name: to_json(getattr(value, each.name)) for each in dataclasses.fields(value)}
        return {"kind": type(value).__name__.lower(), **fields}
    return [to_json(each) for each in value] if isinstance(value, tuple) else value


def from_json(value: Any) -> Any:
    match value:
        case dict():
            return _KINDS[value["kind"]](**{name: from_json(each) for name, each in value.items() if name != "kind"})
        case list():
            return tuple(from_json(each) for each in value)
    return value
