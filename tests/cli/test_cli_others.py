"""`msrl graph`, `msrl list`, `msrl new`, and importing the package."""

import gc
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import msrl as package
from msrl.algorithms import ALGORITHMS
from msrl.cli import main
from msrl.distribution import DISTRIBUTIONS
from msrl.envs import list_envs
from msrl.ir import json_form, text
from tests.cli.conftest import TINY

GRAPH = ("graph", f"{TINY}:Tiny", "--env", "CartPole-v1", "--total-steps", "96")


def test_the_text_of_a_graph_parses_back(msrl):
    code, out, err = msrl(*GRAPH)
    assert (code, err) == (0, "")
    graph = package.compile(f"{TINY}:Tiny", "CartPole-v1", total_steps=96).graph
    assert text.parse(out) == graph
    assert "for _.1 in 0, 3, 1 {" in out


def test_the_json_of_a_graph_reads_back(msrl):
    code, out, _ = msrl(*GRAPH, "--format", "json")
    assert code == 0
    graph = package.compile(f"{TINY}:Tiny", "CartPole-v1", total_steps=96).graph
    back = json_form.from_json(json.loads(out))
    assert back == graph
    assert back.nodes[-1].span == graph.nodes[-1].span  # which equality leaves out


def test_a_graph_as_a_flowchart(msrl):
    code, out, _ = msrl(*GRAPH, "--format", "mermaid")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "flowchart TD"
    names = dict(line.strip().rstrip("]").split("[") for line in lines if "[" in line and "subgraph" not in line)
    titles = {name: title.strip('"') for name, title in names.items()}
    arrows = {(titles[line.split()[0]], line.split()[1], titles[line.split()[-1]]) for line in lines if ">" in line}
    assert arrows == {
        ("env.init", "-.->|env|", "env.reset"), ("env.reset", "-.->|env|", "env.step"),
        ("env.step", "-.->|env|", "env.step"), ("env.reset", "-->|obs|", "actor.act"),
        ("env.step", "-->|obs|", "actor.act"), ("learner.init", "-.->|weights|", "actor.act"),
        ("learner.learn", "-.->|weights|", "actor.act"), ("actor.act", "-->|agent_act_.action|", "env.step"),
        ("env.step", "-->|obs|", "learner.learn"), ("learner.init", "-.->|learner|", "learner.learn"),
        ("learner.learn", "-.->|learner|", "learner.learn"), ("learner.learn", "-->", "metrics.report"),
    }
    assert [line.split('"')[1] for line in lines if "subgraph" in line] == ["for _ in 0, 3, 1", "for _ in 0, 8, 1"]


def test_the_lists_have_all_there_is(msrl):
    code, out, err = msrl("list")
    assert (code, err) == (0, "")
    first = [line.split()[0] for line in out.splitlines() if line.startswith("  ")]
    assert first == [*ALGORITHMS, "<path>.py:<Class>", *(name for name, _ in list_envs()), *DISTRIBUTIONS,
                     "<path>.py:<Class>"]


def test_a_new_algorithm_trains(msrl):
    code, out, err = msrl("new", "mine.py", "--name", "Mine")
    assert (code, err) == (0, "")
    assert out == "Wrote mine.py. Train it:\n\n  msrl train mine.py:Mine --env CartPole-v1\n"
    assert "MyAlgo" not in Path("mine.py").read_text()
    code, out, err = msrl("train", "mine.py:Mine", "--env", "CartPole-v1", "--total-steps", "40000", "--json",
                          "--eval-episodes", "20", "--run-dir", "run")
    assert code == 0, err
    assert json.loads(out.splitlines()[-1])["eval_return_mean"] > 60  # a random policy has 20


def test_new_writes_over_nothing(msrl):
    Path("mine.py").write_text("precious = True\n")
    assert msrl("new", "mine.py") == (2, "", """\
UsageError: mine.py exists already.
Nothing is ever written over.
Name another file, or remove this one.
""")
    assert Path("mine.py").read_text() == "precious = True\n"


def test_new_refuses_names_that_cannot_be(msrl):
    assert msrl("new", "mine.txt")[::2] == (2, "UsageError: mine.txt is not the name of a Python file.\n"
                                               "Write: msrl new mine.py\n")
    assert msrl("new", "mine.py", "--name", "2fast")[::2] == (
        2, "UsageError: '2fast' cannot be the name of a class.\nUse letters, digits and underscores.\n")
    assert msrl("new", "no/where.py")[::2] == (2, "UsageError: There is no folder no.\nMake it first: mkdir -p no\n")
    assert not list(Path().iterdir())


def test_importing_the_package_does_not_wait_for_jax():
    program = "import sys, msrl, msrl.cli.main; print('jax' in sys.modules, msrl.__version__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    project = tomllib.loads((Path(package.__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert done.stdout.split() == ["False", project["version"]]


def test_collection_is_off_while_a_command_is_imported_and_on_afterwards(monkeypatch):
    seen = []
    monkeypatch.setattr(main.importlib, "import_module", lambda name: seen.append((name, gc.isenabled())))
    main.load("msrl.cli.lists")
    assert seen == [("msrl.cli.lists", False)] and gc.isenabled()


def test_only_a_process_that_ends_leaves_its_garbage(monkeypatch, capsys):
    monkeypatch.setattr(main.sys, "argv", ["msrl", "no-such-command"])
    frozen = []
    monkeypatch.setattr(main.gc, "freeze", lambda: frozen.append(capsys.readouterr().err))
    assert main.main(["no-such-command"]) == 2 and frozen == []
    capsys.readouterr()
    assert main.main() == 2
    assert len(frozen) == 1 and frozen[0].startswith("UsageError: There is no command 'no-such-command'.")
