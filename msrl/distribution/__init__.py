"""Distribution policies: those that come with MSRL by name, one's own by path/to/file.py:Class."""

import difflib

from msrl import loading
from msrl.distribution.central import Central
from msrl.distribution.central_async import CentralAsync
from msrl.distribution.device_only import DeviceOnly
from msrl.distribution.environments import Environments
from msrl.distribution.local import Local
from msrl.distribution.multi_learner import MultiLearner
from msrl.distribution.policy import DistributionPolicy
from msrl.distribution.single_learner_coarse import SingleLearnerCoarse
from msrl.distribution.single_learner_coarse_async import SingleLearnerCoarseAsync
from msrl.distribution.single_learner_fine import SingleLearnerFine
from msrl.errors import UsageError

DISTRIBUTIONS: dict[str, type[DistributionPolicy]] = {
    policy.name: policy for policy in (Local, SingleLearnerCoarse, SingleLearnerCoarseAsync, SingleLearnerFine,
                                       MultiLearner, DeviceOnly, Central, CentralAsync, Environments)}

_FORM = "Write path/to/file.py:PolicyClass."


def load(name: str) -> DistributionPolicy:
    """The policy of a name of the table, or of a file."""
    if loading.in_file(name):
        return loading.from_file(name, DistributionPolicy, _FORM)()  # type: ignore[type-abstract]
    if name not in DISTRIBUTIONS:
        near = difflib.get_close_matches(name, DISTRIBUTIONS, 1)
        raise UsageError(f"There is no distribution {name!r}.", why=f"There are {', '.join(DISTRIBUTIONS)}.",
                         instead=f"Did you mean {near[0]}?" if near else
                         f"Use one of these. For one of your own: {_FORM[0].lower()}{_FORM[1:]}")
    return DISTRIBUTIONS[name]()
