"""A CartPole that crashes and stalls at random, as RLlib's own tests of fault tolerance have it. Registered with
Gymnasium as `benchmarks.peers.shaky:ShakyCartPole-v0`. It needs nothing of MSRL.
"""

import random
import time

import gymnasium

CRASH_STEP, CRASH_RESET, STALL_STEP = 1e-4, 1e-3, 1e-4  # probabilities
STALL_SECONDS = (2.0, 5.0)


class Shaky(gymnasium.Wrapper):
    """Its luck is nobody's seed: an environment that is made again does not meet the same end."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self.luck = random.SystemRandom()

    def reset(self, **given):
        if self.luck.random() < CRASH_RESET:
            raise RuntimeError("crashed in reset")
        return self.env.reset(**given)

    def step(self, action):
        if self.luck.random() < CRASH_STEP:
            raise RuntimeError("crashed in step")
        if self.luck.random() < STALL_STEP:
            time.sleep(self.luck.uniform(*STALL_SECONDS))
        return self.env.step(action)


gymnasium.register("ShakyCartPole-v0", lambda: Shaky(gymnasium.make("CartPole-v1")))
