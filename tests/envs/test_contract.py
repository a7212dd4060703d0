"""Environments that give what they must not: named with their class and line, with messages asserted whole."""

import inspect
import logging

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from msrl import envs, jobs
from msrl.api import Actor, Agent, Box, Discrete, Env, EnvSpec, Record, Step
from msrl.buffers import Rollout
from msrl.envs.wrappers import EpisodeStats
from msrl.errors import EnvError
from msrl.pipeline import compile
from tests.matrix.toys import Whole, WholeLearner

HERE = "tests/envs/test_contract.py"


class Own(Env):
    """Counts its steps. What it gives is spoilt by functions of the class that inherits."""

    traceable = draws = False
    spec = EnvSpec("Own", Box((2,), 0, 9), Discrete(2), max_episode_steps=5)

    def init(self, key, num_envs):
        return np.zeros(num_envs, np.int32)

    def see(self, state):
        return np.stack([state, state], 1).astype(np.float32)

    def reset(self, state, key):
        state = np.zeros_like(state)
        return state, self.see(state)

    def step(self, state, action, key):
        state = state + 1
        done = state >= 5
        return state, self.spoil(Step(self.see(state), np.ones(len(state), np.float32), done, np.zeros_like(done),
                                      self.see(state)))

    def spoil(self, step):
        return step


class Wide(Own):
    def see(self, state):
        return np.stack([state, state], 1).astype(np.float64)


class Narrow(Own):
    def see(self, state):
        return state[:, None].astype(np.float32)


class Listed(Own):
    def see(self, state):
        return [[1.0, 2.0]] * len(state)


class Wholes(Own):
    def spoil(self, step):
        return step.replace(reward=step.reward.astype(int))


class Numbers(Own):
    def spoil(self, step):
        return step.replace(terminated=step.terminated.astype(np.int32))


class Both(Own):
    def spoil(self, step):
        return step.replace(truncated=step.terminated)


class Plain(Own):
    def step(self, state, action, key):
        return state, self.see(state), np.ones(len(state)), False, {}


class Bare(Own):
    def step(self, state, action, key):
        return state, self.see(state)


class Choices(Own):
    spec = EnvSpec("Choices", Discrete(2), Discrete(2))

    def see(self, state):
        return state * 2


class Traced(Own):
    """The same in JAX."""

    traceable = True

    def init(self, key, num_envs):
        return jnp.zeros(num_envs, jnp.int32)

    def reset(self, state, key):
        return state, jnp.stack([state, state, state], 1).astype(jnp.float32)


def line(cls: type, method: str) -> str:
    lines, first = inspect.getsourcelines(vars(cls).get(method, getattr(cls, method)))
    text = lines[0].strip()
    return f"  {HERE}:{first}\n{first:>5} | {text}\n        {'^' * len(text)}\n"


SEE = "See docs/environments.md#what-is-checked."
OWN = {
    Wide: ("reset", "Wide.reset gives an obs that is float64[3, 2].",
           "Its spec says Box(2,): of 3 environments that is float32[3, 2].\nConvert it: obs.astype(np.float32)"),
    Narrow: ("reset", "Narrow.reset gives an obs that is float32[3, 1].",
             "Its spec says Box(2,): of 3 environments that is float32[3, 2].\n"
             "Its first dimension is the number of environments, and the others are those of the space."),
    Listed: ("reset", "Listed.reset gives an obs that is a list.",
             "Its spec says Box(2,): of 3 environments that is float32[3, 2].\n"
             "Give an array: np.asarray(obs, np.float32)"),
    Wholes: ("step", "Wholes.step gives a reward that is int64[3].",
             "So it is in every Step: of 3 environments that is float32[3].\nConvert it: reward.astype(np.float32)"),
    Numbers: ("step", "Numbers.step gives a terminated that is int32[3].",
              "So it is in every Step: of 3 environments that is bool[3].\nConvert it: terminated.astype(np.bool)"),
    Both: ("step", "Both.step gives an end that is both terminated and truncated.",
           "A terminal state has the value 0, and a truncated episode the value of what would have followed.\n"
           "In a terminal state that the time limit falls on, leave truncated False."),
    Plain: ("step", "Plain.step returns a tuple of 5.", "Return two things: the state and the Step."),
    Bare: ("step", "Bare.step returns a state and float32[3, 2].",
           "Return two things: the state and a msrl.api.Step."),
    Choices: ("step", "Choices.step gives the observation 2, which lies outside its space, Discrete(2).",
              "Give one of the choices of the space, or a space with more of them."),
    Traced: ("reset", "Traced.reset gives an obs that is float32[3, 3].",
             "Its spec says Box(2,): of 3 environments that is float32[3, 2].\n"
             "Its first dimension is the number of environments, and the others are those of the space."),
}


def played(env: Env) -> None:
    key = jax.random.key(0)
    wrapped = EpisodeStats(env)
    state, _ = wrapped.reset(wrapped.init(key, 3), key)
    for _ in range(6):
        state, _ = wrapped.step(state, np.zeros(3, np.int32), key)


@pytest.mark.parametrize("cls", OWN, ids=lambda cls: cls.__name__)
def test_an_environment_of_ones_own(cls):
    method, what, rest = OWN[cls]
    with pytest.raises(EnvError) as caught:
        played(cls())
    assert str(caught.value) == f"{what}\n\n{line(cls, method)}\n{rest}\n{SEE}"


def test_one_that_keeps_its_promises():
    played(Own())


def test_numbers_outside_a_box_are_told_of_once(caplog):
    class Far(Own):
        def see(self, state):
            return np.full((len(state), 2), -3, np.float32)

    with caplog.at_level(logging.WARNING):
        env = EpisodeStats(Far())
        key = jax.random.key(0)
        for each in (env, env.frozen([])):
            each.reset(each.init(key, 1), key)
    assert [record.getMessage().partition(" (")[0] for record in caplog.records] == [
        "Far.reset gives the observation -3, which lies outside its space, Box(2,). Its bounds are 0 to 9. Mend the "
        "space, if something depends on it."]


def test_in_a_run_the_loops_line_comes_first():
    with pytest.raises(EnvError) as caught:
        for _ in compile(Resets, Wide(), num_envs=3).run():
            pass
    assert caught.value.span is not None and caught.value.span.text == "obs = msrl.env_reset()"
    assert caught.value.also is not None and caught.value.also.text == "def reset(self, state, key):"
    with pytest.raises(EnvError) as caught:  # JAX: before anything runs
        compile(Resets, Traced(), num_envs=3)
    assert caught.value.what == OWN[Traced][1]


class Resets(Whole):
    def train(self, msrl):
        obs = msrl.env_reset()
        msrl.report(x=obs.sum())


# -- Gymnasium's -----------------------------------------------------------------------------------------------------


class Pole(gymnasium.Env):
    observation_space = spaces.Box(0, 9, (2,), np.float32)
    action_space = spaces.Discrete(2)
    begins, gives = None, {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return (np.zeros(2, np.float32), {}) if type(self).begins is None else type(self).begins

    def step(self, action):
        found = {"obs": np.ones(2, np.float32), "reward": 1.0, "terminated": False, "truncated": False, "info": {}}
        return tuple({**found, **type(self).gives}.values())


SINCE = "Gymnasium's environments have returned that since version 0.26."
SPACE = "Its observation_space is Box(0.0, 9.0, (2,), float32)."
GYMNASIUM = {
    "no info": ({"begins": np.ones(2)}, "reset", "returns float64[2].",
                f"{SINCE}\nReturn two things: the observation and a dict, `return obs, {{}}`."),
    "a wrong info of reset": ({"begins": (np.ones(2), None)}, "reset",
                              "returns a tuple of 2 whose info is NoneType None.",
                              f"{SINCE}\nReturn two things: the observation and a dict, `return obs, {{}}`."),
    "a wrong info": ({"gives": {"info": "fine"}}, "step", "gives an info that is str 'fine'.",
                     f"{SINCE}\nGive a dict: {{}}."),
    "a shape": ({"gives": {"obs": np.ones(3, np.float32)}}, "step", "gives an observation that is float32[3].",
                f"{SPACE}\nGive an array of the shape (2,), or another space."),
    "no array": ({"gives": {"obs": "far"}}, "step", "gives an observation that is str 'far'.",
                 f"{SPACE}\nGive an array of the shape (2,), or another space."),
    "a dtype": ({"gives": {"obs": np.ones(2)}, "observation_space": spaces.Box(0, 9, (2,), np.uint8)}, "step",
                "gives an observation that is float64[2].",
                "Its observation_space is Box(0, 9, (2,), uint8).\n"
                "Give uint8, or a space of float64: what is converted would lose its fractions."),
    "a reward": ({"gives": {"reward": np.ones(1)}}, "step", "gives a reward that is float64[1].",
                 f"{SINCE}\nGive one number: float(reward)."),
    "a flag": ({"gives": {"truncated": None}}, "step", "gives a truncated that is NoneType None.",
               f"{SINCE}\nGive one truth value: bool(truncated)."),
    "a choice": ({"gives": {"obs": 7}, "begins": (1, {}), "observation_space": spaces.Discrete(3)}, "step",
                 "gives the observation 7, which lies outside its space.",
                 "Its observation_space is Discrete(3).\n"
                 "Give one of the choices of the space, or a space with more of them."),
}


@pytest.mark.parametrize("case", GYMNASIUM)
def test_a_gymnasium_environment_before_anything_is_compiled(case, caplog):
    settings, method, what, rest = GYMNASIUM[case]
    cls = type("Broken", (Pole,), {"begins": (np.zeros(2, np.uint8), {}) if case == "a dtype" else None, **settings})
    with pytest.raises(EnvError) as caught:
        jobs.prepare("ppo", cls)
    assert str(caught.value) == f"Broken.{method} {what}\n\n{line(Pole, method)}\n{rest}\n{SEE}"
    assert not caplog.records  # it is not tried again


def test_what_only_a_later_step_shows_is_named_while_running():
    class Late(Pole):
        def step(self, action):
            self.count = getattr(self, "count", 0) + 1
            return np.ones(2 if self.count < 4 else 3, np.float32), 1.0, False, False, {}

    env = envs.make(Late)
    env.probe()
    state, _ = env.reset(env.init(None, 2), jax.random.key(0))
    with pytest.raises(EnvError) as caught:
        for _ in range(4):
            state, _ = env.step(state, np.zeros(2, np.int32), None)
    assert caught.value.what == "Late.step gives an observation that is float32[3]."
    assert caught.value.also is not None and caught.value.also.text == "def step(self, action):"
    env.close()


def test_bounds_that_the_first_step_leaves_are_told_of(caplog):
    jobs.prepare("ppo", type("Far", (Pole,), {"gives": {"obs": np.full(2, 10, np.float32)}})).base.close()
    assert [record.getMessage().partition(" (/")[0] for record in caplog.records] == [
        "Far.step gives the observation 10, which lies outside its space, Box(2,). Its bounds are 0 to 9. Mend the "
        f"space, if something depends on it. ({HERE}:{int(line(Pole, 'step').split(':')[1].split()[0])})"]


def test_float64_in_place_of_float32_is_rounded_as_ever():
    jobs.prepare("ppo", type("Double", (Pole,), {"gives": {"obs": np.ones(2)}})).base.close()


# -- structured observations -----------------------------------------------------------------------------------------


class Pair(Own):
    """Observes two things at once, as an environment of one's own may."""

    draws = True

    def see(self, state):
        return {"count": state.copy(), "room": np.stack([state, state], 1).astype(np.float32)}

    def obs_shape(self, num_envs):
        return {"count": jax.ShapeDtypeStruct((num_envs,), np.dtype("int32")),
                "room": jax.ShapeDtypeStruct((num_envs, 2), np.dtype("float32"))}


class PairActor(Actor):
    def act(self, weights, key, obs):
        return Record(action=obs["count"] % 2)

    exploit = act


class PairTrainer(Whole):
    def agent(self):
        return Agent(PairActor(), WholeLearner())

    def buffers(self):
        return {"rollout": Rollout(3)}

    def components(self):
        return {}

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(3):
            step = msrl.env_step(msrl.agent_act(obs).action)
            msrl.replay_buffer_insert(obs=obs, room=step.final_obs["room"])
            obs = step.obs
        batch = msrl.replay_buffer_sample()
        msrl.report(msrl.agent_learn(batch.obs["count"]), room=batch.room.sum())


def test_a_host_environment_with_structured_observations_trains():
    program = compile(PairTrainer, Pair(), num_envs=4, shards=2)
    metrics = [update.metrics for update in program.run() if update.metrics]
    assert metrics and metrics[-1]["room"] == (1 + 2 + 3) * 2 * 4
    assert program.evaluate(2)


def test_structured_observations_are_held_against_what_obs_shape_says():
    class Less(Pair):
        def see(self, state):
            return {"count": state.copy()}

    class Other(Pair):
        def see(self, state):
            return {**super().see(state), "count": state.astype(np.float32)}

    with pytest.raises(EnvError) as caught:
        played(Less())
    assert caught.value.what == "Less.reset gives the obs {count: int32[3]}."
    assert caught.value.instead == ("obs_shape promises {count: int32[3], room: float32[3, 2]}: give what it says, or "
                                    "let it say something else.")
    with pytest.raises(EnvError) as caught:
        played(Other())
    assert caught.value.what == "Other.reset gives an obs['count'] that is float32[3]."
