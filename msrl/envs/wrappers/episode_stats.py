"""EpisodeStats: returns and lengths of episodes, by the rewards of the environment that it wraps.

It changes nothing that passes through. The runtime puts it right around the environment itself, inside all other
wrappers, so that it sees the original rewards, and is the one to ask whether these are what the environment promised;
`stats` finds its state from the outside.
"""

from typing import Any

import numpy as np
from flax import struct

from msrl.api.env import Env, Step
from msrl.envs.contract import check_bounds, check_ends, check_obs, check_step
from msrl.envs.host import HostEnv
from msrl.envs.wrappers.base import Wrapped, Wrapper


@struct.dataclass
class Stats:
    """Of each environment, all leaves (B,): totals of the episodes finished since init, and the newest. With several
    agents, a return is the mean over them. Whoever looks adds up over environments, in double precision: one total of
    all would round from 2^24 on, after 34 000 episodes of 500, and would take more kernels in every step."""

    episodes: Any  # int32
    return_sum: Any  # float32
    length_sum: Any  # int32
    last_return: Any  # float32: of the last finished episode, 0 before there is one
    last_length: Any  # int32
    running_return: Any  # float32: of the episode under way
    running_length: Any  # int32


class EpisodeStats(Wrapper):
    def __init__(self, env: Env):
        super().__init__(env)
        self._shapes: dict[int, Step] = {}  # by the number of environments, what they promise
        known = env.traceable or isinstance(env, HostEnv)  # which has a probe of its own
        self._looked = {"reset": known, "step": known}  # were the first numbers held against the space's bounds?

    def start(self, num_envs: int) -> Stats:
        returns, counts = (lambda: self.xp.zeros(num_envs, "float32")), (lambda: self.xp.zeros(num_envs, "int32"))
        return Stats(counts(), returns(), counts(), returns(), counts(), returns(), counts())

    def on_reset(self, own: Stats, obs: Any) -> tuple[Stats, Any]:
        check_obs(obs, self._promised(len(own.episodes)).obs, self.env, "reset", "obs")
        self._look(obs, "reset")
        zero = self.xp.zeros_like
        return own.replace(running_return=zero(own.running_return), running_length=zero(own.running_length)), obs

    def on_step(self, own: Stats, step: Step) -> tuple[Stats, Step]:
        check_step(step, self.env, self._promised(len(own.episodes)))
        self._look(step.final_obs, "step")
        xp, done = self.xp, step.done
        returns = own.running_return + (step.reward.mean(-1) if self.spec.agents else step.reward)
        lengths = own.running_length + 1
        if xp is np and not done.any():  # the usual case, and Python has to be quick about it
            return Stats(own.episodes, own.return_sum, own.length_sum, own.last_return, own.last_length, returns,
                         lengths), step
        if xp is np:
            check_ends(step, self.env)
        return Stats(
            episodes=own.episodes + done,
            return_sum=own.return_sum + xp.where(done, returns, 0.0),
            length_sum=own.length_sum + xp.where(done, lengths, 0),
            last_return=xp.where(done, returns, own.last_return),
            last_length=xp.where(done, lengths, own.last_length),
            running_return=xp.where(done, 0.0, returns),
            running_length=xp.where(done, 0, lengths),
        ), step

    def rewrap(self, env: Env) -> Env:
        other = EpisodeStats(env)
        other._looked = self._looked  # nobody wants to hear it twice
        return other

    def _promised(self, num_envs: int) -> Step:
        if num_envs not in self._shapes:
            self._shapes[num_envs] = self.env.step_shape(num_envs)
        return self._shapes[num_envs]

    def _look(self, obs: Any, method: str) -> None:
        if not self._looked[method]:
            self._looked[method] = True
            check_bounds(obs, self.spec.observation, type(self.env), method)


def stats(state: Any) -> Stats:
    """The statistics in the state of an environment that has an EpisodeStats under any number of wrappers."""
    while isinstance(state, Wrapped):
        if isinstance(state.own, Stats):
            return state.own
        state = state.inner
    raise LookupError("no EpisodeStats among the wrappers of this state")
