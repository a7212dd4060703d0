"""NormaliseReward: rewards divided by the running standard deviation of the discounted return.

Each environment (each agent in it) keeps its discounted return G ← γG + r, which starts at 0 in every episode; rewards
are divided by the standard deviation of all G seen so far, the newest included. Signs and zeros stay as they are.
Evaluation is by the original rewards: frozen, the wrapper is gone.
"""

from collections.abc import Sequence
from typing import Any

from flax import struct

from msrl.api.env import Env, Step
from msrl.envs.wrappers.base import Wrapped, Wrapper, per_env
from msrl.envs.wrappers.moments import Moments, empty, update


@struct.dataclass
class Discounted:
    returns: Any  # (B,) or (B, N): G of the running episodes
    moments: Moments  # of G, over all environments and agents


class NormaliseReward(Wrapper):
    def __init__(self, env: Env, gamma: float = 0.99, epsilon: float = 1e-8, clip: float = 10.0):
        super().__init__(env)
        self.gamma, self.epsilon, self.clip = gamma, epsilon, clip

    def start(self, num_envs: int) -> Discounted:
        shape = self.env.step_shape(num_envs).reward.shape
        return Discounted(self.xp.zeros(shape, "float32"), empty(self.xp, ()))

    def on_reset(self, own: Discounted, obs: Any) -> tuple[Discounted, Any]:
        return own.replace(returns=self.xp.zeros_like(own.returns)), obs

    def on_step(self, own: Discounted, step: Step) -> tuple[Discounted, Step]:
        returns = self.gamma * own.returns + step.reward
        moments = update(own.moments, returns.reshape(-1))
        scaled = step.reward / self.xp.sqrt(moments.var + self.epsilon)
        running = self.xp.where(per_env(step.done, returns), self.xp.zeros_like(returns), returns)
        return Discounted(running, moments), step.replace(reward=self.xp.clip(scaled, -self.clip, self.clip))

    def frozen(self, states: Sequence[Wrapped]) -> Env:
        return self.env.frozen([state.inner for state in states])

    def rewrap(self, env: Env) -> Env:
        return NormaliseReward(env, self.gamma, self.epsilon, self.clip)
