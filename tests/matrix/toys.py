"""A world of whole numbers, which every mode of execution must get right to the last bit, and one of floats.

The whole-number environment exists in JAX and as a Python object; its rewards, observations and weights are small
integers, so that no sum depends on its order.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from msrl.api import (
    Actor,
    Agent,
    Box,
    Component,
    Config,
    Discrete,
    Env,
    EnvSpec,
    Learner,
    LearnerState,
    Record,
    Step,
    Trainer,
)
from msrl.buffers import Replay, Rollout

SPEC = EnvSpec("corridor", Box((2,), 0, 99, "int32"), Discrete(3), max_episode_steps=7)


def draw(key: jax.Array, shape: tuple[int, ...], most: int) -> jax.Array:
    """Whole numbers below `most`, straight from the key's bits: jax.random takes long to compile."""
    bits = jax.random.key_data(key)[1] + jnp.uint32(40503) * jnp.arange(np.prod(shape, dtype=int), dtype=jnp.uint32)
    return ((bits >> 7) % most).astype(jnp.int32).reshape(shape)


class Corridor(Env):
    """Observes (place, luck). An action moves by 0 to 2 places; place 9 is the end."""

    spec = SPEC

    def init(self, key, num_envs):
        return jnp.zeros((num_envs, 2), jnp.int32)

    def reset(self, state, key):
        state = draw(key, state.shape, 4)
        return state, state

    def step(self, state, action, key):
        final = jnp.stack([state[:, 0] + action, draw(key, action.shape, 5)], 1)  # (B, 2)
        done = final[:, 0] >= 9
        state = jnp.where(done[:, None], draw(key, state.shape, 4), final)
        return state, Step(state, final.sum(1).astype(jnp.float32), done, jnp.zeros_like(done), final)


class HostCorridor(Env):
    """The same kind of corridor as Python and NumPy, with luck of its own."""

    traceable = False
    spec = SPEC

    def init(self, key, num_envs):
        seed = int(np.asarray(jax.random.bits(key)))
        return {"random": np.random.default_rng(seed), "place": np.zeros((num_envs, 2), np.int32)}

    def reset(self, state, key):
        state["place"] = state["random"].integers(0, 4, state["place"].shape).astype(np.int32)
        return state, state["place"].copy()

    def step(self, state, action, key):
        luck = state["random"].integers(0, 5, len(state["place"]))
        final = np.stack([state["place"][:, 0] + np.asarray(action), luck], 1).astype(np.int32)
        done = final[:, 0] >= 9
        fresh = state["random"].integers(0, 4, final.shape).astype(np.int32)
        state["place"] = np.where(done[:, None], fresh, final)
        step = Step(state["place"].copy(), final.sum(1).astype(np.float32), done, np.zeros_like(done), final)
        return state, step


class CalledCorridor(HostCorridor):
    """One that compiled loops may call."""

    draws, called_back = False, True


class WholeActor(Actor):
    def act(self, weights, key, obs, *extra):
        noise = draw(key, obs.shape[:1], 2)
        action = (obs.sum(-1) + weights["w"].sum() + noise) % 3
        for each in extra:
            action = jnp.where(draw(key, obs.shape[:1], 64) < 64 * each, action, 0)
        return Record(action=action.astype(jnp.int32), noise=noise)

    def exploit(self, weights, key, obs):
        return Record(action=(obs.sum(-1) % 3).astype(jnp.int32))


class WholeLearner(Learner):
    def init(self, key):
        return LearnerState({"w": draw(key, (2,), 5)}, {"learnt": jnp.int32(0)})

    def learn(self, state, key, batch, *extra):
        leaves = [leaf.astype(jnp.int32).sum() for leaf in jax.tree.leaves((batch, extra))]
        total = jnp.floor(self.agree((sum(leaves) % 1000 + draw(key, (), 3)).astype(jnp.float32))).astype(jnp.int32)
        learnt = state.opt["learnt"] + 1
        params = {"w": (state.params["w"] * 3 + total) % 97}
        return LearnerState(params, {"learnt": learnt}), {"total": total, "learnt": learnt}


class Tally(Component):
    """Adds up what it is given, and draws."""

    def init(self, key):
        return jnp.zeros((), jnp.int32)

    def add(self, state, key, x):
        state = state + jnp.asarray(x).astype(jnp.int32).sum()
        return state, state

    def draw(self, state, key):
        return state, 1 + draw(key, (), 4)

    def parts(self, state, key, x):
        return state + 1, ((state, x), state + 2)


class HostTally(Component):
    """The same as Python on the host."""

    traceable = False

    def init(self, key):
        return {"sum": 0, "random": np.random.default_rng(int(np.asarray(jax.random.bits(key))))}

    def output_shape(self, method, *args):
        whole = jax.ShapeDtypeStruct((), np.dtype("int32"))
        return {"add": whole, "draw": whole, "parts": ((whole, args[0] if args else None), whole)}[method]

    def add(self, state, key, x):
        state["sum"] += int(np.asarray(x).sum())
        return state, np.int32(state["sum"])

    def draw(self, state, key):
        return state, np.int32(state["random"].integers(1, 5))

    def parts(self, state, key, x):
        state["sum"] += 1
        return state, ((np.int32(state["sum"] - 1), x), np.int32(state["sum"] + 1))


@dataclass(frozen=True)
class SmallConfig(Config):
    num_envs: int = 4
    updates: int = 3
    rollout: int = 4
    tally_on_host: bool = False


class Whole(Trainer):
    """What all whole-number trainers have; each adds a loop."""

    Config = SmallConfig

    def agent(self):
        return Agent(WholeActor(), WholeLearner())

    def buffers(self):
        return {"rollout": Rollout(length=self.config.rollout), "replay": Replay(capacity=24, batch_size=24)}

    def components(self):
        return {"tally": HostTally() if self.config.tally_on_host else Tally()}


class LinearActor(Actor):
    def act(self, weights, key, obs, *extra):
        logits = obs @ weights["w"] + sum(extra)
        return Record(action=jax.random.categorical(key, logits).astype(jnp.int32))

    def exploit(self, weights, key, obs):
        return Record(action=jnp.argmax(obs @ weights["w"], -1).astype(jnp.int32))


class LinearLearner(Learner):
    def __init__(self, inputs: int, actions: int):
        self.shape = inputs, actions

    def init(self, key):
        return LearnerState({"w": 0.1 * jax.random.normal(key, self.shape)}, None)

    def learn(self, state, key, batch, rate=0.01):
        def loss(params):
            chosen = jax.nn.log_softmax(batch.obs @ params["w"])
            return -(jnp.take_along_axis(chosen, batch.action[..., None], -1)[..., 0] * batch.reward).mean()

        value, grads = jax.value_and_grad(loss)(state.params)
        params = jax.tree.map(lambda p, g: p - rate * g, state.params, self.agree(grads))
        return LearnerState(params, None), {"loss": value}


class Linear(Trainer):
    """What all float trainers have."""

    Config = SmallConfig

    def agent(self):
        return Agent(LinearActor(), LinearLearner(self.spec.observation.shape[0], self.spec.action.n))

    def buffers(self):
        return {"rollout": Rollout(length=self.config.rollout)}


class Steady(Linear):
    """Updates of a linear policy, one after the other, and cheap to compile."""

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(self.config.updates):
            for _ in range(self.config.rollout):
                act = msrl.agent_act(obs)
                step = msrl.env_step(act.action)
                msrl.replay_buffer_insert(obs=obs, action=act.action, reward=step.reward)
                obs = step.obs
            msrl.report(msrl.agent_learn(msrl.replay_buffer_sample()))
