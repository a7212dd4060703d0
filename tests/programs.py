"""Reads tables of programs with what is expected of each.

A table is a text file of entries:

    == name | buffers=a,b | components=m
    the whole source of a file that defines a trainer class T
    -->
    what is expected

The bar parts can be left out: the trainer then has one buffer, `replay`, and one component, `model`.
"""

import importlib.util
import itertools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_numbers = itertools.count()


@dataclass(frozen=True)
class Entry:
    table: Path
    name: str
    buffers: tuple[str, ...]
    components: tuple[str, ...]
    source: str
    expected: str

    def load(self, folder: Path) -> type:
        """The class T, with a file of its own: t.py in `folder`."""
        file = folder / "t.py"
        file.write_text(self.source)
        spec = importlib.util.spec_from_file_location(f"program_{next(_numbers)}", file)
        assert spec and spec.loader
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.T

    def trainer(self, folder: Path) -> Any:
        return self.load(folder)()

    def update(self, found: str) -> None:
        """Writes the table anew, with `found` as what is expected here."""
        intro, *chunks = self.table.read_text().split("\n== ")
        for at, chunk in enumerate(chunks):
            head, _, rest = chunk.partition("\n")
            if head.partition("|")[0].strip() == self.name:
                chunks[at] = f"{head}\n{rest.partition('-->')[0]}-->\n{found}"
            chunks[at] = chunks[at].rstrip("\n") + "\n"
        self.table.write_text("\n== ".join([intro, *chunks]))


def read_table(table: Path) -> list[Entry]:
    entries = []
    for chunk in table.read_text().split("\n== ")[1:]:
        head, _, rest = chunk.partition("\n")
        source, arrow, expected = rest.partition("-->\n")
        assert arrow, head
        name, *settings = (part.strip() for part in head.split("|"))
        given = dict(setting.split("=") for setting in settings)
        lists = {key: tuple(filter(None, value.split(","))) for key, value in given.items()}
        entries.append(Entry(table, name, lists.get("buffers", ("replay",)), lists.get("components", ("model",)),
                             source, expected.rstrip("\n") + "\n"))
    return entries
