"""Small loops, each to exercise some part of the language. All are of whole numbers: see toys.py."""

import math

import jax
import jax.numpy as jnp

from msrl.api import Record
from msrl.buffers import PrioritisedReplay, Replay, Rollout
from tests.matrix.toys import Whole

TABLE = (0.9, 0.5, 0.1)
HALF = 2


class Plain(Whole):
    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(self.config.updates):
            for _ in range(self.config.rollout):
                act = msrl.agent_act(obs)
                step = msrl.env_step(act.action)
                msrl.replay_buffer_insert("rollout", obs=obs, action=act.action, reward=step.reward)
                obs = step.obs
            msrl.report(msrl.agent_learn(msrl.replay_buffer_sample("rollout")))


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


class While(Whole):
    """Conditions computed on the way."""

    def train(self, msrl):
        obs = msrl.env_reset()
        passes, ended = 0, 0
        while ended < 6 and not passes > 40:
            step = msrl.env_step(msrl.agent_act(obs).action)
            obs, ended = step.obs, ended + step.done.sum()
            passes += 1
            msrl.report(done=step.done.sum())
        going = True
        count = 0
        while going:
            drawn = msrl.call("tally", "draw")
            count = count + drawn
            going = count < 10
        msrl.report(passes=passes, ended=ended, count=count)


class Branches(Whole):
    """Decisions on computed values, nested, with interactions on one side or on both."""

    def train(self, msrl):
        obs = msrl.env_reset()
        best, last = 0, jnp.zeros(4, jnp.int32)
        for i in range(7):
            act = msrl.agent_act(obs)
            if act.noise.sum() > 2:
                step = msrl.env_step(act.action)
                last = act.action
                kind = 1
            else:
                step = msrl.env_step(act.action * 0)
                kind = 2
                if i % 3 == 0:
                    drawn = msrl.call("tally", "draw")
                    best = best + drawn
                    msrl.report(drawn=drawn)
            obs = step.obs
            msrl.replay_buffer_insert("replay", obs=obs, kind=last + kind)
            if obs.sum() > 20:
                msrl.report(msrl.agent_learn(msrl.replay_buffer_sample("replay")))
        msrl.report(best=best, kind=kind)


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


class Rows(Whole):
    """Several loops in a row, lengths that do not divide, values first made in a loop and used after it."""

    def train(self, msrl):
        obs = msrl.env_reset()
        for i in range(11):  # noqa: B007 (read after the loop)
            act = msrl.agent_act(obs)
            step = msrl.env_step(act.action)
            obs = step.obs
        msrl.report(i=i, first=act.noise.sum())
        for _ in range(3):
            msrl.replay_buffer_insert("replay", obs=obs, reward=step.reward)
            for j in range(2, 13, 4):
                step = msrl.env_step(act.action)
                made = (step.obs, j)
            obs = made[0] * 1
        msrl.report(j=j, last=made[1])
        out = msrl.agent_learn(msrl.replay_buffer_sample("replay"))
        msrl.report(out)


class TwoBuffers(Whole):
    """A rollout and a replay at once; a sample kept from one pass to the next."""

    def train(self, msrl):
        obs = msrl.env_reset()
        for i in range(self.config.updates):
            for _ in range(self.config.rollout):
                act = msrl.agent_act(obs)
                step = msrl.env_step(act.action)
                msrl.replay_buffer_insert("rollout", obs=obs, action=act.action, reward=step.reward)
                msrl.replay_buffer_insert("replay", pair=(obs, step.final_obs), done=step.done)
                obs = step.obs
            fresh = msrl.replay_buffer_sample("rollout")
            old = msrl.replay_buffer_sample("replay")
            out = msrl.agent_learn(fresh, old.pair[0], i)
            msrl.report(out, more=msrl.agent_learn(old)["total"])


class Helpers(Whole):
    """Helpers in helpers, with defaults, keywords and several results."""

    def train(self, msrl):
        obs = msrl.env_reset()
        for i in range(2):
            obs, total = self.walk(msrl, obs, steps=3 + i)
            obs, more = self.walk(steps=self.twice(msrl, 1), obs=obs, msrl=msrl)
            msrl.report(total=total + more, drawn=self.draw(msrl))

    def walk(self, msrl, obs, *, steps, scale=2):
        total = 0
        for _ in range(steps):
            step = msrl.env_step(self.move(msrl, obs))
            obs = step.obs
            total += scale * step.done.sum()
        return obs, total

    def move(self, api, obs):
        with api.together():
            return api.agent_act(obs).action

    @staticmethod
    def draw(api, most=3):
        drawn = api.call("tally", "draw")
        if drawn > most:
            drawn = most
        return drawn

    def twice(self, msrl, x):
        msrl.report(x=x)
        return 2 * x


class Components(Whole):
    """A component of one's own: states, draws, results of several parts, buffers called by name."""

    def train(self, msrl):
        obs = msrl.env_reset()
        (first, seen), n = msrl.call("tally", "parts", obs)
        for i in range(6):
            obs = msrl.env_step(msrl.agent_act(obs).action).obs
            total = msrl.call("tally", "add", obs)
            if total % 2 == 0:
                total = msrl.call("tally", "add", i)
            (first, seen), n = msrl.call("tally", "parts", obs)
            msrl.report(total=total, first=first, seen=seen.sum(), n=n, drawn=msrl.call("tally", "draw"))


class Nothing(Whole):
    """Loops that never run, branches never taken, a buffer that nothing is put into, no interactions in between."""

    def train(self, msrl):
        obs = msrl.env_reset()
        n = msrl.call("tally", "draw") * 0
        x = 5
        for i in range(n):
            x = x + i
            obs = msrl.env_step(msrl.agent_act(obs).action).obs
            msrl.replay_buffer_insert("rollout", obs=obs)
        while x < 5:
            x += 1
            msrl.report(x=x)
        for i in range(0):
            msrl.report(i=i)
        if n > 0:
            msrl.report(msrl.agent_learn(msrl.replay_buffer_sample("rollout")))
        for _ in range(2):
            pass
        msrl.report(x=x)


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


class Downwards(Whole):
    """Ranges of computed starts, stops and steps, as the outermost loop and inside another."""

    def train(self, msrl):
        obs = msrl.env_reset()
        n = msrl.call("tally", "draw")
        total = 0
        for i in range(n + 4, n, -2):
            obs = msrl.env_step(msrl.agent_act(obs).action).obs
            for j in range(n, n + i, n):
                total = total + j
            msrl.report(i=i)
        for i in range(n, 3 * n + 1, n):
            total = total + i
            obs = msrl.env_step(msrl.agent_act(obs).action).obs
        msrl.report(total=total)


class Ends(Whole):
    """Ends in the middle of things: the last thing is a sample, a report outside, weights never learnt from."""

    def train(self, msrl):
        msrl.report(before=1)
        obs = msrl.env_reset()
        msrl.replay_buffer_insert("replay", obs=obs, at=obs[:, 0] * 0)
        for i in range(3):
            obs = msrl.env_reset()
            msrl.replay_buffer_insert("replay", obs=obs, at=obs[:, 0] * 0 + i)
        msrl.report(between=2)
        for i in range(2):  # noqa: B007 (read after the loop)
            batch = msrl.replay_buffer_sample("replay")
        msrl.report(after=batch.at.sum() + i, between=3)


class Prioritised(Whole):
    """A buffer with a method of its own, called by name; a nested structure as a field."""

    def buffers(self):
        return {"replay": PrioritisedReplay(capacity=16, batch_size=4)}

    def train(self, msrl):
        obs = msrl.env_reset()
        for i in range(5):
            step = msrl.env_step(msrl.agent_act(obs).action)
            msrl.replay_buffer_insert(obs=obs, after={"obs": step.final_obs, "done": step.done})
            obs = step.obs
            if i > 1:
                batch = msrl.replay_buffer_sample()
                msrl.call("replay", "update", batch.index, batch.obs[:, 0] + 1)
                msrl.report(total=batch.after["obs"].sum(), index=batch.index.sum())


class Logic(Whole):
    """`not`, `and`, `or`, conditional expressions and chained comparisons of computed numbers."""

    def train(self, msrl):
        obs = msrl.env_reset()
        steps, done, ends = 0, False, 0
        while (not done and steps < 9) or steps < 3:
            step = msrl.env_step(msrl.agent_act(obs).action)
            obs, done = step.obs, step.done.any()
            ends = ends + 1 if done and steps >= 1 else ends
            steps += 1
            low = 2 < obs.sum() < 20
            if not (low or steps == 4) and steps >= 0:
                msrl.report(high=obs.sum())
            msrl.report(low=low, both=(steps > 2) and low, number=steps % 3 or 5)
        msrl.report(steps=steps, ends=ends)


class Early(Whole):
    """A sample that stands before the insert; what is learnt from it is carried."""

    def train(self, msrl):
        obs = msrl.env_reset()
        out = {"total": 0, "learnt": 0}
        for i in range(3):
            if i > 0:
                batch = msrl.replay_buffer_sample("replay")
                out = msrl.agent_learn(batch)
                out = msrl.agent_learn(batch, out["total"], i)
            act = msrl.agent_act(obs)
            step = msrl.env_step(act.action)
            msrl.replay_buffer_insert("replay", obs=obs, more=(act, step.reward))
            obs = step.obs
            msrl.report(out)


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


class Deep(Whole):
    """Loops in branches in loops in helpers, with results of several parts."""

    def train(self, msrl):
        obs = msrl.env_reset()
        for i in range(3):
            if i % 2 == 0:
                obs, n, (a, b) = self.walk(msrl, obs, i)
            else:
                n, a, b = 0, i, 2
                for j in range(i - 1, 2):
                    b = b + j
            msrl.report(n=n, a=a, b=b)

    def walk(self, msrl, obs, i):
        n = 0
        while n < 4:
            if n != 1 or obs.sum() > 20:
                obs = msrl.env_step(msrl.agent_act(obs).action).obs
            n += 1 + obs[0, 1] % 2
        return obs, n, (i, 2)


class Stores(Whole):
    """Three buffers, one of them filled on one branch only."""

    def buffers(self):
        return {"a": Rollout(length=2), "b": Rollout(length=2), "c": Replay(capacity=9, batch_size=3)}

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(3):
            for j in range(2):
                obs = msrl.env_step(msrl.agent_act(obs).action).obs
                msrl.replay_buffer_insert("a", obs=obs)
                msrl.replay_buffer_insert("b", obs=obs + j)
                if obs.sum() % 2 == 0:
                    msrl.replay_buffer_insert("c", obs=obs.astype(jnp.uint8))
            apart = msrl.replay_buffer_sample("a").obs - msrl.replay_buffer_sample("b").obs
            msrl.report(apart=apart.sum(), c=msrl.replay_buffer_sample("c").obs.sum())


LOOPS = {cls.__name__: cls for cls in (
    Plain, Schedules, While, Branches, Counters, Rows, TwoBuffers, Helpers, Components, Nothing, Trees, Downwards,
    Ends, Prioritised, Logic, Early, Names, Types, Deep, Stores)}
