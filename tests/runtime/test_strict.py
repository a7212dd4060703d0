"""Strict mode's surroundings."""

import os

import jax
import pytest

from msrl.errors import UsageError
from msrl.runtime import strict


@pytest.fixture
def surroundings(monkeypatch):
    for name in ("PJRT_NPROC", "XLA_FLAGS"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_it_is_pinned_once_all_is_set(surroundings):
    surroundings.setattr(strict.xla_bridge, "backends_are_initialized", lambda: False)
    surroundings.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    assert not strict.pinned()
    strict.pin()
    assert strict.pinned()
    assert os.environ["PJRT_NPROC"] == "1"
    flags = os.environ["XLA_FLAGS"].split()
    assert flags[0] == "--xla_force_host_platform_device_count=2"  # what was there stays
    assert set(flags[1:]) == {f"{name}={value}" for name, value in strict.FLAGS.items()}
    strict.pin()
    assert os.environ["XLA_FLAGS"].split() == flags


def test_a_backend_that_runs_cannot_be_pinned(surroundings):
    jax.devices()
    with pytest.raises(UsageError) as caught:
        strict.pin()
    settings = " ".join(f"{name}={value}" for name, value in strict.FLAGS.items())
    assert str(caught.value) == f"""\
Strict mode cannot begin in this process.
JAX already runs with other settings, and the number of threads and the instruction set are fixed once it has started.
Start the process anew with: PJRT_NPROC=1 XLA_FLAGS="{settings}\""""
    assert "PJRT_NPROC" not in os.environ


def test_the_record_says_what_bits_depend_on(surroundings):
    surroundings.setenv("PJRT_NPROC", "2")
    assert strict.record() == {
        "pinned": False, "PJRT_NPROC": "2", "XLA_FLAGS": "", "machine": os.uname().machine,
        "platform": jax.default_backend(), "jaxlib": jax.lib.__version__}
