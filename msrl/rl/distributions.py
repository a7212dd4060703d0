"""The distributions that policies draw actions from.

In: a network's outputs, with any leading dimensions. Out: actions, and log-probabilities and entropies with those
leading dimensions: they are sums over the entries of one action. What always holds: a distribution is a frozen pytree,
so it can be returned from a compiled function; drawing is a pure function of the key.
"""

import math
from abc import abstractmethod

import jax
import jax.numpy as jnp
from flax import struct

_LOG_2PI = math.log(2.0 * math.pi)
_EDGE = 1.0 - 1e-6  # how near to -1 and 1 a squashed action may come before its logit is out of float32's reach


class Distribution(struct.PyTreeNode):
    """What all of them offer. `entropy` is there where it has a closed form."""

    @abstractmethod
    def sample(self, key: jax.Array) -> jax.Array: ...

    @abstractmethod
    def log_prob(self, action: jax.Array) -> jax.Array: ...

    @abstractmethod
    def mode(self) -> jax.Array:
        """The action by which the policy is evaluated."""

    def sample_and_log_prob(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        action = self.sample(key)
        return action, self.log_prob(action)


class Categorical(Distribution):
    """One of n choices."""

    log_p: jax.Array  # (..., n)

    @classmethod
    def from_logits(cls, logits: jax.Array) -> "Categorical":
        """By log-probabilities that need not be normalised. Done once here, not in every method: XLA would share it
        forwards, but not in the gradient."""
        return cls(jax.nn.log_softmax(logits))

    def sample(self, key):  # (...,) int32
        return jax.random.categorical(key, self.log_p).astype(jnp.int32)

    def log_prob(self, action):
        return jnp.take_along_axis(self.log_p, jnp.expand_dims(action, -1), axis=-1)[..., 0]

    def entropy(self):
        # A choice that is ruled out (-inf) adds 0, where 0 * -inf would be nan.
        return -jnp.sum(jnp.exp(self.log_p) * jnp.where(self.log_p > -jnp.inf, self.log_p, 0.0), axis=-1)

    def mode(self):
        return jnp.argmax(self.log_p, axis=-1).astype(jnp.int32)


class MultiCategorical(Distribution):
    """Several independent choices."""

    parts: tuple[Categorical, ...]

    @classmethod
    def from_logits(cls, logits: jax.Array, nvec: tuple[int, ...]) -> "MultiCategorical":
        """The logits of all choices stand side by side: (..., sum(nvec))."""
        ends = [sum(nvec[: i + 1]) for i in range(len(nvec))]
        return cls(tuple(Categorical.from_logits(logits[..., end - n : end]) for n, end in zip(nvec, ends)))

    def sample(self, key):  # (..., len(nvec)) int32
        keys = jax.random.split(key, len(self.parts))
        return jnp.stack([part.sample(k) for part, k in zip(self.parts, keys)], axis=-1)

    def log_prob(self, action):
        return sum(part.log_prob(action[..., i]) for i, part in enumerate(self.parts))

    def entropy(self):
        return sum(part.entropy() for part in self.parts)

    def mode(self):
        return jnp.stack([part.mode() for part in self.parts], axis=-1)


class DiagonalNormal(Distribution):
    """Independent normals."""

    mean: jax.Array  # (..., d)
    log_std: jax.Array  # (..., d), or broadcast to it

    def sample(self, key):  # (..., d)
        noise = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + jnp.exp(self.log_std) * noise

    def log_prob(self, action):
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * z * z - self.log_std - 0.5 * _LOG_2PI, axis=-1)

    def entropy(self):
        return jnp.sum(jnp.broadcast_to(self.log_std, self.mean.shape) + 0.5 * (1.0 + _LOG_2PI), axis=-1)

    def mode(self):
        return self.mean


class TanhNormal(Distribution):
    """Independent normals squashed into (-1, 1). The entropy has no closed form, and so is not offered."""

    mean: jax.Array  # (..., d), before the squashing
    log_std: jax.Array  # (..., d), or broadcast to it

    def sample(self, key):  # (..., d)
        return jnp.tanh(self._normal().sample(key))

    def log_prob(self, action):
        return self._log_prob(jnp.arctanh(jnp.clip(action, -_EDGE, _EDGE)))

    def sample_and_log_prob(self, key):
        """As one step, which never has to undo the squashing: exact, and with gradients, however near the edge."""
        raw = self._normal().sample(key)
        return jnp.tanh(raw), self._log_prob(raw)

    def mode(self):
        """The squashed mean: the median of each entry."""
        return jnp.tanh(self.mean)

    def _normal(self) -> DiagonalNormal:
        return DiagonalNormal(self.mean, self.log_std)

    def _log_prob(self, raw):
        # p(a) = p(u) / |da/du|, with log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)), which never takes log(0)
        log_slope = 2.0 * (math.log(2.0) - raw - jax.nn.softplus(-2.0 * raw))
        return self._normal().log_prob(raw) - jnp.sum(log_slope, axis=-1)
