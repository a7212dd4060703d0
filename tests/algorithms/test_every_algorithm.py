"""What all algorithms keep to: fixed forms through `learn`, progress on a task of one step, errors said whole."""

import dataclasses
import inspect
import itertools
import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain_nets import CONTINUOUS, DISCRETE, MULTI, TEAM, some_state

from msrl.algorithms import ALGORITHMS, load
from msrl.api import Box, Discrete, EnvSpec, MultiDiscrete, Record
from msrl.errors import EnvError

B, T = 32, 4
IMAGES = EnvSpec("pictures", Box((10, 10, 3), 0, 255, "uint8"), Discrete(2))
SMALL = dict(hidden=(16,))
OFF_POLICY = dict(batch_size=B, **SMALL)
CASES = {
    "ppo": ("ppo", DISCRETE, SMALL), "ppo-several": ("ppo", MULTI, SMALL), "ppo-box": ("ppo", CONTINUOUS, SMALL),
    "ppo-images": ("ppo", IMAGES, SMALL), "ppo-state": ("ppo", EnvSpec("maze", Discrete(5), Discrete(2)), SMALL),
    "a2c": ("a2c", DISCRETE, SMALL), "a2c-several": ("a2c", MULTI, SMALL), "a2c-box": ("a2c", CONTINUOUS, SMALL),
    "a2c-images": ("a2c", IMAGES, SMALL), "a3c": ("a3c", DISCRETE, SMALL), "impala": ("impala", DISCRETE, SMALL),
    "impala-several": ("impala", MULTI, SMALL), "impala-box": ("impala", CONTINUOUS, SMALL),
    "mappo": ("mappo", TEAM, SMALL), "mappo-id": ("mappo", TEAM, dict(agent_id=True, **SMALL)),
    "mappo-box": ("mappo", replace(TEAM, action=Box((2,), -1.0, 1.0)), SMALL),
    "dqn": ("dqn", DISCRETE, OFF_POLICY), "dqn-dueling": ("dqn", DISCRETE, dict(dueling=True, **OFF_POLICY)),
    "dqn-images": ("dqn", IMAGES, OFF_POLICY), "sac": ("sac", CONTINUOUS, OFF_POLICY),
}
OF_ROLLOUTS = ("a2c", "a3c", "impala", "mappo", "ppo")
EXTRA = {**dict.fromkeys(OF_ROLLOUTS, ()), "dqn": (0.5,), "sac": (False,)}


def make(name, spec, fields):
    cls = load(name)
    return cls(cls.Config(**fields), spec).agent()


def one_step(name, agent, spec, weights, key, reward):
    """A batch in which every episode is one step long; `reward` maps an action's array to its worth."""
    leading = (T, B) if name in OF_ROLLOUTS else (B,)
    shape = (*leading, *spec.batch(spec.observation, 1)[1:])
    obs = jnp.ones(shape, spec.observation.dtype)
    act = agent.actor.act(weights, key, obs, *EXTRA[name])
    done = jnp.ones(leading, bool)
    fields = dict(obs=obs, action=act.action, reward=reward(act.action).astype(jnp.float32), terminated=done)
    if leading == (B,):
        return Record(next_obs=obs, **fields)
    return Record(log_prob=act.log_prob, done=done, final_obs=obs, **fields)


def worth(space):
    """A reward that is 1 - distance from the best action, and that best action."""
    if isinstance(space, Discrete):
        return lambda a: a == 1, 1
    if isinstance(space, MultiDiscrete):
        return lambda a: (a == 1).mean(-1), 1
    return lambda a: 1 - jnp.abs(a - 0.5).mean(-1), 0.5


def learn_from(learner, state, key, batch):
    """Where all agents are in one shard, what a learner wants of all of them is the batch."""
    return learner.learn(state, key, batch, *[batch] * len(learner.sees_all))


@pytest.mark.parametrize("case", CASES)
def test_learn_keeps_the_form_of_its_state(case):
    name, spec, fields = CASES[case]
    agent = make(name, spec, fields)
    key = jax.random.key(0)

    def forms():
        state = agent.learner.init(key)
        batch = one_step(name, agent, spec, agent.learner.weights(state), key, worth(spec.action)[0])
        return state, *learn_from(agent.learner, state, key, batch)

    before, after, metrics = jax.eval_shape(forms)
    assert jax.tree.structure(before) == jax.tree.structure(after)
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after)):
        assert (old.shape, old.dtype, old.weak_type) == (new.shape, new.dtype, False)
    assert metrics and all(m.shape == () and m.dtype == jnp.float32 for m in metrics.values())


@pytest.mark.parametrize("case", ["ppo-several", "ppo-box", "a2c-several", "a2c-box", "a3c", "impala-several",
                                  "impala-box", "mappo", "dqn", "sac"])
def test_the_best_action_is_found(case):
    """A sign the wrong way round anywhere between the reward and the action makes this the worst one."""
    name, spec, fields = CASES[case]
    rates = [f.name for f in dataclasses.fields(load(name).Config) if f.name.endswith("learning_rate")]
    agent = make(name, spec, {**fields, **dict.fromkeys(rates, 0.02)})
    reward, best = worth(spec.action)

    def step(state, key):
        act, learn = jax.random.split(key)
        batch = one_step(name, agent, spec, agent.learner.weights(state), act, reward)
        return learn_from(agent.learner, state, learn, batch)

    state = some_state(agent, spread=0.1)
    count = 400 if name == "sac" else 60
    state, _ = jax.jit(lambda s, k: jax.lax.scan(step, s, k))(state, jax.random.split(jax.random.key(1), count))
    obs = jnp.ones(spec.batch(spec.observation, 1))
    action = agent.actor.exploit(agent.learner.weights(state), jax.random.key(0), obs).action
    np.testing.assert_allclose(action, np.full(action.shape, best), atol=0.2)


@pytest.mark.parametrize("shape, dtype, features", [((4, 84, 84), "uint8", 11 * 11 * 64), ((84, 84, 4), "uint8", 7744),
                                                    ((10, 10, 6), "float32", 1600)])
def test_images_pass_through_convolutions_whichever_way_they_lie(shape, dtype, features):
    agent = make("ppo", replace(IMAGES, observation=Box(shape, 0, 255, dtype)), SMALL)
    params = jax.eval_shape(agent.learner.init, jax.random.key(0)).params["critic"]["params"]["Torso_0"]
    assert params["Dense_0"]["kernel"].shape == (features, 16)


@pytest.mark.parametrize("case", ["ppo-several", "ppo-box", "impala-several", "mappo", "dqn", "sac"])
def test_parameters_are_in_the_order_in_which_they_are_applied(case):
    """XLA arranges its work by it (msrl/algorithms/networks.py)."""
    name, spec, fields = CASES[case]
    params = jax.eval_shape(make(name, spec, {**fields, "hidden": (17, 18, 19)}).learner.init, jax.random.key(0)).params
    widths = [leaf.shape for leaf in jax.tree.leaves(params) if leaf.ndim == 2]
    assert len(widths) % 4 == 0
    for first, *rest in (widths[at:at + 4] for at in range(0, len(widths), 4)):
        assert [first[1], *(width[0] for width in rest)] == [17, 17, 18, 19]


def test_every_field_of_every_configuration_is_documented():
    for name in ALGORITHMS:
        config = load(name).Config
        lines = [line.strip() for line in inspect.getsource(config).splitlines()]
        for number, line in enumerate(lines):
            if ": " in line and " = " in line and line.split(":")[0].isidentifier():
                assert lines[number + 1].startswith('"""'), f"{config.__name__}: {line}"


CANNOT = {
    "dqn takes no Box": ("dqn", CONTINUOUS, """\
DQN cannot take toy: its actions are Box(2,).
DQN takes actions of these spaces: Discrete.
Use ppo or sac, or another environment."""),
    "sac takes no choices": ("sac", DISCRETE, """\
SAC cannot take toy: its actions are Discrete(4).
SAC takes actions of these spaces: Box of rank 1.
Use ppo or dqn, or another environment."""),
    "sac needs bounds": ("sac", replace(CONTINUOUS, action=Box((2,))), """\
SAC cannot take toy: its actions Box(2,) have no finite bounds.
SAC squashes its actions into [-1, 1], and stretches them to the bounds.
Use ppo, or a wrapper that says what the bounds are."""),
    "sac takes no images": ("sac", replace(IMAGES, action=Box((1,), -1.0, 1.0)), """\
SAC cannot take pictures: its observations are images, Box(10, 10, 3).
SAC's networks are fully connected, and take vectors and choices.
Use ppo, or another environment."""),
    "mappo needs agents": ("mappo", DISCRETE, """\
MAPPO cannot take toy: it has one agent.
MAPPO's critic sees the observations of several agents side by side.
Use ppo or dqn, or another environment."""),
    "mappo takes no images": ("mappo", replace(IMAGES, agents=("a", "b")), """\
MAPPO cannot take pictures: its observations are images, Box(10, 10, 3).
MAPPO's networks are fully connected, and take vectors and choices.
No algorithm here takes it. Flatten it with a wrapper, or write an algorithm of your own: msrl new my_algo.py"""),
    "ppo takes one agent": ("ppo", TEAM, """\
PPO cannot take toy: it has 2 agents.
PPO learns for one agent, whose observations have no agent dimension.
Use mappo, or another environment."""),
    "a3c takes one agent": ("a3c", TEAM, """\
A3C cannot take toy: it has 2 agents.
A3C learns for one agent, whose observations have no agent dimension.
Use mappo, or another environment."""),
    "impala takes vectors": ("impala", replace(CONTINUOUS, action=Box((2, 2))), """\
IMPALA cannot take toy: its actions are Box(2, 2).
IMPALA takes actions of these spaces: Discrete, MultiDiscrete, Box of rank 1.
No algorithm here takes it. Flatten it with a wrapper, or write an algorithm of your own: msrl new my_algo.py"""),
    "ppo takes vectors": ("ppo", replace(CONTINUOUS, action=Box((2, 2))), """\
PPO cannot take toy: its actions are Box(2, 2).
PPO takes actions of these spaces: Discrete, MultiDiscrete, Box of rank 1.
No algorithm here takes it. Flatten it with a wrapper, or write an algorithm of your own: msrl new my_algo.py"""),
}


@pytest.mark.parametrize("case", CANNOT)
def test_what_an_algorithm_cannot_take(case):
    name, spec, message = CANNOT[case]
    with pytest.raises(EnvError) as error:
        make(name, spec, {})
    assert str(error.value) == message


def test_nobody_is_sent_to_an_algorithm_that_refuses_as_well():
    observations = Box((3,)), Box((10, 10, 3)), Discrete(3)
    actions = Discrete(4), MultiDiscrete((2, 3)), Box((2,), -1.0, 1.0), Box((2,)), Box((2, 2))
    for observation, action, agents in itertools.product(observations, actions, ((), ("a", "b"))):
        spec = EnvSpec("any", observation, action, agents)
        for name in ALGORITHMS:
            try:
                make(name, spec, {})
            except EnvError as refused:
                named = re.search(r"Use (\w+)(?: or (\w+))?(?: or (\w+))?, or ", str(refused))
                for other in filter(None, named.groups() if named else ()):
                    make(other, spec, {})
