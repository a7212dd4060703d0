"""A `Picture` as text, as a Mermaid flowchart, and as plain data for JSON."""

from typing import Any

from msrl.ir.picture import Arrow, Picture, bytes_in_words, copies


def text(picture: Picture) -> str:
    lines = [picture.title, ""]
    for fragment, count in picture.fragments:
        over = f" over the {fragment.axis} axis" if fragment.axis else ""
        lines.append(f"fragment {copies(fragment, count)}{over}: {', '.join(fragment.components)}")
    if picture.arrows:
        head = ("move", "value", "from", "to", "when", "times", "size", "per update")
        rows = [head, *(_row(arrow) for arrow in picture.arrows)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
        lines += ["", *("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip()
                        for row in rows)]
    return "\n".join([*lines, "", total(picture)]) + "\n"


def _row(arrow: Arrow) -> tuple[str, ...]:
    move = arrow.move
    times = "1" if arrow.depth == 0 else "?" if arrow.times is None else str(arrow.times)
    moved = "" if arrow.depth == 0 else bytes_in_words(arrow.per_update)
    return (move.kind, arrow.label, move.source, move.target, arrow.when, times, bytes_in_words(arrow.size), moved)


def total(picture: Picture) -> str:
    if not picture.arrows:
        return "Nothing moves."
    least = "At least " if picture.open_ended else ""
    return f"{least}{bytes_in_words(picture.per_update)} move per update, a broadcast counted once."


def mermaid(picture: Picture) -> str:
    lines = ["flowchart LR"]
    for fragment, count in picture.fragments:
        lines.append(f'  {fragment.name}["{copies(fragment, count)}<br/>{_quoted(", ".join(fragment.components))}"]')
    for arrow in picture.arrows:
        line = {"once": "-.->", "per update": "-->", "per step": "==>"}[arrow.when]
        times = f" ×{arrow.times}" if arrow.depth > 1 and arrow.times else ""
        about = f"{arrow.move.kind} {_quoted(arrow.label)}<br/>{arrow.when}{times}, {bytes_in_words(arrow.size)}"
        lines.append(f'  {arrow.move.source} {line}|"{about}"| {arrow.move.target}')
    return "\n".join(lines) + "\n"


def _quoted(words: str) -> str:
    return words.replace('"', "#quot;")


def to_json(picture: Picture) -> dict[str, Any]:
    return {
        "title": picture.title,
        "fragments": [{"name": fragment.name, "components": list(fragment.components), "axis": fragment.axis,
                       "instances": count} for fragment, count in picture.fragments],
        "moves": [{"id": arrow.move.id, "kind": arrow.move.kind, "value": arrow.move.value, "label": arrow.label,
                   "source": arrow.move.source, "target": arrow.move.target, "dim": arrow.move.dim,
                   "when": arrow.when, "depth": arrow.depth, "times_per_update": arrow.times if arrow.depth else 0,
                   "bytes": arrow.size, "bytes_per_update": arrow.per_update,
                   "line": str(arrow.move.span) if arrow.move.span else None} for arrow in picture.arrows],
        "bytes_per_update": picture.per_update,
    }
