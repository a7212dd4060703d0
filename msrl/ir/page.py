"""A picture of a placed graph as one HTML page: a drawing in SVG, and a table. Nothing is loaded from elsewhere.

The drawing reads from top to bottom in the order of the loop: a column per fragment, a box per op, an arrow per move,
a frame per loop and branch. Arrows between columns thus never cross one another.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape

from msrl.ir.drawing import total
from msrl.ir.graph import Call, For, If, Node, While, base, definitions
from msrl.ir.picture import Arrow, Picture, bytes_in_words, copies
from msrl.ir.placed import PlacedGraph

ROW, COLUMN, MARGIN, BOX = 34, 280, 60, 150  # pixels
COLOURS = {"once": "#888", "per update": "#1f6fb2", "per step": "#c2410c"}
STYLE = """
body { font: 14px system-ui, sans-serif; margin: 2em; color: #222; }
svg text { font: 12px system-ui, sans-serif; }
.head { font-weight: bold; font-size: 14px; }
table { border-collapse: collapse; margin-top: 1.5em; } td, th { padding: .3em 1em .3em 0; text-align: left; }
"""


@dataclass
class _Canvas:
    """Lines of SVG, and how far down the drawing has come."""

    columns: dict[str, int]
    arrows: dict[str, list[Arrow]]  # name → the moves that begin where it is made
    of: dict[str, str]  # component → fragment
    y: int = 80
    frames: list[str] = field(default_factory=list)  # drawn first, so that they lie beneath
    shapes: list[str] = field(default_factory=list)

    @property
    def width(self) -> int:
        return COLUMN * len(self.columns) + 2 * MARGIN

    def block(self, nodes: tuple[Node, ...], depth: int) -> None:
        for node in nodes:
            match node:
                case Call():
                    self.op(node)
                case For():
                    self.frame(_range(node), node.body, depth)
                case While():
                    self.frame(f"while {base(node.condition)}", (*node.test, *node.body), depth)
                case If():
                    self.frame(f"if {base(node.condition)}", node.then, depth)
                    if self.holds(node.orelse):
                        self.frame("else", node.orelse, depth)
            for name in definitions(node):
                for arrow in self.arrows.pop(name, ()):
                    self.arrow(arrow)

    def op(self, node: Call) -> None:
        x = self.columns[self.of[node.component]]
        where = f"<title>{escape(str(node.span))}</title>" if node.span else ""
        self.shapes.append(
            f'<g>{where}<rect x="{x - BOX // 2}" y="{self.y - 12}" width="{BOX}" height="24" rx="4" fill="#fff" '
            f'stroke="#444"/><text x="{x}" y="{self.y + 4}" text-anchor="middle">'
            f"{escape(f'{node.component}.{node.method}')}</text></g>")
        self.y += ROW

    def arrow(self, arrow: Arrow) -> None:
        move = arrow.move
        start, end, colour = self.columns[move.source], self.columns[move.target], COLOURS[arrow.when]
        about = f"{move.kind} {arrow.label}, {bytes_in_words(arrow.size)}"
        self.shapes.append(
            f'<g><title>{escape(move.id)}</title><line x1="{start}" y1="{self.y}" x2="{end}" y2="{self.y}" '
            f'stroke="{colour}" stroke-width="2" marker-end="url(#{_id(arrow.when)})"/>'
            f'<text x="{(start + end) // 2}" y="{self.y - 5}" text-anchor="middle" fill="{colour}">{escape(about)}'
            "</text></g>")
        self.y += ROW

    def frame(self, title: str, nodes: tuple[Node, ...], depth: int) -> None:
        if not self.holds(nodes):
            return
        top, inset = self.y - 18, 8 * (depth + 1)
        self.y += ROW - 10
        self.block(nodes, depth + 1)
        height = self.y - top - 10
        self.frames.append(
            f'<rect x="{inset}" y="{top}" width="{self.width - 2 * inset}" height="{height}" rx="6" '
            f'fill="#000" fill-opacity="0.03" stroke="#bbb"/>'
            f'<text x="{inset + 8}" y="{top + 15}" fill="#666">{escape(title)}</text>')
        self.y += 10

    def holds(self, nodes: tuple[Node, ...]) -> bool:
        """Is there anything to draw in the block?"""
        return any(isinstance(node, Call) or any(name in self.arrows for name in definitions(node))
                   or self.holds(inner) for node in nodes for inner in _blocks(node))


def page(picture: Picture, placed: PlacedGraph) -> str:
    columns = {fragment.name: MARGIN + COLUMN // 2 + COLUMN * number
               for number, (fragment, _) in enumerate(picture.fragments)}
    arrows: dict[str, list[Arrow]] = {}
    for arrow in picture.arrows:
        arrows.setdefault(arrow.move.value, []).append(arrow)
    of = {component: fragment.name for fragment, _ in picture.fragments for component in fragment.components}
    canvas = _Canvas(columns, arrows, of)
    canvas.block(placed.graph.nodes, 0)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(word)}</td>' for word in _cells(arrow))}</tr>"
                   for arrow in picture.arrows)
    table = "<table><tr><th>move</th><th>value</th><th>from</th><th>to</th><th>when</th><th>size</th>" \
        f"<th>per update</th></tr>{rows}</table>" if rows else ""
    title, drawn = escape(picture.title), "\n".join(_svg(canvas, picture))
    return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            f"<style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n{drawn}\n{table}\n"
            f"<p>{escape(total(picture))}</p></body></html>\n")


def _svg(canvas: _Canvas, picture: Picture) -> Iterator[str]:
    height = canvas.y + 10
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="{canvas.width}" height="{height}" '
           f'viewBox="0 0 {canvas.width} {height}" role="img">')
    heads = "".join(f'<marker id="{_id(when)}" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto" '
                    f'markerUnits="userSpaceOnUse"><path d="M0,0 L8,4 L0,8 z" fill="{colour}"/></marker>'
                    for when, colour in COLOURS.items())
    yield f"<defs>{heads}</defs>"
    yield from reversed(canvas.frames)  # outer ones end last
    for fragment, count in picture.fragments:
        x = canvas.columns[fragment.name]
        yield (f'<line x1="{x}" y1="56" x2="{x}" y2="{height - 10}" stroke="#ddd"/>'
               f'<text x="{x}" y="24" text-anchor="middle" class="head">{escape(copies(fragment, count))}</text>'
               f'<text x="{x}" y="42" text-anchor="middle" fill="#666">{escape(", ".join(fragment.components))}</text>')
    yield from canvas.shapes
    yield "</svg>"


def _cells(arrow: Arrow) -> tuple[str, ...]:
    times = f", {arrow.times} times" if arrow.depth > 1 and arrow.times is not None else ""
    return (arrow.move.kind, arrow.label, arrow.move.source, arrow.move.target, arrow.when + times,
            bytes_in_words(arrow.size), bytes_in_words(arrow.per_update) if arrow.depth else "")


def _blocks(node: Node) -> tuple[tuple[Node, ...], ...]:
    match node:
        case For():
            return (node.body,)
        case While():
            return (node.test, node.body)
        case If():
            return (node.then, node.orelse)
    return ((),)


def _range(node: For) -> str:
    return f"for {base(node.index)} in range({node.start}, {node.stop}, {node.step})"


def _id(when: str) -> str:
    return when.replace(" ", "-")
