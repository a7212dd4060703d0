"""Small loops that exercise values: what is carried, merged and computed, and what its names and types are."""

import math

import jax
import jax.numpy as jnp

from msrl.api import Record
from tests.matrix.toys import Whole

TABLE = (0.9, 0.5, 0.1)
HALF = 2


class Schedules(Whole):
    """Expressions of indices, which do not trace."""

    def train(self, msrl):
        obs = msrl.env_reset()
        for i in range(self.config.updates):
            rate = max(0.05, 1 - i / 2)
            for j in range(5, 0, -2):
                epsilon = min(rate, TABLE[j // 2]) if j > 1 else math.sqrt(i + j) / 4
                act = msrl.agent_act(obs, epsilon, rate)
                obs = msrl.env_step(act.action).obs
                if i % 2 == 0 and j != 3:
                    msrl.report(j=j, epsilon=round(epsilon * 8))
                elif (i, j) == (1, 3):
                    msrl.report(hit=1)
            a, b = divmod(i, HALF)
            msrl.report(rate=int(rate * 4), a=a, b=b)


class Counters(Whole):
    """Python numbers carried from pass to pass, and from loop to loop."""

    def train(self, msrl):
        obs = msrl.env_reset()
        n, flag, a, b = 0, False, 0, 1
        for i in range(3):
            for j in range(i + 1):
                n += j
                flag = not flag
            a, b = b, a + b
            obs = msrl.env_step(msrl.agent_act(obs).action).obs
        for _ in range(n):
            obs = msrl.env_step(msrl.agent_act(obs).action).obs
            n -= 1
        msrl.report(n=n, flag=flag, a=a, b=b)


class Trees(Whole):
    """Carried tuples, dicts and records; whole steps carried; comprehensions and lambdas."""

    def train(self, msrl):
        obs = msrl.env_reset()
        held = {"obs": obs, "n": (0, [jnp.int32(1)])}
        step = msrl.env_step(msrl.agent_act(obs).action)
        kept = Record(step=step, count=0)
        for i in range(4):  # noqa: B007 (read after the loop)
            act = msrl.agent_act(held["obs"])
            before = kept.step.obs
            step = msrl.env_step(act.action)
            held = {"obs": step.obs, "n": (held["n"][0] + 1, [x * 2 for x in held["n"][1]])}
            kept = kept.replace(step=step, count=kept.count + sum([part.sum() for part in (before, step.obs)]))
        msrl.report(n=held["n"][0], m=held["n"][1][0], count=kept.count,
                    top=max([3, 1, 2], key=lambda x: -x), nested={"a": i, "b": {"c": 2 * i}})


class Names(Whole):
    """Indices used twice, changed and read later; names that the compiler uses itself, and those of builtins."""

    def train(self, msrl):
        t, parts, going, condition, results, merge = msrl.env_reset(), 1, 0, 2, 3, 4
        for i in range(3):
            for i in range(2, 4):
                parts += i
            parts += 10 * i
            i = i + 10
            msrl.report(i=i)
        while going < 3:
            going += 1
            (condition, results), merge = msrl.call("tally", "parts", 5)
        len, max = 3, t.sum()
        msrl.report(i=i, max=max, parts=parts, going=going, condition=condition + len, results=results, merge=merge)


class Types(Whole):
    """Numbers that are int on some passes and float on others; None before a loop; bool beside int; random keys."""

    def train(self, msrl):
        obs = msrl.env_reset()
        step, n, key = None, 0, jax.random.key(3)
        for i in range(5):
            rate = max(0, 1 - i / 2)
            other = 0.5**i if i else 1
            step = msrl.env_step(msrl.agent_act(obs, rate, other).action)
            obs = step.obs
            n += step.done.any()
            key, mine = jax.random.split(key)
            msrl.report(n=n, key=jax.random.key_data(mine)[0] % 99, rate=rate * 2)
        msrl.report(last=step.reward.sum())
