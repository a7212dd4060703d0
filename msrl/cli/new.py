"""`msrl new`: writes an algorithm to start from, that trains as it is."""

import re
import sys
from pathlib import Path

from msrl.cli.options import NewOptions, read
from msrl.errors import UsageError
from msrl.runtime.files import write


def main(args: list[str], began: float) -> int:
    options: NewOptions = read(NewOptions, args, "msrl new")
    file, name = options.file, options.name
    if file.suffix != ".py":
        raise UsageError(f"{file} is not the name of a Python file.", instead=f"Write: msrl new {file.stem}.py")
    if not name.isidentifier():
        raise UsageError(f"{name!r} cannot be the name of a class.", instead="Use letters, digits and underscores.")
    if file.exists():
        raise UsageError(f"{file} exists already.", why="Nothing is ever written over.",
                         instead="Name another file, or remove this one.")
    if not file.absolute().parent.is_dir():
        raise UsageError(f"There is no folder {file.parent}.", instead=f"Make it first: mkdir -p {file.parent}")
    source = Path(__file__).with_name("template.py").read_text()
    write(file, re.sub(r"\bMyAlgo(?=\b|Config|Actor|Learner)", name, source).encode())
    sys.stdout.write(f"Wrote {file}. Train it:\n\n  msrl train {file}:{name} --env CartPole-v1\n")
    return 0
