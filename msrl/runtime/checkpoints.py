"""Checkpoints on disk: everything that a run has at one point of its loop, from which it can go on anywhere.

    checkpoints/SEED-UPDATE/manifest.json  what it is, with a checksum for each part
    checkpoints/SEED-UPDATE/state/         the arrays (Orbax), by component and shard

They are written in the background. A checkpoint is there, complete, or not at all; a save that fails harms no other.
Reading one executes nothing of it: there are arrays, and names for them. The newest few are kept, and the best.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from msrl.errors import RunError, UsageError
from msrl.ir.graph import base
from msrl.runtime import weights
from msrl.runtime.files import dumps, put, seal, write
from msrl.runtime.packing import LEAF_KINDS, Leaf, Packed

FORMAT = 1
FOLDER, MANIFEST, STATE = "checkpoints", "manifest.json", "state"
Parts = dict[str, dict[str, Packed]]  # name → shard → what it is there


@dataclass(frozen=True)
class Checkpoint:
    """A run between two updates. `about` is what else there is to know: plain data."""

    loop: str
    update: int  # passes of the loop so far
    parts: Parts
    about: dict[str, Any]

    @property
    def env_steps(self) -> int:
        return int(self.about["env_steps"])


def name_of(seed: int, update: int) -> str:
    return f"{seed}-{update:08d}"


class Checkpoints:
    """Those of one run folder, as it is being written. `save` returns at once; `wait` when all is on disk."""

    def __init__(self, run: Path, keep: int, settle: Callable[[], None] = lambda: None):
        """`settle` is called before a checkpoint appears: it raises if the folder is no longer ours to write to."""
        self.path, self.keep, self.settle = run / FOLDER, keep, settle
        self.writer = ThreadPoolExecutor(1, "msrl-checkpoint")
        self.pending: Future | None = None

    def save(self, seed: int, checkpoint: Checkpoint) -> None:
        self.wait()
        self.pending = self.writer.submit(self._save, seed, checkpoint)

    def wait(self) -> None:
        """Raises what went wrong."""
        pending, self.pending = self.pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        try:
            self.wait()
        finally:
            self.writer.shutdown()

    def _save(self, seed: int, checkpoint: Checkpoint) -> None:
        path = self.path / name_of(seed, checkpoint.update)
        try:
            self.settle()
            write_checkpoint(path, checkpoint, self.settle)
            self._prune(seed)  # the new one is on disk
        except OSError as error:
            sound = newest(self.path.parent, seed)
            raise RunError(f"The checkpoint {path} could not be written.", why=f"{error.strerror or error}.",
                           instead=f"Make room or give permission; the run can go on from {sound}: msrl resume "
                                   f"{self.path.parent}" if sound else "Make room, or give permission.") from error

    def _prune(self, seed: int) -> None:
        """Keeps the newest, and the best of those that have a score."""
        there = [(path, manifest) for path in listed(self.path.parent, seed) if (manifest := _manifest(path))]
        scored = [(manifest["about"]["score"], path) for path, manifest in there
                  if isinstance(manifest["about"].get("score"), (int, float))]
        best = max(scored)[1] if scored else None
        for path, _ in there[:-self.keep]:
            if path != best:
                shutil.rmtree(path, ignore_errors=True)


def write_checkpoint(path: Path, checkpoint: Checkpoint, settle: Callable[[], None] = lambda: None) -> None:
    """`settle` is called when all is written, and before it counts."""
    aside = path.with_name(f".{path.name}")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(parents=True)
        weights.save_arrays(aside / STATE, {
            _key(part, shard, leaf_path): leaf.array for part, shards in checkpoint.parts.items()
            for shard, packed in shards.items() for leaf_path, leaf in packed.items()})
        manifest = {
            "format": FORMAT, "loop": checkpoint.loop, "update": checkpoint.update, "about": checkpoint.about,
            "environments": environments(checkpoint.parts), "files": weights.file_sums(aside / STATE),
            "parts": {part: {shard: {"sha256": checksum(packed), "leaves": {
                path: [leaf.kind, leaf.array.dtype.name, list(leaf.array.shape)] for path, leaf in packed.items()}}
                for shard, packed in shards.items()} for part, shards in checkpoint.parts.items()}}
        write(aside / MANIFEST, (dumps({**manifest, "sha256": seal(manifest)}) + "\n").encode())
        settle()
        put(aside, path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def environments(parts: Parts) -> dict[str, str]:
    """How those of each shard are kept. Our handles tell what led to them or, with the seeds and what was last seen
    alone, that they begin anew (msrl/envs/batch.py)."""
    found = {}
    for packed_by_shard in (parts[name] for name in parts if base(name) == "$env"):
        for shard, packed in packed_by_shard.items():
            told = {path.rpartition("/")[2] for path, leaf in packed.items() if leaf.kind == "handle"}
            known = {"seeds", "obs"} <= told and (told == {"seeds", "obs"} or "actions" in told)
            found[shard] = "state" if not told else "as its handle saves it" if not known else \
                "seeds and actions" if "actions" in told else "reset boundary"
    return found


def checksum(packed: Packed) -> str:
    digest = hashlib.sha256()
    for path, leaf in sorted(packed.items(), key=lambda item: item[0]):
        digest.update(f"{path} {leaf.kind} {leaf.array.dtype.str} {leaf.array.shape}\n".encode())
        digest.update(np.ascontiguousarray(leaf.array).tobytes())
    return digest.hexdigest()


# -- reading -----------------------------------------------------------------------------------------------------------


def listed(run: Path, seed: int | None = None) -> list[Path]:
    """The checkpoints of a run (of one of its seeds), oldest first."""
    folder = run / FOLDER
    found = [path for path in folder.iterdir() if path.is_dir() and _numbers(path)] if folder.is_dir() else []
    return sorted((path for path in found if seed is None or _numbers(path)[0] == seed), key=_numbers)


def _numbers(path: Path) -> tuple[int, ...]:
    found = re.fullmatch(r"(-?\d+)-(\d+)", path.name)
    return tuple(map(int, found.groups())) if found else ()


class Unsound(Exception):
    """Why a checkpoint cannot be used."""


def newest(run: Path, seed: int | None = None, apart_from: Path | None = None) -> Path | None:
    """The newest that is sound."""
    for path in reversed(listed(run, seed)):
        try:
            if path != apart_from:
                read(path)
                return path
        except Unsound:
            continue
    return None


def load(path: Path) -> Checkpoint:
    """Reads a checkpoint; offers another one if it is not sound."""
    try:
        return read(path)
    except Unsound as problem:
        raise refused(path, problem) from problem


def refused(path: Path, problem: Unsound) -> UsageError:
    run = path.parent.parent
    sound = newest(run, apart_from=path)
    return UsageError(
        f"The checkpoint {path} cannot be used.", why=str(problem),
        instead=f"Go on from the newest sound one, {sound.name}: msrl resume {run} --auto" if sound else
        f"There is no other; train again: sh {run / 'reproduce.sh'}")


def read_manifest(path: Path) -> dict[str, Any]:
    """What a checkpoint says of itself, once all of its files have been held against their checksums."""
    manifest = _manifest(path)
    if manifest is None:
        raise Unsound(f"Its {MANIFEST} is missing, or is not one that a run writes.")
    if manifest.get("format") != FORMAT:
        raise Unsound(f"It has the format {manifest.get('format')!r:.40}, and this version of MSRL reads {FORMAT}.")
    with told():
        if manifest.pop("sha256", None) != seal(manifest):
            raise Unsound(f"It is damaged: its {MANIFEST} does not have its checksum.")
        here, there = weights.file_sums(path / STATE), dict(manifest["files"])
        wrong = [name for name in sorted({*here, *there}) if here.get(name) != there.get(name)]
        if wrong:
            raise Unsound(f"It is damaged: {STATE}/{wrong[0]} does not have its checksum.")
        if type(manifest["loop"]) is not str or type(manifest["update"]) is not int:
            raise TypeError(f"the loop is {manifest['loop']!r:.40}, the update {manifest['update']!r:.40}")
    return manifest


def read(path: Path) -> Checkpoint:
    """Reads a checkpoint and holds it against its checksums."""
    manifest = read_manifest(path)
    with told():
        arrays = weights.load_arrays(path / STATE)
        parts = {part: {shard: _packed(part, shard, arrays, said) for shard, said in shards.items()}
                 for part, shards in manifest["parts"].items()}
        return Checkpoint(manifest["loop"], manifest["update"], parts, manifest["about"])


@contextmanager
def told() -> Iterator[None]:
    """Whatever a reader of damaged files raises becomes the reason why they cannot be used."""
    try:
        yield
    except Unsound:
        raise
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        raise Unsound(f"It is damaged: {type(error).__name__}: {first}") from error


def _packed(part: str, shard: str, arrays: dict[str, np.ndarray], said: dict[str, Any]) -> Packed:
    packed = {}
    for path, (kind, name, shape) in said["leaves"].items():
        dtype, shape = np.dtype(name), tuple(shape)
        array = np.zeros(shape, dtype) if 0 in shape else arrays[_key(part, shard, path)]
        if kind not in LEAF_KINDS or (array.dtype, array.shape) != (dtype, shape):
            raise ValueError(f"{part} {path} is {kind} {array.dtype}{list(array.shape)}, not {dtype}{list(shape)}")
        packed[path] = Leaf(kind, array)
    if checksum(packed) != said["sha256"]:
        raise ValueError(f"{part} does not have its checksum")
    return packed


def _manifest(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((path / MANIFEST).read_text())
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("about"), dict) else None


def _key(part: str, shard: str, path: str) -> str:
    """A name that every file system takes."""
    return quote(f"{part}/{shard}/{path}", safe="").replace(".", "%2E")
