"""device-only: everything on every device, as one compiled program; the learners agree on every gradient within it.

As multi-learner, but nothing ever leaves the devices: it takes environments written in JAX. Anakin and WarpDrive are
built like this.
"""

from msrl.distribution.multi_learner import MultiLearner


class DeviceOnly(MultiLearner):
    name = "device-only"
    summary = "Everything on every device in one compiled program; learners average every gradient within it."
    traceable_only = True
    device_each = True
