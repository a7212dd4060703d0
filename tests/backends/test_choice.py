"""What is said where a backend is not there."""

import sys

import pytest

from msrl.errors import UsageError
from msrl.pipeline import Deployment, compile
from tests.matrix.loops import LOOPS
from tests.matrix.toys import Corridor


def test_without_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError) as caught:
        compile(LOOPS["Plain"], Corridor(), deployment=Deployment("single-learner-coarse", "ray", 1))
    assert str(caught.value) == """\
The backend ray needs Ray, which is not installed.
It is an extra, since the other backends do without it.
Install it: pip install 'msrl[ray]'. Or use --backend threads.
See docs/distributions.md."""


def test_a_backend_that_is_not_there():
    with pytest.raises(UsageError) as caught:
        compile(LOOPS["Plain"], Corridor(), deployment=Deployment("single-learner-coarse", "rays", 1))
    assert str(caught.value) == """\
There is no backend 'rays'.
There are inline, threads, ray.
Did you mean ray?
See docs/distributions.md."""
