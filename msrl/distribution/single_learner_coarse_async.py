"""single-learner-coarse-async: as single-learner-coarse, first come, first served.

Actors run until the learner is done, with the newest weights there are; the learner takes the trajectories that arrive
first. A trajectory more than `max_lag` updates old is dropped. IMPALA is built like this.
"""

from msrl.distribution.single_learner_coarse import SingleLearnerCoarse


class SingleLearnerCoarseAsync(SingleLearnerCoarse):
    name = "single-learner-coarse-async"
    summary = "As single-learner-coarse, first come first served; staleness is bounded by max_lag."
    asynchronous = True
