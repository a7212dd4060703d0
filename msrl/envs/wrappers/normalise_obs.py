"""NormaliseObs: observations of mean 0 and variance 1, by the running statistics of all that was acted upon.

The statistics are of every observation handed out to act on (the first of each episode included, final ones not), per
feature and, with several agents, per agent. A step's `obs` and `final_obs` are scaled by the same statistics, those
that include this step's `obs`, so the two stay equal where no episode ended.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from msrl.api.env import Env, Step
from msrl.api.spaces import Box
from msrl.envs.wrappers.base import Wrapped, Wrapper
from msrl.envs.wrappers.moments import Moments, empty, union, update
from msrl.errors import EnvError


class NormaliseObs(Wrapper):
    """With `learnt` statistics it applies those and learns nothing. They lie in the state, not in the program, so that
    what was compiled for one frozen environment serves the next."""

    def __init__(self, env: Env, epsilon: float = 1e-8, clip: float = 10.0, *, learnt: Moments | None = None):
        super().__init__(env)
        space = env.spec.observation
        if not isinstance(space, Box):
            raise EnvError(
                f"NormaliseObs cannot wrap {env.spec.id}, whose observations are {space}.",
                why="The number of a choice has no mean to subtract.",
                instead="Leave the wrapper out for this environment.",
            )
        self.epsilon, self.clip, self.learnt = epsilon, clip, learnt
        self.spec = replace(env.spec, observation=Box(space.shape, -clip, clip))

    def start(self, num_envs: int) -> Moments:
        if self.learnt is not None:
            return jax.tree.map(self.xp.asarray, self.learnt)
        return empty(self.xp, self.env.obs_shape(num_envs).shape[1:])

    def on_reset(self, own: Moments, obs: Any) -> tuple[Moments, Any]:
        own = self._learn(own, obs)
        return own, self._scale(own, obs)

    def on_step(self, own: Moments, step: Step) -> tuple[Moments, Step]:
        own = self._learn(own, step.obs)
        return own, step.replace(obs=self._scale(own, step.obs), final_obs=self._scale(own, step.final_obs))

    def frozen(self, states: Sequence[Wrapped]) -> Env:
        learnt = union([jax.tree.map(np.asarray, state.own) for state in states])
        inner = self.env.frozen([state.inner for state in states])
        return NormaliseObs(inner, self.epsilon, self.clip, learnt=learnt)

    def rewrap(self, env: Env) -> Env:
        return NormaliseObs(env, self.epsilon, self.clip, learnt=self.learnt)

    def _learn(self, own: Moments, obs: Any) -> Moments:
        return own if self.learnt is not None else update(own, obs.astype("float32"))

    def _scale(self, own: Moments, obs: Any) -> Any:
        scaled = (obs.astype("float32") - own.mean) / self.xp.sqrt(own.var + self.epsilon)
        return self.xp.clip(scaled, -self.clip, self.clip)
