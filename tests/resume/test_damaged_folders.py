"""Every file and every field of a run folder, damaged in every way: what reads it refuses in words, or comes to the
same as with the sound folder, or says what is not the same. Never a traceback, and nothing in silence.

The draws are from a recorded seed, so that every run of the tests damages the same bits. The commands run in this
process, and stop where they would compile.
"""

import contextlib
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from msrl import faults
from msrl.cli.main import main
from msrl.errors import MsrlError
from msrl.jobs import about
from msrl.playing import load_players
from msrl.resuming import resumed
from msrl.runtime import checkpoints
from msrl.runtime.checkpoints import seal
from msrl.runtime.fingerprint import TOLD, seal_of
from msrl.runtime.weights import weights_sha256
from tests.cli.conftest import TINY
from tests.finite import spoiling

SEED = 20


@pytest.fixture(scope="module", autouse=True)
def state(tmp_path_factory):
    """Where the files that were named are written down; nothing of the user's is touched."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MSRL_CACHE_DIR", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    """A run that was stopped, with an update that was not finite."""
    home = tmp_path_factory.mktemp("sound")
    train(home / "run", 0)
    bad = ["train", f"{spoiling.__file__}:Walk", "--env", f"{spoiling.__file__}:Spoilt"]
    assert main([*bad, "--run-dir", str(home / "bad")]) == 1
    shutil.copytree(home / "bad" / "faults", home / "run" / "faults")
    train(home / "other", 1)
    return home / "run"


def train(path: Path, seed: int) -> None:
    assert main(["train", f"{TINY}:Tiny", "--env", "CartPole-v1", "--eval-episodes", "1", "--checkpoint-every", "5",
                 "--checkpoint-keep", "2", "--total-steps", "320", "--seed", str(seed), "--run-dir", str(path)]) == 0
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "status": "interrupted"}))


# -- what the commands make of a folder --------------------------------------------------------------------------------


class Compiling(Exception):
    """All was read and found good."""


def resume(run: Path) -> tuple[Any, tuple[str, ...]]:
    """All that a run goes on with, and what is said of it."""
    job, start = resumed(run)
    try:
        point = start.checkpoint
        parts = {name: {shard: checkpoints.checksum(one) for shard, one in each.items()}
                 for name, each in point.parts.items()} if point else None
        made = {name: value for name, value in about(job).items() if name in (*TOLD, "deployment")}
        return (json.loads(json.dumps(made)), parts, point and (point.loop, point.update), start.rows), start.notes
    finally:
        assert start.lease is not None
        start.lease.release()
        job.base.close()


def evaluate(run: Path) -> tuple[Any, tuple[str, ...]]:
    players = load_players(run)
    players[0].env.close()
    return [(player.seed, player.env.spec.id, weights_sha256(player.weights)) for player in players], ()


def replay(run: Path) -> tuple[Any, tuple[str, ...]]:
    def stop(*args, **kwargs):
        raise Compiling

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(faults.pipeline, "compile", stop)
        place = next((run / "faults").glob("update-*"), run / "faults" / "update-1")
        with contextlib.suppress(Compiling):
            faults.replay(place)
            raise AssertionError("it compiles")
    found = checkpoints.read(place)
    return (found.about, {name: {shard: checkpoints.checksum(one) for shard, one in each.items()}
                          for name, each in found.parts.items()}), ()


READERS = {"resume": resume, "eval": evaluate, "replay": replay}


@pytest.fixture(scope="module")
def wanted(sound, tmp_path_factory) -> dict[str, Any]:
    """What they make of the sound folder."""
    run = tmp_path_factory.mktemp("wanted") / "run"
    shutil.copytree(sound, run)
    return {name: reader(run)[0] for name, reader in READERS.items()}


def check(run: Path, wanted: dict[str, Any], names: tuple[str, ...] = tuple(READERS)) -> dict[str, str]:
    """What each of the commands does with the folder: refused, told or same."""
    outcome = {}
    for name in names:
        try:
            found, notes = READERS[name](run)
        except MsrlError as refused:
            assert refused.what and (refused.why or refused.instead), refused
            outcome[name] = "refused"
            continue
        usual = [note for note in notes if not note.startswith("resume       from the checkpoint 0-00000010")]
        assert found == wanted[name] or usual, f"{name} accepts it in silence"
        outcome[name] = "told" if usual else "same"
    return outcome


# -- each file ---------------------------------------------------------------------------------------------------------


def truncate(file: Path, other: Path, draw: random.Random) -> None:
    file.write_bytes(file.read_bytes()[:draw.randrange(max(1, file.stat().st_size))])


def empty(file: Path, other: Path, draw: random.Random) -> None:
    file.write_bytes(b"")


def flip(file: Path, other: Path, draw: random.Random) -> None:
    content = bytearray(file.read_bytes())
    if content:
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    file.write_bytes(bytes(content))


def make_a_folder(file: Path, other: Path, draw: random.Random) -> None:
    file.unlink()
    file.mkdir()


def link_outwards(file: Path, other: Path, draw: random.Random) -> None:
    target = other.parent / f"outside-{draw.randrange(10**9)}"
    shutil.move(file, target)
    file.symlink_to(target)


def take_of_another_run(file: Path, other: Path, draw: random.Random) -> None:
    if other.is_file():
        shutil.copy(other, file)
    else:
        file.write_bytes(b"of another version")


DAMAGES: tuple[Callable[[Path, Path, random.Random], None], ...] = (
    truncate, empty, flip, make_a_folder, link_outwards, take_of_another_run)


def files_of(sound: Path) -> list[str]:
    """All but those with arrays; of these, some, as each is verified by its checksum in the same way."""
    every = sorted(str(file.relative_to(sound)) for file in sound.rglob("*") if file.is_file())
    arrays = [name for name in every if "/state/" in name or (name.startswith("weights/") and "manifest" not in name)]
    return [name for name in every if name not in arrays] + random.Random(SEED).sample(arrays, 8)


@contextlib.contextmanager
def copied(sound: Path, home: Path) -> Iterator[Path]:
    run = home / "copy" / "run"
    shutil.copytree(sound, run, symlinks=True)
    try:
        yield run
    finally:
        shutil.rmtree(home / "copy")


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_files(sound, wanted, tmp_path, damage):
    outcomes = {}
    other = sound.with_name("other")
    for number, name in enumerate(files_of(sound)):
        with copied(sound, tmp_path) as run:
            elsewhere = tmp_path / "elsewhere" / name
            elsewhere.parent.mkdir(parents=True, exist_ok=True)
            if (other / name).is_file():
                shutil.copy(other / name, elsewhere)
            damage(run / name, elsewhere, random.Random(SEED + number))
            outcomes[name] = check(run, wanted)
    assert outcomes["config.json"]["resume"] != "same" or damage is flip  # it may be the status that was hit
    assert outcomes["checkpoints/0-00000010/manifest.json"]["resume"] == "refused"
    assert {each["eval"] for name, each in outcomes.items() if name.startswith("weights/")} == {"refused"}
    assert {each["replay"] for name, each in outcomes.items() if name.startswith("faults/")} == {"refused"}


@pytest.mark.parametrize("kind", ["a file", "nothing", "empty", "a link outwards"])
def test_folders(sound, wanted, tmp_path, kind):
    outcomes = {}
    names = sorted(str(path.relative_to(sound)) for path in sound.rglob("*") if path.is_dir()
                   and len(path.relative_to(sound).parts) < 4)
    for name in names:
        with copied(sound, tmp_path) as run:
            outside = tmp_path / "copy" / "outside"
            shutil.move(run / name, outside)
            if kind == "a file":
                (run / name).write_text("a file")
            elif kind == "empty":
                (run / name).mkdir()
            elif kind == "a link outwards":
                (run / name).symlink_to(outside)
            outcomes[name] = check(run, wanted)
    assert outcomes["checkpoints/0-00000010/state"]["resume"] == "refused"
    assert outcomes["weights"]["eval"] == outcomes["weights/0"]["eval"] == "refused"


# -- each field --------------------------------------------------------------------------------------------------------

HUGE = (10**400, -2**70, 1e308, "x" * 10**5, [0] * 10**4)


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """All fields, however deep; of a list, its first."""
    inner = value.items() if isinstance(value, dict) else list(enumerate(value))[:1] if isinstance(value, list) else ()
    for key, each in inner:
        yield (*path, key)
        yield from places(each, (*path, key))


def changed(value: Any, path: tuple, change: str, draw: random.Random) -> Any:
    copy = json.loads(json.dumps(value))
    holder = copy
    for key in path[:-1]:
        holder = holder[key]
    before = holder[path[-1]]
    if change == "missing":
        del holder[path[-1]]
    elif change == "huge":
        holder[path[-1]] = draw.choice(HUGE)
    else:
        others = [each for each in (None, True, 3, -1.5, "x", [], ["x"], {}, {"x": 1}, [[[]]])
                  if type(each) is not type(before)]
        holder[path[-1]] = draw.choice(others)
    return copy


CHANGES = ("missing", "of another type", "huge")
JSON = {"config.json": ("resume", "eval"), "result.json": ("eval",), "lease.json": ("resume",),
        "checkpoints/0-00000010/manifest.json": ("resume",), "weights/0/manifest.json": ("eval",),
        "faults/update-N/manifest.json": ("replay",)}


def sealed_anew(name: str, said: dict[str, Any]) -> dict[str, Any]:
    """As if its own writer had written it so: another version, or somebody who knows how."""
    if name == "config.json":
        return {**said, "sha256": seal_of(said)}
    said = {key: value for key, value in said.items() if key != "sha256"}
    return {**said, "sha256": seal(said)}


@pytest.mark.parametrize("again", [False, True], ids=["as it is", "sealed anew"])
@pytest.mark.parametrize("name", JSON)
def test_fields(sound, wanted, tmp_path, name, again):
    if again and name in ("lease.json", "result.json"):
        return  # which have no seal
    readers = JSON[name]
    name = name.replace("update-N", next((sound / "faults").iterdir()).name)
    said = json.loads((sound / name).read_text())
    draw, outcomes = random.Random(SEED), []
    every = list(places(said))
    chosen = [path for path in every if len(path) <= (1 if path[0] in ("parts", "files") else 2)]
    chosen += draw.sample(rest := [path for path in every if path not in chosen], min(20, len(rest)))
    with copied(sound, tmp_path) as run:
        for path in chosen:
            for change in CHANGES:
                new = changed(said, path, change, draw)
                with contextlib.suppress(RecursionError):
                    new = sealed_anew(name, new) if again else new
                (run / name).write_text(json.dumps(new))
                if again:  # a forger may say what he likes, but not so that it ends in a traceback
                    outcomes += [try_it(run, reader) for reader in readers]
                else:
                    outcomes += check(run, wanted, readers).values()
    assert "refused" in outcomes or name == "lease.json"


def try_it(run: Path, reader: str) -> str:
    try:
        READERS[reader](run)
    except MsrlError:
        return "refused"
    return "taken"


def test_fields_of_a_deployment(sound, wanted, tmp_path):
    lines = (sound / "deployment.toml").read_text().splitlines()
    with copied(sound, tmp_path) as run:
        for number, line in enumerate(lines):
            name = line.partition(" = ")[0]
            for value in ("", "[1]", "1e999", str(10**30), '"x"', "true"):
                new = value and f"{name} = {value}"
                (run / "deployment.toml").write_text("\n".join([*lines[:number], new, *lines[number + 1:]]))
                check(run, wanted, ("resume",))


def test_fields_of_metrics(sound, wanted, tmp_path):
    """What was trained does not depend on them: the run goes on, and says that they are not what it wrote."""
    lines = (sound / "metrics.jsonl").read_text().splitlines()
    draw = random.Random(SEED)
    with copied(sound, tmp_path) as run:
        for path in places(json.loads(lines[3])):
            for change in CHANGES:
                new = json.dumps(changed(json.loads(lines[3]), path, change, draw))
                (run / "metrics.jsonl").write_text("\n".join([*lines[:3], new, *lines[4:]]) + "\n")
                assert check(run, wanted, ("resume",)) == {"resume": "told"}, (path, change)


def test_depth(sound, wanted, tmp_path):
    with copied(sound, tmp_path) as run:
        for file in [file for file in sorted(run.rglob("*")) if file.suffix in (".json", ".jsonl", ".toml")]:
            before = file.read_bytes()
            for content in (b"[" * 10**5, b'{"a":' * 10**5, b"a = " + b"[" * 10**5, b"1" * 10**5, b"\xff\xfe" * 9):
                file.write_bytes(content)
                check(run, wanted)
            file.write_bytes(before)
