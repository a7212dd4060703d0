"""Run folders of strangers: whatever they say, `eval`, `resume` and `replay` execute nothing of theirs, connect to
nothing, and neither read nor write anything outside of the folder.

Each folder here is a sound one in which a stranger has changed something, so that it would leave a trace.
"""

import json
import os
import py_compile
import shutil
import socket
import sys
from pathlib import Path

import pytest

from msrl import trust
from msrl.errors import UsageError
from msrl.runtime.checkpoints import seal
from msrl.runtime.fingerprint import seal_of
from tests.cli.conftest import TINY
from tests.finite import spoiling

SPOILING = spoiling.__file__

CANARY = """\
import pathlib
pathlib.Path({trace!r}).touch()
"""


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A run that was stopped, with an update that was not finite."""
    from msrl.cli.main import main

    folder = tmp_path_factory.mktemp("sound") / "run"
    train = ["train", f"{TINY}:Tiny", "--env", "CartPole-v1", "--eval-episodes", "5", "--checkpoint-every", "4"]
    assert main([*train, "--total-steps", "320", "--run-dir", str(folder)]) == 0
    train = ["train", f"{SPOILING}:Walk", "--env", f"{SPOILING}:Spoilt"]
    assert main([*train, "--run-dir", f"{folder}-bad"]) == 1
    shutil.copytree(folder.with_name("run-bad") / "faults", folder / "faults")
    change(folder / "config.json", status="running")
    return folder


@pytest.fixture
def stranger(sound, tmp_path, monkeypatch):
    """A copy of it beside code that leaves a trace; the working directory is importable."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    shutil.copytree(sound, tmp_path / "run")
    code = CANARY.format(trace=str(tmp_path / "trace"))
    for name in ("evil.py", "evil_zoo.py", "evil_gym.py"):
        (tmp_path / name).write_text(code)
    (tmp_path / "x.py:").mkdir()
    py_compile.compile("evil.py", "x.py:/evil.pyc", doraise=True)
    yield tmp_path
    for name in ("evil_zoo", "evil_gym"):
        sys.modules.pop(name, None)


def change(file: Path, **fields) -> None:
    """Of a config.json. A stranger knows how to make a checksum."""
    about = {**json.loads(file.read_text()), **fields}
    file.write_text(json.dumps({**about, "sha256": seal_of(about)}))


def fault_of(run: Path) -> Path:
    return next((run / "faults").iterdir())


def say(run: Path, command: str, **fields) -> list[str]:
    """Lets the folder say this of its run: the command that reads it."""
    if command != "replay":
        config = fields.pop("config", {})
        mine = json.loads((run / "config.json").read_text())["config"]
        change(run / "config.json", **fields, config={**mine, **config})
        return [command, str(run)]
    manifest = json.loads((fault_of(run) / "manifest.json").read_text())
    about = manifest["about"]["run"]
    about.update(fields, config={**about["config"], **fields.pop("config", {})})
    del manifest["sha256"]
    (fault_of(run) / "manifest.json").write_text(json.dumps({**manifest, "sha256": seal(manifest)}))
    return [command, str(fault_of(run))]


CODE = ["evil.py:X", "./evil.py:X", "run/../evil.py:X", "evil.py:X\n", "evil.py", "evil:X", "evil.X",
        "x.py:/evil.pyc:X", "pettingzoo:evil_zoo", "pettingzoo:evil_zoo.inner", "gymnasium:evil_gym:E-v0",
        "gymnasium:evil.py:X", "gymnasium:x.py:/evil.pyc:X", "gymnasium:evil_gym:evil_zoo:E-v0", "evil_gym:E-v0",
        "pettingzoo:", "jax:../evil", "envpool:evil_gym:E", ""]


@pytest.mark.parametrize("command", ["eval", "resume", "replay"])
@pytest.mark.parametrize("kind", ["algorithm", "env_id"])
@pytest.mark.parametrize("code", CODE)
def test_no_name_of_a_folder_is_executed(msrl, stranger, command, kind, code):
    code, out, err = msrl(*say(stranger / "run", command, **{kind: code}))
    assert (code, out) == (2, ""), err
    assert err.startswith(("UsageError: ", "EnvError: ")) and "Traceback" not in err
    assert not (stranger / "trace").exists()


@pytest.mark.parametrize("command", ["eval", "resume", "replay"])
@pytest.mark.parametrize("field, value", [
    ("distribution", "evil.py:X"), ("deployment", "evil.toml"), ("chaos", "kill:actor@1"), ("address", "127.0.0.1:1"),
    ("backend", "ray"), ("own_process", True), ("env", "evil.py:X"), ("algorithm", "evil.py:X"), ("config", {})])
def test_settings_are_those_of_the_algorithm_alone(msrl, stranger, command, field, value):
    """What else a command takes, such as a deployment's fields, does not pass through them."""
    (stranger / "evil.toml").write_text('distribution = "evil.py:X"\n')
    args = say(stranger / "run", command, config={field: value})
    where = "run" if command != "replay" else str(fault_of(stranger / "run"))
    assert msrl(*args[:1], where) == (2, "", f"""\
UsageError: {where} was made with other settings than {'Walk' if command == 'replay' else 'Tiny'} has now.
There is no {field!r} now.
Use the version of the algorithm that the run was made with.
""")
    assert not (stranger / "trace").exists()


def test_a_distribution_in_a_file_is_not_executed(msrl, stranger):
    (stranger / "run" / "deployment.toml").write_text('distribution = "evil.py:X"\n')
    assert msrl("resume", "run") == (2, "", """\
UsageError: The run's distribution is a file, evil.py:X.
You have not named it on this machine, and what only a folder names is not executed.
If you trust it: msrl resume run --distribution evil.py:X
See docs/security.md.
""")
    assert not (stranger / "trace").exists()


@pytest.mark.parametrize("command, flag, value", [
    ("eval", "algorithm", "evil.py:X"), ("resume", "env", "pettingzoo:evil_zoo"),
    ("resume", "distribution", "evil.py:X"), ("eval", "env", "gymnasium:evil_gym:E-v0")])
def test_it_is_executed_if_the_user_says_so(msrl, stranger, command, flag, value):
    """Else the other tests would prove nothing."""
    msrl(command, "run", f"--{flag}", value)
    assert (stranger / "trace").exists()


def test_what_was_named_once_is_known_from_then_on(msrl, stranger):
    """Modules by the file that they are in, so that another one of that name is another one."""
    assert not trust.known("gymnasium:evil_gym:E-v0")
    trust.remember("gymnasium:evil_gym:E-v0", "evil.py:X", "CartPole-v1", "pettingzoo:nowhere")
    assert trust.known("gymnasium:evil_gym:Other-v0") and trust.known("pettingzoo:evil_gym")
    assert trust.known("evil.py:Y")
    assert not trust.known("pettingzoo:evil_zoo") and not trust.known("CartPole-v1")
    assert not trust.known("pettingzoo:nowhere")
    Path("elsewhere").mkdir()
    shutil.copy("evil.py", "elsewhere")
    assert not trust.known("elsewhere/evil.py:X")


def test_a_package_on_the_list_must_be_an_installed_one(stranger, monkeypatch):
    assert trust.is_listed_env("pettingzoo:mpe2.simple_spread_v3")
    monkeypatch.setattr(trust, "PACKAGES", ("evil_zoo",))
    assert not trust.is_listed_env("pettingzoo:evil_zoo")
    assert not trust.is_listed_env("gymnasium:mpe2:E-v0")


def test_nothing_is_connected_to(msrl, stranger):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        (stranger / "run" / "deployment.toml").write_text(f'backend = "ray"\naddress = "{address}"\n')
        assert msrl("resume", "run") == (2, "", f"""\
UsageError: The run was made on a Ray cluster, {address}.
It is the folder that says so, and nothing is connected to because a folder says so.
If you trust it: msrl resume run --address {address}
To go on here instead: msrl resume run --backend threads
See docs/security.md.
""")
        msrl("eval", "run", "--episodes", "1")
        with pytest.raises(BlockingIOError):
            server.accept()


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
            for path in sorted(folder.rglob("*"))}


@pytest.mark.parametrize("name", ["weights", "weights/0", "checkpoints", "checkpoints/0-00000004", "tensorboard",
                                  "metrics.jsonl", "config.json", "deployment.toml", "lease.json", "faults",
                                  "checkpoints/0-00000004/state", "trace.json", "reproduce.sh", "result.json"])
def test_links_that_lead_out_of_the_folder_are_refused(msrl, stranger, sound, name):
    """Both to what there is, which would be written over, and to what there is not, which would be made."""
    shutil.copytree(sound, stranger / "victim")
    before = contents(stranger / "victim")
    for target in ("victim", "nowhere"):
        link = stranger / "run" / name
        shutil.rmtree(link) if link.is_dir() and not link.is_symlink() else link.unlink(missing_ok=True)
        link.symlink_to(stranger / target / name)
        for command in ("eval", "resume"):
            assert msrl(command, "run") == (2, "", f"""\
UsageError: run/{name} leads out of the run folder, to {(stranger / target).resolve() / name}.
What a run reads and writes is inside its folder.
If the folder is yours, move there what the link points to.
See docs/security.md.
""")
    assert contents(stranger / "victim") == before and not (stranger / "nowhere").exists()


@pytest.mark.parametrize("name", ["manifest.json", "state"])
def test_links_in_an_update_that_was_written_down(msrl, stranger, sound, name):
    fault, other = fault_of(stranger / "run"), fault_of(sound)
    shutil.rmtree(fault / name) if name == "state" else (fault / name).unlink()
    (fault / name).symlink_to(other / name)
    code, out, err = msrl("replay", str(fault))
    assert (code, out) == (2, "")
    assert err.splitlines()[0] == f"UsageError: {fault / name} leads out of the run folder, to {other / name}."


def test_a_link_to_the_folder_itself_is_the_users(msrl, stranger):
    Path("latest").symlink_to("run")
    assert msrl("eval", "latest", "--episodes", "1")[0] == 0


def test_nothing_waits_for_a_pipe(msrl, stranger):
    (stranger / "run" / "config.json").unlink()
    os.mkfifo(stranger / "run" / "config.json")
    assert msrl("eval", "run") == (2, "", """\
UsageError: run/config.json is neither a file nor a folder.
A run has nothing else.
Remove it.
See docs/security.md.
""")


def test_commands_that_are_offered_are_safe_to_copy(stranger):
    with pytest.raises(UsageError) as caught:
        trust.resolve("algorithm", "$(rm -rf ~).py:X", None, "msrl eval run")
    assert "If you trust it: msrl eval run --algorithm '$(rm -rf ~).py:X'\n" in str(caught.value)
