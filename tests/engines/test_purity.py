"""Components that depend on more than their arguments are refused, with messages asserted whole; the others are not."""

import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from msrl.algorithms import ALGORITHMS
from msrl.cli.main import main
from msrl.engines.purity import Purity
from msrl.errors import PurityError, PurityWarning
from msrl.pipeline import compile
from tests.engines.pure_toys import Toy, Zeros, zeros
from tests.matrix.toys import Corridor
from tests.programs import Entry, read_table

TABLE = read_table(Path(__file__).with_name("purity_errors.txt"))
EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = dict(num_envs=4, shards=2)
OURS = {"ppo": "CartPole-v1", "a2c": "Pendulum-v1", "a3c": "Acrobot-v1", "impala": "CartPole-v1", "dqn": "CartPole-v1",
        "sac": "Pendulum-v1", "mappo": "simple_spread"}


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.name.replace(" ", "-"))
def test_message(entry: Entry, tmp_path, monkeypatch, update_golden):
    cls = entry.load(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PurityError) as caught:
        compile(cls, cls.Env(), num_envs=4)
    found = f"{caught.value}\n"
    if update_golden:
        entry.update(found)
    else:
        assert found == entry.expected


@pytest.mark.parametrize("name", OURS)
def test_algorithms_are_pure(name):
    program = compile(name, OURS[name], **SMALL)
    Purity(program.ops).check(program.shapes.tabular, always=True)


@pytest.mark.parametrize(("file", "env"), [
    ("reinforce.py:Reinforce", "CartPole-v1"), ("reward_shaping.py:ShapedPPO", "CartPole-v1"),
    ("reinforce.py:Reinforce", EXAMPLES / "my_env.py")], ids=lambda each: Path(str(each)).name)
def test_examples_are_pure(file, env):
    env = f"{env}:Lake" if isinstance(env, Path) else env
    program = compile(f"{EXAMPLES / file}", env, **SMALL)
    assert program.purity.authored


def test_all_algorithms_are_here():
    assert set(OURS) == set(ALGORITHMS)


class Lazy(Zeros):
    """Makes a constant when it is first needed, which changes nothing of what is computed."""

    table = None

    def act(self, weights, key, obs):
        if self.table is None:
            self.table = np.arange(4, dtype=np.float32)
        return zeros(obs, jnp.full(obs.shape[:1], self.table[2]))


def test_a_constant_that_is_kept_is_no_error():
    assert run(Lazy) == [2, 2, 2, 2]


class Seeded(Zeros):
    def act(self, weights, key, obs):
        return zeros(obs, jnp.full(obs.shape[:1], np.random.default_rng(7).random()))


def test_a_generator_with_a_seed_is_no_error():
    assert len(set(run(Seeded))) == 1


def run(actor: type) -> list[float]:
    program = compile(type("T", (Toy,), {"Actor": actor}), Corridor(), num_envs=4, strict=True)
    return [row["x"] for row in program.interpret()[1]]


class Counting(Zeros):
    calls = 0

    def act(self, weights, key, obs):
        self.calls += 1
        return super().act(weights, key, obs)


class Timed(Zeros):
    def act(self, weights, key, obs):
        late = int(time.time()) < 0
        return zeros(obs, jnp.full(obs.shape[:1], float(late)))


ONCE = ("{} while it is traced. Python runs once, while the loop is being compiled: it is {} then, and not when the "
        "loop runs. See docs/loop-language.md#components-are-pure.")


@pytest.mark.parametrize(("actor", "said"), [
    (Counting, ONCE.format("`Counting.act` changes `self.calls`", "changed")),
    (Timed, ONCE.format("`Timed.act` calls `time.time`", "called"))])
def test_what_the_program_does_not_depend_on_is_a_warning(actor, said):
    with pytest.warns(PurityWarning) as caught:
        compile(type("T", (Toy,), {"Actor": actor}), Corridor(), num_envs=4)
    assert [str(warning.message) for warning in caught] == [said]
    line = Path(__file__).read_text().splitlines()[caught[0].lineno - 1]
    assert Path(caught[0].filename).name == Path(__file__).name and ("self.calls += 1" in line or "time.time()" in line)


RATE = 0.5


class Reads(Zeros):
    scale = 1.0

    def act(self, weights, key, obs):
        return zeros(obs, jnp.full(obs.shape[:1], RATE * self.scale))


CHANGED = """`{}` has changed since the program was compiled.
`Reads.act` was compiled with what it was then.
Set it before `msrl.compile`, or compile again.
See docs/loop-language.md#components-are-pure."""


@pytest.mark.parametrize("use", [lambda p: list(p.run()), lambda p: p.interpret(), lambda p: p.eager()],
                         ids=["run", "interpret", "eager"])
def test_what_changes_between_compiling_and_running(use, monkeypatch):
    program = compile(type("T", (Toy,), {"Actor": Reads}), Corridor(), num_envs=4, strict=True)
    monkeypatch.setattr(f"{__name__}.RATE", 0.7)
    with pytest.raises(PurityError) as caught:
        use(program)
    assert str(caught.value) == CHANGED.format("RATE")


def test_an_attribute_that_changes_between_compiling_and_running():
    program = compile(type("T", (Toy,), {"Actor": Reads}), Corridor(), num_envs=4)
    program.world.agent.actor.scale = 3.0
    with pytest.raises(PurityError) as caught:
        list(program.run())
    assert str(caught.value) == CHANGED.format("self.scale")


def test_what_changes_during_the_run():
    program = compile(type("T", (Toy,), {"Actor": Reads}), Corridor(), num_envs=4)
    with pytest.warns(PurityWarning, match="`self.scale` was changed during the run, which had no effect: `Reads.act` "
                                           "was compiled before"):
        for _ in program.run():
            program.world.agent.actor.scale = 3.0


COMMANDS = [("graph",), ("verify", "--updates", "1"), ("train",)]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_every_command_refuses_them(command, tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(next(entry.source for entry in TABLE if entry.name == "a counter"))
    monkeypatch.chdir(tmp_path)
    assert main([command[0], "mine.py:T", "--env", "CartPole-v1", *command[1:]]) == 2
    assert capsys.readouterr().err.startswith(
        "PurityError: `A.act` changes `self.n`, which it depends on.\n\n  mine.py:10\n")
