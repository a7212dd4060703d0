"""The files of a run folder, read as data that anybody may have written: a folder goes in, checked values come out, or
a UsageError that names the file and what is wrong with it.

It always holds that what is read is inside the folder (no link leads out of it), is of a bounded size and depth, and
has the fields, kinds and ranges that `msrl train` writes. Numbers have 64 bits at most.
"""

import json
import os
import stat
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msrl.api.ranges import SEEDS, Range
from msrl.errors import UsageError

CONFIG, RESULT = "config.json", "result.json"
OURS = (CONFIG, RESULT, "lease.json", "deployment.toml", "reproduce.sh", "metrics.jsonl", "tensorboard", "weights",
        "checkpoints", "faults", "curve.png", "trace.json")  # what a run reads or writes in its folder
LARGEST, DEEPEST = 2**24, 32  # bytes of a JSON file, and how deep lists and objects may be in one another
WORD = 2**63

NATURAL, COUNT = Range(0, 2**31 - 1, whole=True), Range(1, 2**31 - 1, whole=True)
FIELDS: dict[str, type | Range] = {  # of config.json, as far as it is read again
    "algorithm": str, "env": str, "env_id": str, "config": dict, "seeds": list, "strict": bool, "profile": bool,
    "eval_every": NATURAL, "eval_episodes": COUNT, "checkpoint_every": NATURAL, "checkpoint_keep": COUNT,
    "restarts": NATURAL, "env_timeout": Range(0, threading.TIMEOUT_MAX), "non_finite": str, "status": str,
    "flags": dict, "observation": str, "action": str, "agents": NATURAL}
RESULT_FIELDS: dict[str, type | Range] = {"status": str, "weights_sha256": str, "per_seed": list}


class Malformed(Exception):
    """What is wrong with a file, as the end of a sentence."""


def read_config(path: Path) -> dict[str, Any]:
    """The config.json of a run folder. No link in the folder leads out of it."""
    file = path / CONFIG
    try:
        check_links(path)
        about = read_object(file)
        check_fields(about, FIELDS)
        seeds = about["seeds"]
        if not seeds or not all(SEEDS.holds(seed) for seed in seeds) or \
                seeds != list(range(seeds[0], seeds[0] + len(seeds))):
            raise Malformed(f"its seeds are {_short(seeds)}")
    except (OSError, Malformed) as error:
        there = os.path.lexists(file)
        raise UsageError(
            f"{path} is not a run folder.",
            why=f"{file} is not one that `msrl train` writes: {_reason(error)}." if there else f"There is no {file}.",
            instead="Name a folder that `msrl train` made, for instance one under runs/.") from error
    return about


def read_result(path: Path) -> dict[str, Any] | None:
    """The result.json of a run folder; None if there is none, as of a run that was killed."""
    file = path / RESULT
    if not os.path.lexists(file):
        return None
    try:
        result = read_object(file)
        check_fields(result, RESULT_FIELDS)
        for each in result["per_seed"]:
            if not isinstance(each, dict):
                raise Malformed(f"its per_seed has {_short(each)}")
            check_fields(each, {"seed": SEEDS, "weights_sha256": str})
        if len(result["per_seed"]) == 1 and result["weights_sha256"] != result["per_seed"][0]["weights_sha256"]:
            raise Malformed("it has two checksums for the same weights")
    except (OSError, Malformed) as error:
        raise UsageError(f"{file} cannot be used.",
                         why=f"It is not one that `msrl train` writes: {_reason(error)}.",
                         instead="Restore it from a copy, or train again.") from error
    return result


def read_object(file: Path) -> dict[str, Any]:
    """A JSON object: small enough, not too deep, with numbers that are finite and no longer than 64 bits."""
    info = file.stat()
    if not stat.S_ISREG(info.st_mode):
        raise Malformed("it is not a file")
    if info.st_size > LARGEST:
        raise Malformed(f"it has {info.st_size:,} bytes")
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # the former of bytes that are no text, too
        raise Malformed("it is not JSON" if isinstance(error, ValueError) else "it is too deep") from error
    check_plain(found)
    if not isinstance(found, dict):
        raise Malformed("it is not a JSON object")
    return found


def check_plain(value: Any) -> None:
    """Nothing in it is too deep, too long, or not a number."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise Malformed(f"it is more than {DEEPEST} levels deep")
        for each in level:
            if isinstance(each, float) and not -float("inf") < each < float("inf"):
                raise Malformed(f"it has the number {each}")
            if isinstance(each, int) and not -WORD <= each < WORD:
                raise Malformed("it has a number of more than 64 bits")
        level = [inner for each in level for inner in _inside(each)]


def _inside(value: Any) -> Iterator[Any]:
    yield from value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def check_fields(found: dict[str, Any], fields: dict[str, type | Range]) -> None:
    """All are there, each of its kind. Text is printable: messages repeat it."""
    for name, kind in fields.items():
        if name not in found:
            raise Malformed(f"it has no {name!r}")
        value = found[name]
        if isinstance(kind, Range):
            good = not isinstance(value, bool) and kind.holds(value)
        else:
            good = type(value) is kind and (kind is not str or value.isprintable())
        if not good:
            raise Malformed(f"its {name} is {_short(value)}")


def check_links(path: Path, names: Sequence[str] = OURS) -> None:
    """Whatever a run reads or writes in its folder is there, and not where a link leads: else to go on with a
    stranger's run would be to write over files of one's own."""
    root = path.resolve()
    for name in names:
        for each in _walk(path / name):
            if each.is_symlink() and not each.resolve().is_relative_to(root):
                raise UsageError(f"{each} leads out of the run folder, to {each.resolve()}.",
                                 why="What a run reads and writes is inside its folder.",
                                 instead="If the folder is yours, move there what the link points to.",
                                 docs="docs/security.md")
            if not (each.is_file() or each.is_dir() or each.is_symlink()):
                raise UsageError(f"{each} is neither a file nor a folder.", why="A run has nothing else.",
                                 instead="Remove it.", docs="docs/security.md")


def _walk(path: Path) -> Iterator[Path]:
    """It and all in it, without following links."""
    if os.path.lexists(path):
        yield path
    if path.is_dir() and not path.is_symlink():
        with os.scandir(path) as entries:
            inside = sorted(entry.name for entry in entries)
        for name in inside:
            yield from _walk(path / name)


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _short(value: Any) -> str:
    """As much of a value as fits into a line."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
