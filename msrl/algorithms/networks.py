"""Networks made for spaces, and the distributions that go with them.

In: spaces of one environment (and one agent), observations with any leading dimensions. Out: flax modules. What always
holds: sizes come from the spaces, observations are taken as the environment gives them (integers and bytes too), and
parameters are named so that JAX, which sorts names, has them in the order in which they are applied: XLA arranges its
work by it, and a gradient step of PPO took a tenth longer with the last layer first.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from msrl.api import Box, Discrete, MultiDiscrete, Space
from msrl.rl import Categorical, DiagonalNormal, Distribution, MultiCategorical, rows_times_weights

Activation = Callable[[jax.Array], jax.Array]
_LARGE_IMAGE = 32  # from this side on, an image is worth shrinking by strides


def dense(width: int, gain: float, name: str | None = None) -> nn.Dense:
    """A layer with orthogonal weights scaled by `gain` and no bias to begin with."""
    return nn.Dense(width, kernel_init=nn.initializers.orthogonal(gain), dot_general=rows_times_weights, name=name)


def encode(space: Space, obs: jax.Array) -> jax.Array:
    """Observations as floats: choices one-hot, bytes in [0, 1], images (..., height, width, channels), else vectors."""
    match space:
        case Discrete(n=n):
            return jax.nn.one_hot(obs, n)
        case MultiDiscrete(nvec=nvec):
            return jnp.concatenate([jax.nn.one_hot(obs[..., i], n) for i, n in enumerate(nvec)], axis=-1)
        case Box(shape=shape, dtype=dtype):
            obs = obs.astype(jnp.float32) / 255.0 if dtype == "uint8" else obs.astype(jnp.float32)
            if len(shape) != 3:
                return obs.reshape(*obs.shape[: obs.ndim - len(shape)], math.prod(shape))
            # Channels are fewer than pixels: where they come first, they are moved last.
            return jnp.moveaxis(obs, -3, -1) if shape[0] < shape[2] else obs


class Torso(nn.Module):
    """Observation to features (..., width): convolutions if it is an image, then fully connected layers."""

    space: Space
    hidden: tuple[int, ...]
    activation: Activation = nn.tanh

    @nn.compact
    def __call__(self, obs: jax.Array) -> jax.Array:
        x = encode(self.space, obs)
        if len(self.space.shape) == 3:
            small = min(x.shape[-3:-1]) < _LARGE_IMAGE
            layers = ((16, 3, 1),) if small else ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # channels, kernel, stride
            for channels, kernel, stride in layers:
                init = nn.initializers.orthogonal(math.sqrt(2.0))
                x = nn.relu(nn.Conv(channels, (kernel, kernel), (stride, stride), padding="SAME", kernel_init=init)(x))
            x = x.reshape(*x.shape[:-3], math.prod(x.shape[-3:]))
        for width in self.hidden:
            x = self.activation(dense(width, math.sqrt(2.0))(x))
        return x


class Network(nn.Module):
    """Observation to `outputs` numbers: (..., outputs)."""

    space: Space
    outputs: int
    hidden: tuple[int, ...]
    activation: Activation = nn.tanh
    gain: float = 1.0

    @nn.compact
    def __call__(self, obs: jax.Array) -> jax.Array:
        return dense(self.outputs, self.gain, "output")(Torso(self.space, self.hidden, self.activation)(obs))


class Policy(nn.Module):
    """Observation to the distribution of actions. Normals have a spread that is learnt, but the same in all states."""

    observation: Space
    action: Space
    hidden: tuple[int, ...]
    activation: Activation = nn.tanh

    @nn.compact
    def __call__(self, obs: jax.Array) -> Distribution:
        outputs, distribution = distribution_for(self.action)
        # A small gain: the first policy is nearly the same everywhere, and explores.
        if not isinstance(self.action, Box):
            return distribution(Network(self.observation, outputs, self.hidden, self.activation, 0.01)(obs))
        mean = Network(self.observation, outputs // 2, self.hidden, self.activation, 0.01)(obs)
        log_std = self.param("log_std", nn.initializers.zeros_init(), mean.shape[-1:])
        return distribution(jnp.concatenate([mean, jnp.broadcast_to(log_std, mean.shape)], axis=-1))


def distribution_for(space: Space, normal: type[Distribution] = DiagonalNormal) -> tuple[int, Any]:
    """(outputs, constructor): how many numbers a network has to give for actions of this space, and what makes a
    distribution of them. A Box takes twice its size: means, then logarithms of standard deviations."""
    match space:
        case Discrete(n=n):
            return n, Categorical.from_logits
        case MultiDiscrete(nvec=nvec):
            return sum(nvec), partial(MultiCategorical.from_logits, nvec=nvec)
        case Box(shape=(size,)):
            return 2 * size, lambda outputs: normal(*jnp.split(outputs, 2, axis=-1))
    raise TypeError(f"no distribution for actions in {space}")


def clip_each(max_norm: float) -> optax.GradientTransformation:
    """Cuts the gradients of each network in a dict of them to `max_norm`. Under one norm for all, a critic whose errors
    are large would scale the policy's steps down to nothing."""
    one = optax.clip_by_global_norm(max_norm)
    return optax.stateless(lambda grads, _: {name: one.update(g, optax.EmptyState())[0] for name, g in grads.items()})
