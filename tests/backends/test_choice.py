"""Which backend a deployment gets, and what is said where there is none."""

import sys

import pytest

from msrl.backends.workers import make_backend
from msrl.errors import UsageError
from msrl.pipeline import Deployment, compile
from tests.matrix.loops import LOOPS
from tests.matrix.toys import Corridor


def test_without_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "msrl.backends.ray_backend", raising=False)
    with pytest.raises(UsageError) as caught:
        compile(LOOPS["Plain"], Corridor(), deployment=Deployment("single-learner-coarse", "ray", 1))
    assert str(caught.value) == """\
The ray backend needs Ray, which is not installed.
Ray is an optional extra, since one machine does not need it.
pip install 'msrl[ray]', or use --backend threads."""


def test_a_backend_that_is_not_there():
    program = compile(LOOPS["Plain"], Corridor())
    with pytest.raises(UsageError) as caught:
        make_backend("rays", program.workers, program.placed, program.trainer, program.env, seed=0, seeds=1)
    assert str(caught.value) == """\
There is no backend 'rays'.
The backends are inline, threads and ray.
Use one of these."""
