"""central-async: as central, first come, first served.

No learner waits for another: its gradient is applied when it comes, to the parameters as the others have left them. One
that is more than `max_lag` steps old is dropped. A3C is built like this.
"""

from msrl.distribution.central import Central


class CentralAsync(Central):
    name = "central-async"
    summary = "As central, first come first served; staleness is bounded by max_lag."
    asynchronous = True
