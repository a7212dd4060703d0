"""What the documentation says is true: its code runs, its links lead somewhere, its tables are those of the code.

A page's ```python blocks are one program: they are written to one file, each at its own line, and run in a folder of
their own. Comments in the line above a block ask for more or less:

    <!-- not run -->                       pseudo-code, which is left out
    <!-- output -->                        a text block that the page's program prints (file names and lines apart)
    <!-- source: module:Class.method -->   the block is that method's source

Tables of settings and blocks of source are written anew by `pytest tests/test_docs.py --update-golden`.
"""

import ast
import dataclasses
import importlib
import inspect
import itertools
import re
import runpy
import sys
import textwrap
from pathlib import Path

import jax
import pytest

from msrl import algorithms
from msrl.cli.deploying import DeploymentOptions
from msrl.cli.options import EvalOptions, GraphOptions, NewOptions, TrainOptions, VerifyOptions
from msrl.frontend import complaints
from msrl.results import Result

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^(?:<!-- (?P<mark>[^\n]*) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
EXAMPLES = {"reinforce": "2048", "reward_shaping": "16384", "my_env": "2048", "debug_eager": "",
            "own_distribution": "512"}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@dataclasses.dataclass(frozen=True)
class Block:
    kind: str
    mark: str
    text: str
    line: int  # of its first line, from 0


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [Block(found["kind"], found["mark"] or "", found["text"], text.count("\n", 0, found.start("text")))
            for found in FENCE.finditer(text)]


def program(page: Path) -> str:
    """The page's Python, every line where it stands in the page, so that a traceback leads there."""
    lines = [""] * (page.read_text().count("\n") + 1)
    for block in blocks(page):
        if block.kind == "python" and block.mark != "not run" and not block.mark.startswith("source:"):
            body = block.text.splitlines()
            lines[block.line:block.line + len(body)] = body
    return "\n".join(lines).strip("\n") and "\n".join(lines) + "\n"


def placeless(text: str) -> str:
    """Without file names, line numbers and what differs in blanks at the ends of lines."""
    text = re.sub(r"\S+\.py:\d+", "FILE:LINE", text)
    return re.sub(r"[ \t]+$", "", re.sub(r"^ *\d+ \|", "LINE |", text, flags=re.M), flags=re.M)


@pytest.fixture(autouse=True)
def quick_compilation(monkeypatch):
    """What is asked here is whether code runs; nobody waits for it to run fast."""
    monkeypatch.setenv("MSRL_CACHE_DIR", "off")  # the tests have a cache of their own
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.mark.parametrize("page", [page for page in PAGES if program(page)], ids=name)
def test_code_of_a_page_runs_and_prints_what_it_says(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [page.stem])
    file = tmp_path / f"{page.stem}.py"
    file.write_text(program(page))
    runpy.run_path(str(file), run_name="__main__")
    printed = placeless(capsys.readouterr().out)
    for block in blocks(page):
        if block.mark == "output":
            assert placeless(block.text) in printed, f"{name(page)}:{block.line + 1} is not what the page prints"


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_runs(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [example, *EXAMPLES[example].split()])
    runpy.run_path(str(ROOT / "examples" / f"{example}.py"), run_name="__main__")
    assert capsys.readouterr().out


def test_every_example_is_run():
    assert {file.stem for file in (ROOT / "examples").glob("*.py")} == set(EXAMPLES)


def test_readme_has_the_two_commands():
    shell = [line for block in blocks(ROOT / "README.md") if block.kind in ("bash", "sh") for line in
             block.text.splitlines()]
    assert {"make train", "make test"} <= {line.partition("#")[0].strip() for line in shell}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    text = FENCE.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{name(page)} links to {target}"
        if anchor:
            assert anchor in anchors(file), f"{name(page)} links to {target}"


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_pages_that_the_code_mentions_exist():
    mentioned = {(path, file) for file in (ROOT / "msrl").rglob("*.py")
                 for path in re.findall(r"docs/[\w/.-]+\.md", file.read_text())}
    assert mentioned, "error messages point to the documentation"
    for path, file in mentioned:
        assert (ROOT / path).is_file(), f"{file.relative_to(ROOT)} mentions {path}"


# -- tables that repeat what the code says ---------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", algorithms.ALGORITHMS)
def test_settings_are_in_a_table_with_their_defaults(algorithm, update_golden):
    page = ROOT / "docs" / "algorithms" / f"{algorithm}.md"
    config = algorithms.load(algorithm).Config
    meanings = {name: text for each in reversed(config.__mro__) if dataclasses.is_dataclass(each)
                for name, text in field_docs(each).items()}
    rows = "".join(f"| `{field.name}` | `{field.default!r}` | {meanings[field.name]} |\n"
                   for field in dataclasses.fields(config))
    text = page.read_text()
    head, title, rest = text.partition("| setting | default | meaning |\n|---|---|---|\n")
    assert title, "the page has a table of settings"
    found = re.match(r"(\|.*\n)*", rest)[0]
    if update_golden:
        page.write_text(head + title + rows + rest.removeprefix(found))
        return
    assert found == rows


def field_docs(config: type) -> dict[str, str]:
    """The text below each field of a dataclass."""
    body = ast.parse(textwrap.dedent(inspect.getsource(config))).body[0].body
    return {field.target.id: " ".join(text.value.value.split()) for field, text in itertools.pairwise(body)
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)}


@pytest.mark.parametrize("options, section", [(TrainOptions, "msrl train"), (EvalOptions, "msrl eval"),
                                              (GraphOptions, "msrl graph"), (VerifyOptions, "msrl verify"),
                                              (NewOptions, "msrl new"), (DeploymentOptions, "Deployments")])
def test_flags_are_on_the_page_of_the_command_line(options, section):
    page = (ROOT / "docs" / "command-line.md").read_text()
    text = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    flags = {f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(options)
             if "Positional" not in str(field.type)}
    assert set(re.findall(r"^\| `(--[\w-]+)` \| ", text, re.M)) == flags


def test_fields_of_a_result_are_on_the_page_of_the_command_line():
    page = (ROOT / "docs" / "command-line.md").read_text()
    text = page.partition("\n## JSON\n")[2].partition("\n## ")[0]
    rows = "".join(re.findall(r"^\| (`.*?`) \| ", text, re.M))
    fields = {field.name for field in dataclasses.fields(Result)} - {"params", "curve"}  # which are not in the JSON
    assert set(re.findall(r"`(\w+)`", rows)) == fields


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_sources_are_those_of_the_code(page, update_golden):
    for block in blocks(page):
        if block.mark.startswith("source:"):
            module, _, path = block.mark.removeprefix("source:").strip().partition(":")
            found = importlib.import_module(module)
            for part in path.split("."):
                found = getattr(found, part)
            source = textwrap.dedent(inspect.getsource(found))
            if update_golden:
                page.write_text(page.read_text().replace(block.text, source))
            else:
                assert block.text == source, f"{name(page)}:{block.line + 1}"


def test_what_the_front_end_rejects_is_on_its_page():
    page = (ROOT / "docs" / "loop-language.md").read_text()
    tables = (complaints.STATEMENTS, complaints.EXPRESSIONS, complaints.AROUND_INTERACTIONS)
    for complaint in (*(each for table in tables for each in table.values()), complaints.LAMBDA):
        assert f"| {complaint.what} | {complaint.instead} |" in page, complaint.what


def test_nodes_of_the_graph_have_a_row():
    page = (ROOT / "docs" / "ir.md").read_text()
    tree = ast.parse((ROOT / "msrl" / "ir" / "graph.py").read_text())
    kinds = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    assert kinds == set(re.findall(r"^\| `(\w+)` \| ", page, re.M))
