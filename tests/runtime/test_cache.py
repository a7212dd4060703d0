"""Where compiled programs are kept."""

import jax
import pytest

from msrl.runtime import cache


@pytest.fixture
def variables(monkeypatch, tmp_path):
    """None of those that name a folder; JAX's settings are put back."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs",
             "jax_persistent_cache_min_entry_size_bytes")
    before = {name: getattr(jax.config, name) for name in names}
    for name in ("MSRL_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    yield monkeypatch
    for name, value in before.items():
        jax.config.update(name, value)


def test_it_is_in_the_users_cache_folder(variables, tmp_path):
    assert cache.enable() == tmp_path / "msrl" / "xla"
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "msrl" / "xla")
    assert (tmp_path / "msrl" / "xla").is_dir()


def test_it_can_be_elsewhere_or_nowhere(variables, tmp_path):
    variables.setenv("MSRL_CACHE_DIR", str(tmp_path / "mine"))
    assert cache.enable() == tmp_path / "mine" / "xla"
    variables.setenv("MSRL_CACHE_DIR", "off")
    assert cache.enable() is None


def test_what_jax_was_told_stays(variables, tmp_path):
    variables.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "jax"))
    assert cache.enable() is None
    assert not (tmp_path / "msrl").exists()


def test_a_folder_that_cannot_be_made_is_no_reason_to_stop(variables, tmp_path):
    (tmp_path / "file").write_text("")
    variables.setenv("MSRL_CACHE_DIR", str(tmp_path / "file"))
    assert cache.enable() is None
