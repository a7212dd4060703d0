"""Among several devices each learns from a part of the batch, drawn there or cut there; what is not finite in one
device's part is not kept by any.

JAX makes its devices once per process, so this runs in one of its own.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = """
import numpy as np
from msrl.errors import NonFiniteError
from msrl.pipeline import Deployment, compile
from tests.finite.spoiling import Ditch, Drawn, Walk

for trainer, rows in ((Walk, (4, 2)), (Drawn, (16,))):
    for mode in ("stop", "skip"):
        program = compile(trainer, Ditch(10), deployment=Deployment("device-only", "inline", learners=2), shards=2,
                          learner_shards=2, non_finite=mode)
        try:
            *_, update = program.run()
        except NonFiniteError as error:
            batch = error.fault.batches[-1][0]
            assert batch.reward.shape == rows, batch.reward.shape
            assert np.isnan(batch.reward).any() and np.isfinite(error.fault.state.params["w"]).all()
            print(trainer.__name__, mode, error.fault.update, *error.fault.names)
        else:
            assert np.isfinite(program.resources["$learner"].params["w"]).all()
            print(trainer.__name__, mode, update.updates_skipped >= 1)
"""


def test_a_part_that_is_not_finite_is_not_kept():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, text=True, capture_output=True,
                          env={**os.environ, "XLA_FLAGS": flags, "PJRT_NPROC": "4"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["Walk stop 3 batch.reward metrics.loss params/w", "Walk skip True",
                                        "Drawn stop 3 batch.reward metrics.loss params/w", "Drawn skip True"]
