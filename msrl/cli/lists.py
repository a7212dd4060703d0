"""`msrl list`: the names that the other commands take, with a line about each."""

import sys

from msrl.algorithms import ALGORITHMS
from msrl.cli.options import ListOptions, read
from msrl.distribution import DISTRIBUTIONS
from msrl.envs import list_envs


def main(args: list[str], began: float) -> int:
    read(ListOptions, args, "msrl list")
    own = [("<path>.py:<Class>", "your own subclass of msrl.api.Trainer; `msrl new my_algo.py` writes one")]
    show("algorithms", [(name, about) for name, (_, about) in ALGORITHMS.items()] + own)
    show("environments", list_envs())
    mine = [("<path>.py:<Class>", "your own subclass of msrl.distribution.policy.DistributionPolicy")]
    show("distributions", [(name, policy.summary) for name, policy in DISTRIBUTIONS.items()] + mine)
    return 0


def show(title: str, entries: list[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in entries) + 2
    sys.stdout.write("".join([f"{title}\n", *(f"  {name:<{width}}{about}\n" for name, about in entries), "\n"]))
