"""FrameStack: the last `num` observations as one, along the last axis, oldest first.

Vectors (O,) become (num * O,), images (H, W, C) become (H, W, num * C). An episode starts with its first observation
`num` times over, so no stack ever mixes two episodes: a final observation is stacked on the old episode's frames.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from msrl.api.env import Env, Step
from msrl.api.spaces import Box
from msrl.envs.wrappers.base import Wrapper, per_env
from msrl.errors import EnvError


class FrameStack(Wrapper):
    def __init__(self, env: Env, num: int):
        super().__init__(env)
        space = env.spec.observation
        if not isinstance(space, Box) or len(space.shape) not in (1, 3):
            raise EnvError(
                f"FrameStack cannot wrap {env.spec.id}, whose observations are {space}.",
                why="It joins vectors (O,) end to end and images (H, W, C) by their channels.",
                instead="Leave the wrapper out for this environment.",
            )
        if num < 1:
            raise EnvError(f"FrameStack cannot stack {num} frames.", instead="Give it 1 or more.")
        self.num, self._width = num, space.shape[-1]
        shape = (*space.shape[:-1], num * self._width)
        low, high = (_tile(bound, space.shape, num) for bound in (space.low, space.high))
        self.spec = replace(env.spec, observation=Box(shape, low, high, space.dtype))

    def start(self, num_envs: int) -> Any:
        stacked = self.obs_shape(num_envs)
        return self.xp.zeros(stacked.shape, stacked.dtype)

    def on_reset(self, own: Any, obs: Any) -> tuple[Any, Any]:
        frames = self._fill(obs)
        return frames, frames

    def on_step(self, own: Any, step: Step) -> tuple[Any, Step]:
        final = self.xp.concatenate([own[..., self._width:], step.final_obs], axis=-1)
        frames = self.xp.where(per_env(step.done, final), self._fill(step.obs), final)
        return frames, step.replace(obs=frames, final_obs=final)

    def rewrap(self, env: Env) -> Env:
        return FrameStack(env, self.num)

    def _fill(self, obs: Any) -> Any:
        return self.xp.concatenate([obs] * self.num, axis=-1)


def _tile(bound: float | tuple, shape: tuple[int, ...], num: int) -> float | tuple:
    """A bound of the stacked space; scalars hold for any shape."""
    if not isinstance(bound, tuple):
        return bound
    tiled = np.concatenate([np.broadcast_to(bound, shape)] * num, axis=-1).tolist()
    return _tuples(tiled)


def _tuples(nested: Any) -> Any:
    return tuple(_tuples(entry) for entry in nested) if isinstance(nested, list) else nested
