"""`msrl list`: the names that the other commands take, with a line about each."""

import sys

from msrl.algorithms import ALGORITHMS
from msrl.cli.options import ListOptions, read
from msrl.envs import list_envs

DISTRIBUTIONS = {"local": "everything in one process, in one compiled program where the environment allows"}


def main(args: list[str], began: float) -> int:
    read(ListOptions, args, "msrl list")
    own = [("<path>.py:<Class>", "your own subclass of msrl.api.Trainer; `msrl new my_algo.py` writes one")]
    show("algorithms", [(name, about) for name, (_, about) in ALGORITHMS.items()] + own)
    show("environments", list_envs())
    show("distributions", list(DISTRIBUTIONS.items()))
    return 0


def show(title: str, entries: list[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in entries) + 2
    sys.stdout.write("".join([f"{title}\n", *(f"  {name:<{width}}{about}\n" for name, about in entries), "\n"]))
