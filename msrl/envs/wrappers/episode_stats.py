"""EpisodeStats: returns and lengths of episodes, by the rewards of the environment that it wraps.

It changes nothing that passes through. The runtime puts it right around the environment itself, inside all other
wrappers, so that it sees the original rewards; `stats` finds its state from the outside.
"""

from typing import Any

import numpy as np
from flax import struct

from msrl.api.env import Env, Step
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
    def start(self, num_envs: int) -> Stats:
        returns, counts = (lambda: self.xp.zeros(num_envs, "float32")), (lambda: self.xp.zeros(num_envs, "int32"))
        return Stats(counts(), returns(), counts(), returns(), counts(), returns(), counts())

    def on_reset(self, own: Stats, obs: Any) -> tuple[Stats, Any]:
        zero = self.xp.zeros_like
        return own.replace(running_return=zero(own.running_return), running_length=zero(own.running_length)), obs

    def on_step(self, own: Stats, step: Step) -> tuple[Stats, Step]:
        xp, done = self.xp, step.done
        returns = own.running_return + (step.reward.mean(-1) if self.spec.agents else step.reward)
        lengths = own.running_length + 1
        if xp is np and not done.any():  # the usual case, and Python has to be quick about it
            return Stats(own.episodes, own.return_sum, own.length_sum, own.last_return, own.last_length, returns,
                         lengths), step
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
        return EpisodeStats(env)


def stats(state: Any) -> Stats:
    """The statistics in the state of an environment that has an EpisodeStats under any number of wrappers."""
    while isinstance(state, Wrapped):
        if isinstance(state.own, Stats):
            return state.own
        state = state.inner
    raise LookupError("no EpisodeStats among the wrappers of this state")
