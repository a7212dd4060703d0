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
    """Totals of the episodes finished since init, in all of the shard's environments, and the newest of each. With
    several agents, a return is the mean over them."""

    episodes: Any  # (), int32
    return_sum: Any  # (), float32
    length_sum: Any  # (), int32
    last_return: Any  # (B,), float32: of the last finished episode, 0 before there is one
    last_length: Any  # (B,), int32
    running_return: Any  # (B,), float32: of the episode under way
    running_length: Any  # (B,), int32


class EpisodeStats(Wrapper):
    def start(self, num_envs: int) -> Stats:
        def zeros(shape: tuple[int, ...], dtype: str) -> Any:
            return self.xp.zeros(shape, dtype)

        batch = (num_envs,)
        return Stats(zeros((), "int32"), zeros((), "float32"), zeros((), "int32"), zeros(batch, "float32"),
                     zeros(batch, "int32"), zeros(batch, "float32"), zeros(batch, "int32"))

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
            episodes=own.episodes + done.sum(dtype="int32"),
            return_sum=own.return_sum + xp.where(done, returns, 0.0).sum(dtype="float32"),
            length_sum=own.length_sum + xp.where(done, lengths, 0).sum(dtype="int32"),
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
