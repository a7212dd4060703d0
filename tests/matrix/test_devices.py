"""On several devices a program gives what it gives on one: device-only, and multi-learner with a device for each
instance, on virtual devices of the CPU.

JAX makes its devices once per process, so these tests run in one of their own.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
import jax
import numpy as np
from msrl.engines.group import devices_of_all
from msrl.pipeline import Deployment, compile
from tests.matrix.comparing import plain
from tests.matrix.loops import LOOPS
from tests.matrix.toys import Corridor

names, devices, shards = sys.argv[1].split(","), int(sys.argv[2]), int(sys.argv[3])
assert len(jax.devices()) >= devices
# Of a process's devices, as many as its learners can be divided among evenly.
assert [len(devices_of_all(learners)) for learners in (1, devices, 2 * devices)] == [1, devices, devices]


def run(trainer, env, deployment=Deployment(), **settings):
    program = compile(trainer, env, deployment=deployment, **settings)
    metrics = [update.metrics for update in program.run()]
    return program, metrics


def same(trainer, env, tolerance, apart, **settings):
    one, wanted = run(trainer, env, **settings)
    many, found = run(trainer, env, Deployment("device-only", "inline", learners=devices), **settings)
    spread = {len(leaf.sharding.device_set) for leaf in jax.tree.leaves(many.resources["$env"])}
    assert spread == {devices}, spread
    compare(one, wanted, many, found, one.resources.keys() - {"$metrics"}, tolerance)
    if not apart:
        return
    many, found = run(trainer, env, Deployment("multi-learner", "threads", learners=devices), **settings)
    spread = [set.union(*(leaf.devices() for leaf in jax.tree.leaves(worker.resources["$weights"])))
              for worker in many.workers]
    if many.shapes.learns:
        assert spread == [{device} for device in jax.devices()[:devices]], spread
    compare(one, [], many, [], {"$learner", "$weights"}, tolerance)  # its looks are at other passes of a while loop


def compare(one, wanted, many, found, names, tolerance):
    for name in names:
        pairs = zip(jax.tree.leaves(one.resources[name]), jax.tree.leaves(many.resources[name]), strict=True)
        for a, b in pairs:
            np.testing.assert_allclose(plain(b), plain(a), rtol=tolerance, atol=tolerance, err_msg=name)
    assert len(wanted) == len(found)
    for a, b in zip(wanted, found):
        np.testing.assert_allclose([b[name] for name in a], list(a.values()), rtol=tolerance, atol=tolerance)


for name in names:
    apart = name == names[0]  # with a program for each device, too, which takes as long again to compile
    if name in LOOPS:
        same(LOOPS[name], Corridor(), 0.0, apart, num_envs=shards, shards=shards, learner_shards=devices)
    else:
        same(name, "CartPole-v1", 1e-4, apart, num_envs=16, shards=shards, learner_shards=devices, rollout=4,
             total_steps=256, epochs=2, minibatches=2, hidden=(8,))
    print("same", name)
"""


@pytest.mark.parametrize("names, devices, shards", [
    ("ppo,Branches,Components", 2, 4),
    ("Counters,Rated", 4, 4),
])
def test_several_devices_as_one(names, devices, shards):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    done = subprocess.run([sys.executable, "-c", SCRIPT, names, str(devices), str(shards)], cwd=ROOT, text=True,
                          capture_output=True, env={**os.environ, "XLA_FLAGS": flags, "PJRT_NPROC": str(2 * devices)})
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:-1] == [f"same {name}" for name in names.split(",")]
