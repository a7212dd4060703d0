"""Actor, learner, and the agent they make: pure functions of explicit weights and state."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import optax
from flax import struct

from msrl.api.agreement import agree, apply_gradients


@struct.dataclass
class LearnerState:
    """All that a learner knows. `params` is what training is for; `weights_sha256` is taken over it."""

    params: Any
    opt: Any  # optimiser states
    extra: Any = None  # target networks, temperatures' schedules, ...


class Actor(ABC):
    """Chooses actions. It holds no state: weights and random key come in with every call."""

    sees_all: ClassVar[tuple[str, ...]] = ()
    """Parameters of `act` that have all agents, where others have those of one agent shard."""

    @abstractmethod
    def act(self, weights: Any, key: jax.Array, obs: Any, *extra: Any) -> Any:
        """What to do for obs (B, ...): a pytree with at least `action`. `extra` is what the loop passes along."""

    @abstractmethod
    def exploit(self, weights: Any, key: jax.Array, obs: Any) -> Any:
        """The action to evaluate the policy by: usually its mode."""


class Learner(ABC):
    """Turns batches into better weights."""

    sees_all: ClassVar[tuple[str, ...]] = ()
    """Parameters of `learn` that have all agents, where others have those of one agent shard: for a critic, say."""

    @abstractmethod
    def init(self, key: jax.Array) -> LearnerState: ...

    @abstractmethod
    def learn(self, state: LearnerState, key: jax.Array, batch: Any, *extra: Any) -> tuple[LearnerState, Any]:
        """(state, out): out is what `agent_learn` returns to the loop, usually a dict of metrics. Of several learners,
        the rows of the batch that it has are joined, and of all else the mean is taken."""

    def weights(self, state: LearnerState) -> Any:
        """What actors need of the state. All parameters, unless a subclass sends less."""
        return state.params

    def apply_gradients(self, optimiser: optax.GradientTransformation, params: Any, opt: Any, grads: Any):
        """One optimiser step: (params, opt). The place in which several learners come to agree."""
        return apply_gradients(optimiser, params, opt, grads)

    def agree(self, tree: Any) -> Any:
        """The mean over all learner shards, for what a learner keeps in its state besides what gradients make of it."""
        return agree(tree)


@dataclass(frozen=True)
class Agent:
    actor: Actor
    learner: Learner
