"""Slow imports go on in the background, from when they are told to until the run ends."""

import threading

import pytest

from msrl.runtime import preload
from msrl.runtime.preload import MODULES, Preload


@pytest.fixture
def imported(monkeypatch):
    found = []
    monkeypatch.setattr(preload, "late", found.append)
    return found


def test_nothing_is_imported_before_it_is_told(imported):
    with Preload():
        pass
    assert imported == []


def test_all_is_imported_once_and_before_the_end(imported):
    with Preload() as loading:
        loading.begin()
        loading.begin()
    assert imported == list(MODULES)


def test_the_end_waits(monkeypatch):
    go_on, done = threading.Event(), []

    def slow(name):
        assert go_on.wait(30)
        done.append(name)

    monkeypatch.setattr(preload, "late", slow)
    with Preload() as loading:
        loading.begin()
        assert done == []
        go_on.set()
    assert done == list(MODULES)


def test_a_run_without_a_folder_wants_none(imported):
    with Preload(wanted=False) as loading:
        loading.begin()
    assert imported == []
