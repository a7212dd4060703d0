"""The order of the layers, read from the imports.

A package imports only packages before it in ORDER. The compiler's parts import neither JAX nor Ray, so that their tests
run in seconds; algorithms know nothing of where or how they run.
"""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MSRL = ROOT / "msrl"
FILES = sorted(MSRL.rglob("*.py"))

ORDER = ("errors", "tracebacks", "synonyms", "loading", "ir", "rl", "api", "frontend", "distribution", "passes",
         "deployment", "feasibility", "projection", "engines", "runtime", "backends", "planner", "leaves", "trust",
         "pipeline", "debugging", "comparing", "sizing", "verifying", "playing", "elastic", "jobs", "announcing",
         "results", "faults", "running", "resuming", "training", "cli")
LEAVES = ("algorithms", "envs", "buffers")
LEAVES_MAY = {"api", "rl", "errors", "tracebacks", "synonyms", "loading"}
ALGORITHMS_MAY = {"buffers", "envs.wrappers"}
COMPILER = ("tracebacks", "synonyms", "loading", "ir", "frontend", "distribution", "deployment", "feasibility",
            "passes", "projection")
EXTRAS = {"envpool", "pettingzoo", "mpe2", "mujoco"}  # optional: imported where they are used
SLOW = {"matplotlib", "orbax", "tensorboardX"}  # to import, and needed at a run's end only

# What an algorithm has no business with: where it runs, on what, and who watches.
WORDS = ("pmap", "pmean", "psum", "all_gather", "axis_name", "axis_index", "shard_map", "device", "devices",
         "device_put", "mesh", "shard", "shards", "sharding", "worker", "workers", "thread", "threads", "process",
         "fragment", "fragments", "distributed", "distribution_policy", "ray", "send", "recv", "channel", "jit",
         "io_callback", "print", "logging", "logger", "tensorboard", "wandb", "checkpoint", "open", "time")


@cache
def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def package(file: Path) -> str:
    return file.relative_to(MSRL).parts[0].removesuffix(".py")


def layer(name: str) -> str:
    return "leaves" if name in LEAVES else name


def imports(tree: ast.AST) -> list[tuple[str, ast.stmt]]:
    """(module, statement) for every import. `from msrl import envs` names msrl.envs."""
    found: list[tuple[str, ast.stmt]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            module = node.module or ""
            found += [(f"msrl.{alias.name}", node) for alias in node.names] if module == "msrl" else [(module, node)]
    return found


def inside_functions(tree: ast.AST) -> set[ast.AST]:
    return {inner for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            for inner in ast.walk(node) if isinstance(inner, (ast.Import, ast.ImportFrom))}


def name_of(file: Path) -> str:
    return str(file.relative_to(ROOT))


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_imports_only_what_is_above(file):
    own = package(file)
    if own == "__init__":
        return  # msrl itself offers what all the others have
    assert layer(own) in ORDER, f"{own} has no place in the order of the layers"
    for module, _ in imports(parse(file)):
        if not module.startswith("msrl."):
            continue
        other = module.split(".")[1]
        if other == own:
            continue
        if own in LEAVES:
            allowed = other in LEAVES_MAY or (own == "algorithms" and any(
                module.startswith(f"msrl.{each}") for each in ALGORITHMS_MAY))
            assert allowed, f"{name_of(file)} imports {module}"
        else:
            assert ORDER.index(layer(other)) < ORDER.index(own), f"{name_of(file)} imports {module}"


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_imports_at_the_top(file):
    if package(file) in ("cli", "__init__"):
        return
    tree = parse(file)
    hidden = inside_functions(tree)
    found = [module for module, node in imports(tree) if node in hidden and module.split(".")[0] not in EXTRAS | SLOW]
    assert not found, f"{name_of(file)} imports {', '.join(found)} inside a function"


def test_ray_is_imported_in_one_place():
    users = [name_of(file) for file in FILES
             if any(module.split(".")[0] == "ray" for module, _ in imports(parse(file)))]
    assert len(users) <= 1, users


@pytest.mark.parametrize("file", [file for file in FILES if package(file) in COMPILER], ids=name_of)
def test_compiler_knows_neither_jax_nor_ray(file):
    outside = {module.split(".")[0] for module, _ in imports(parse(file))} - {"msrl"}
    assert outside <= set(sys.stdlib_module_names), f"{name_of(file)} imports {outside}"


def test_compiler_loads_neither_jax_nor_ray():
    modules = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in FILES
               if package(file) in COMPILER and file.name != "__init__.py"]
    program = f"import sys, {', '.join(modules)}; print(*sorted({{'jax', 'ray', 'numpy'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("file", [file for file in FILES if package(file) == "algorithms"], ids=name_of)
def test_algorithms_are_short_and_know_nothing_of_where_they_run(file):
    text = file.read_text()
    assert len(text.splitlines()) < 200
    if file.name == "__init__.py":
        return  # the table of names, which opens files
    code = without_strings(text)
    found = {word for word in WORDS if re.search(rf"\b{word}\b", code)}
    assert not found, f"{name_of(file)} says {', '.join(sorted(found))}"


def without_strings(code: str) -> str:
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.unparse(tree)

