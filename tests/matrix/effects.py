"""A trainer whose component on the host writes a line to a file for every call."""

from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from msrl.api import Component
from tests.matrix.toys import SmallConfig, Whole


@dataclass(frozen=True)
class LogConfig(SmallConfig):
    log: str = ""
    replicable: bool = False


class Log(Component):
    """Counts its calls, and writes what it is given."""

    traceable = False

    def __init__(self, file: str, replicable: bool):
        self.file, self.replicable = file, replicable

    def init(self, key):
        return 0

    def write(self, count, key, *values):
        with Path(self.file).open("a") as file:
            file.write(" ".join(map(str, [count, *(np.asarray(value).tolist() for value in values)])) + "\n")
        return count + 1, np.int32(count % 2)

    def output_shape(self, method, *args):
        return jax.ShapeDtypeStruct((), np.int32)


class Logged(Whole):
    """What the log returns decides what is done, before and after the learner; it is given whole values."""

    Config = LogConfig

    def components(self):
        return {"log": Log(self.config.log, self.config.replicable)}

    def train(self, msrl):
        obs = msrl.env_reset()
        odd = msrl.call("log", "write", obs)
        for _ in range(self.config.updates):
            for _ in range(self.config.rollout):
                act = msrl.agent_act(obs)
                step = msrl.env_step(act.action)
                msrl.replay_buffer_insert("rollout", obs=obs, reward=step.reward, noise=act.noise + odd)
                obs = step.obs
            learnt = msrl.agent_learn(msrl.replay_buffer_sample("rollout"))
            odd = msrl.call("log", "write", learnt["total"], step.reward, obs.sum())
            if odd > 0:
                odd = odd + msrl.call("log", "write", step.done.any())
            msrl.report(total=learnt["total"], odd=odd)
