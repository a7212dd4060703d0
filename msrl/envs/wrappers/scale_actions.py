"""ScaleActions: actions in [-1, 1] become actions between the environment's bounds; what lies outside is clipped."""

from dataclasses import replace
from typing import Any

import numpy as np

from msrl.api.env import Env
from msrl.api.spaces import Box
from msrl.envs.wrappers.base import Wrapper
from msrl.errors import EnvError


class ScaleActions(Wrapper):
    def __init__(self, env: Env):
        super().__init__(env)
        space = env.spec.action
        if not (isinstance(space, Box) and np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise EnvError(
                f"ScaleActions cannot wrap {env.spec.id}, whose actions are {space}.",
                why="It maps [-1, 1] to the bounds of a Box, which must be finite.",
                instead="Leave the wrapper out for this environment.",
            )
        self._low, self._high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
        self.spec = replace(env.spec, action=Box(space.shape, -1.0, 1.0))

    def on_action(self, action: Any) -> Any:
        middle, half = (self._low + self._high) / 2, (self._high - self._low) / 2
        return self.xp.clip(middle + half * action, self._low, self._high)

    def rewrap(self, env: Env) -> Env:
        return ScaleActions(env)
