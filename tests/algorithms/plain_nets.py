"""The networks of the algorithms once more, in NumPy and double precision, and small specs to try them on."""

import jax
import numpy as np

from msrl.api import Box, Discrete, EnvSpec, MultiDiscrete, Record

VECTOR = Box((3,))
DISCRETE = EnvSpec("toy", VECTOR, Discrete(4))
MULTI = EnvSpec("toy", VECTOR, MultiDiscrete((3, 2)))
CONTINUOUS = EnvSpec("toy", VECTOR, Box((2,), -1.0, 1.0))
TEAM = EnvSpec("toy", VECTOR, Discrete(4), agents=("a", "b"))


def some_state(agent, spread=0.4):
    """A learner's state with parameters (and targets) drawn at random, and everything else at zero. Heads that begin
    with a gain of 0.01 would hide mistakes, and this compiles nothing."""
    rng = np.random.default_rng(0)

    def draw(x):
        return np.float32(rng.normal(size=x.shape) * spread) if x.dtype == np.float32 else zero(x)

    def zero(x):
        return np.zeros(x.shape, x.dtype)

    shapes = jax.eval_shape(agent.learner.init, jax.random.key(0))
    return shapes.replace(params=jax.tree.map(draw, shapes.params), opt=jax.tree.map(zero, shapes.opt),
                          extra=jax.tree.map(draw, shapes.extra))


def some_rollout(spec, seed=0, shape=(6, 4)):
    """A rollout of `shape` (T, B) drawn at random: episodes end inside it, one way and the other. Where none ends, a
    step leads to the next one's observation."""
    rng = np.random.default_rng(seed)
    terminated, truncated = rng.random((2, *shape)) < 0.2
    if isinstance(spec.action, Box):
        action = np.float32(rng.normal(size=(*shape, *spec.action.shape)))
    else:
        choices = getattr(spec.action, "nvec", None) or spec.action.n
        action = rng.integers(0, choices, (*shape, *spec.action.shape)).astype(np.int32)
    done = terminated | truncated
    obs, final_obs = np.float32(rng.normal(size=(2, *shape, *spec.observation.shape)))
    final_obs[:-1][~done[:-1]] = obs[1:][~done[:-1]]
    return Record(obs=obs, final_obs=final_obs, action=action, reward=np.float32(rng.normal(size=shape)),
                  log_prob=np.float32(rng.normal(size=shape) * 0.3 - 1.4), terminated=terminated, done=done)


def layers(params):
    """(kernel, bias) of every fully connected layer, from the input on."""
    if "kernel" in params:
        return [(np.float64(params["kernel"]), np.float64(params["bias"]))]
    names = sorted(set(params) - {"log_std"}, key=lambda name: (not name.startswith("Torso"), name))
    return [layer for name in names for layer in layers(params[name])]


def forward(variables, x, activation):
    """The network's outputs for x (..., features)."""
    *hidden, last = layers(variables["params"])
    for kernel, bias in hidden:
        x = activation(x @ kernel + bias)
    return x @ last[0] + last[1]


def relu(x):
    return np.maximum(x, 0.0)


def log_softmax(x):
    return x - np.log(np.exp(x).sum(-1, keepdims=True))
