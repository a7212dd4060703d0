"""The networks of the algorithms once more, in NumPy and double precision, and small specs to try them on."""

import jax
import numpy as np

from msrl.api import Box, Discrete, EnvSpec, MultiDiscrete

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
