"""Pins what strict mode pins before JAX is imported, and lets repeated runs find compiled programs on disk.

`pytest --update-golden` writes the expected parts of the golden files (tests/golden, tests/frontend/*.txt) anew; read
the difference before committing it.
"""

import gc
import importlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.load_profile("ci")  # the same examples in every run, however long one takes

CACHE_BYTES = 400 * 2**20
SLOW = ("test_ray_backend.py", "test_devices.py", "test_remote.py", "test_agents.py", "test_cluster.py",
        "test_accounts.py", "test_placements.py", "test_algorithms.py", "test_sanity.py", "test_docs.py")

OPTIMISED = ("learning", "test_floats.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")


def pytest_configure(config: pytest.Config) -> None:
    os.environ["PJRT_NPROC"] = "1"
    flags = os.environ.get("XLA_FLAGS", "")
    if platform.machine() in ("x86_64", "AMD64") and "xla_cpu_max_isa" not in flags:
        flags += " --xla_cpu_max_isa=AVX2"
    # Most tests compile more than they compute: XLA's older code generator takes two thirds of the newer one's time.
    # Those that compute have optimisations all the same, see `optimised`; test_verify_command.py has what users have.
    haste = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    os.environ["XLA_FLAGS"] = f"{flags} {haste}".strip()
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    kept = os.environ.get("MSRL_TEST_CACHE")
    folder = Path(kept) if kept else config.cache.mkdir("jax") if config.cache else Path(".cache/jax")
    keep_small(folder)
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")  # below, reading takes as long
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")
    gc.set_threshold(20_000, 20, 50)  # JAX keeps what it traced: to search it as often as Python would takes minutes


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take minutes go first, so that no process is left with one of them at the end."""
    items.sort(key=lambda item: not str(item.path).endswith(SLOW))


def keep_small(folder: Path) -> None:
    """Removes the oldest programs beyond CACHE_BYTES."""
    room = CACHE_BYTES
    for file in sorted(folder.glob("*"), key=lambda file: file.stat().st_mtime, reverse=True):
        room -= file.stat().st_size
        if room < 0:
            file.unlink(missing_ok=True)


@pytest.fixture(autouse=True)
def optimised(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where a test is about rounding, or computes for long, programs are optimised as users have them."""
    if not any(each in OPTIMISED for each in (request.path.name, request.path.parent.name)):
        yield
        return
    jax = importlib.import_module("jax")
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return request.config.getoption("--update-golden")
