"""Small loops that exercise control flow: loops, branches, helpers, and what is decided on the way."""

import jax.numpy as jnp

from tests.matrix.toys import Whole


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
