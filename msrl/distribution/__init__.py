"""Distribution policies by name."""

import difflib

from msrl.distribution.device_only import DeviceOnly
from msrl.distribution.local import Local
from msrl.distribution.multi_learner import MultiLearner
from msrl.distribution.policy import DistributionPolicy
from msrl.distribution.single_learner_coarse import SingleLearnerCoarse
from msrl.distribution.single_learner_fine import SingleLearnerFine
from msrl.errors import UsageError

DISTRIBUTIONS = {policy.name: policy
                 for policy in (Local, SingleLearnerCoarse, SingleLearnerFine, MultiLearner, DeviceOnly)}


def load(name: str) -> DistributionPolicy:
    if name not in DISTRIBUTIONS:
        near = difflib.get_close_matches(name, DISTRIBUTIONS, 1)
        raise UsageError(f"There is no distribution {name!r}.", why=f"There are {', '.join(DISTRIBUTIONS)}.",
                         instead=f"Did you mean {near[0]}?" if near else "Use one of these.")
    return DISTRIBUTIONS[name]()
