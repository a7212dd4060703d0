"""Local programs with one send or receive dropped, doubled, moved within its block, or out of its loop or branch."""

import random
from dataclasses import fields, replace

from msrl.ir.graph import Node, Recv, Send, walk
from msrl.ir.placed import LocalProgram

KINDS = ("drop", "double", "move", "lift")


def mutant(programs: dict[str, LocalProgram], kind: str, chance: random.Random) -> dict[str, LocalProgram] | None:
    """One of the programs changed; None where there is nothing to change in this way."""
    names = [name for name, program in programs.items() if any(map(moves, walk(program.nodes)))]
    if not names:
        return None
    name = chance.choice(names)
    blocks = [block for block in blocks_of(programs[name].nodes)
              if any(map(moves, block)) and (kind != "move" or len(block) > 1)]
    if kind == "lift":
        blocks = [block for block in blocks_of(programs[name].nodes)
                  if any(any(map(moves, inner)) for node in block for inner in held(node).values())]
    if not blocks:
        return None
    block = chance.choice(blocks)
    changed = {"drop": drop, "double": double, "move": move, "lift": lift}[kind](list(block), chance)
    nodes = with_block(programs[name].nodes, block, tuple(changed))
    return {**programs, name: replace(programs[name], nodes=nodes)}


def moves(node: Node) -> bool:
    return isinstance(node, (Send, Recv))


def held(node: Node) -> dict[str, tuple[Node, ...]]:
    return {field.name: getattr(node, field.name) for field in fields(node)
            if field.name in ("body", "test", "then", "orelse")}


def blocks_of(nodes: tuple[Node, ...]) -> list[tuple[Node, ...]]:
    return [nodes, *(found for node in nodes for inner in held(node).values() for found in blocks_of(inner))]


def with_block(nodes: tuple[Node, ...], old: tuple[Node, ...], new: tuple[Node, ...]) -> tuple[Node, ...]:
    if nodes is old:
        return new
    return tuple(replace(node, **{field: with_block(inner, old, new) for field, inner in held(node).items()})
                 if held(node) else node for node in nodes)


def pick(block: list[Node], chance: random.Random) -> int:
    return chance.choice([at for at, node in enumerate(block) if moves(node)])


def drop(block: list[Node], chance: random.Random) -> list[Node]:
    del block[pick(block, chance)]
    return block


def double(block: list[Node], chance: random.Random) -> list[Node]:
    block.insert(chance.randrange(len(block) + 1), block[pick(block, chance)])
    return block


def move(block: list[Node], chance: random.Random) -> list[Node]:
    node = block.pop(pick(block, chance))
    block.insert(chance.randrange(len(block) + 1), node)
    return block


def lift(block: list[Node], chance: random.Random) -> list[Node]:
    at, field = chance.choice([(at, field) for at, node in enumerate(block)
                               for field, inner in held(node).items() if any(map(moves, inner))])
    inner = list(held(block[at])[field])
    node = inner.pop(pick(inner, chance))
    block[at] = replace(block[at], **{field: tuple(inner)})
    block.insert(at + chance.randrange(2), node)
    return block
