"""n-step transitions: a window in front of a replay, which sums rewards until n steps or the episode's end.

In: 1-step records with the fields obs, action, reward, terminated, truncated, final_obs, and any others. Out, by the
inner replay: obs, action and the others of a first step; `reward`, the sum of gamma^k times the k-th reward over the m
steps used; `final_obs`, what the last of these led to; `discount` (B,), gamma^m, or 0 if that one terminated. The
n-step target is thus reward + discount * value(final_obs), also where an episode was truncated.

Always: every step is the first step of exactly one record, n - 1 inserts later, and no record reaches beyond the end
of its episode. Consecutive inserts are taken for consecutive steps of the same environments.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from msrl.api import Buffer, Record
from msrl.buffers import item as items
from msrl.buffers.prioritised import PrioritisedReplay
from msrl.buffers.replay import Replay
from msrl.errors import TypeCheckError, UsageError

SUMMED = ("reward", "terminated", "truncated", "final_obs")
REQUIRED = ("obs", "action", *SUMMED)


@struct.dataclass
class NStepState:
    window: Record  # leaves (n, B, ...): the last n steps, a ring
    count: Any  # () int32: inserts so far up to 2n - 1, from where it goes back to n (no overflow, same rest modulo n)
    inner: Any


@dataclass(frozen=True)
class NStep(Buffer):
    inner: Replay | PrioritisedReplay
    """Where the n-step transitions are stored."""
    n: int
    """Steps summed at most."""
    gamma: float
    """Discount per step."""

    home = "learner"

    def __post_init__(self):
        items.check_options("NStep", "auto", n=self.n)
        if not 0 <= self.gamma <= 1:
            raise UsageError(f"NStep: gamma={self.gamma} is not between 0 and 1.",
                             why="It discounts the rewards of later steps.",
                             instead="Use the discount that the learner uses, such as gamma=0.99.")

    @property
    def traceable(self) -> bool:
        return self.inner.traceable

    def for_env(self, traceable: bool) -> "NStep":
        return replace(self, inner=self.inner.for_env(traceable))

    def divide(self, count: int) -> "NStep":
        return replace(self, inner=self.inner.divide(count))

    def output_shape(self, method: str, item: Record, *args: Any) -> Any:
        return items.traced_shape(replace(self, inner=replace(self.inner, where="device")), method, item)

    def init(self, item: Record) -> NStepState:
        shapes, batch = items.check_first("NStep", item)
        missing = [field for field in REQUIRED if field not in item.asdict()]
        if missing:
            raise TypeCheckError(f"NStep is given records without {', '.join(missing)}.",
                                 why=f"Summing over steps takes the fields {', '.join(REQUIRED)}.",
                                 instead="Insert them: replay_buffer_insert(obs=obs, action=act.action, "
                                         "reward=step.reward, ...).")
        for field in ("terminated", "truncated"):
            leaf = shapes.asdict()[field]
            if leaf.shape != (batch,) or leaf.dtype != bool:
                raise TypeCheckError(f"NStep: field {field} is {items.show(leaf)}, and should be bool[{batch}].",
                                     why="It says for every environment whether the episode ended.",
                                     instead=f"Insert {field}=step.{field}.")
        if "discount" in item.asdict():
            raise TypeCheckError("NStep is given a field of the name discount.",
                                 why="Its records have a field of that name already, which the buffer itself adds.",
                                 instead="Give the field another name.")
        xp = jnp if self.traceable else np
        window = jax.tree.map(lambda x: xp.zeros((self.n, *x.shape), x.dtype), shapes)
        emitted = jax.eval_shape(lambda w: self.emit(jnp, w, 0), window)
        return NStepState(window, count=xp.zeros((), np.int32), inner=self.inner.init(emitted))

    def insert(self, state: NStepState, item: Record) -> NStepState:
        items.check_next("NStep", state.window, item, lead=1)
        newest, warm = state.count % self.n, state.count >= self.n - 1
        following = state.count + 1 - self.n * (state.count == 2 * self.n - 1)

        if self.traceable:
            def put(x, new):
                return jax.lax.dynamic_update_index_in_dim(x, jnp.asarray(new, x.dtype), newest, axis=0)

            window = jax.tree.map(put, state.window, item)
            inner = self.inner.insert_if(state.inner, self.emit(jnp, window, newest), warm)
            return NStepState(window, following, inner)

        def put_in_place(x, new):
            x[newest] = new

        jax.tree.map(put_in_place, state.window, item)
        self.inner.insert_if(state.inner, self.emit(np, state.window, newest), warm)
        state.count[...] = following
        return state

    def sample(self, state: NStepState, key: jax.Array) -> tuple[NStepState, Record]:
        inner, batch = self.inner.sample(state.inner, key)
        return (state.replace(inner=inner) if self.traceable else state), batch

    def update(self, state: NStepState, key: jax.Array, index: Any, priority: Any) -> tuple[NStepState, None]:
        """`PrioritisedReplay.update` of the inner replay."""
        if not isinstance(self.inner, PrioritisedReplay):
            raise UsageError(f"NStep over {type(self.inner).__name__} has no priorities to update.",
                             instead="Use NStep(PrioritisedReplay(...), ...), or leave the update out.")
        inner, out = self.inner.update(state.inner, key, index, priority)
        return (state.replace(inner=inner) if self.traceable else state), out

    def emit(self, xp: Any, window: Record, newest: Any) -> Record:
        """The record (leaves (B, ...)) that starts with the window's oldest step; `xp` is NumPy or jax.numpy."""
        order = (newest + 1 + xp.arange(self.n)) % self.n  # (n,) rows, oldest first
        done = (window.terminated | window.truncated)[order]  # (n, B)
        used = xp.cumsum(done, axis=0) - done == 0  # (n, B): no end before this step
        steps = used.sum(axis=0)  # (B,) 1 to n
        rewards = window.reward[order].astype(np.float32)  # (n, B) or (n, B, N)
        factors = (self.gamma ** np.arange(self.n + 1)).astype(np.float32)
        reward = xp.zeros(rewards.shape[1:], np.float32)
        for k in range(self.n):
            use = used[k].reshape(used[k].shape + (1,) * (reward.ndim - 1))
            reward = reward + xp.where(use, factors[k] * rewards[k], 0)

        last = order[steps - 1], np.arange(steps.shape[0])  # the last step used, per environment
        discount = xp.where(window.terminated[last], np.float32(0), xp.asarray(factors)[steps])
        carried = {field: x for field, x in window.asdict().items() if field not in SUMMED}
        return Record(reward=reward, discount=discount,
                      final_obs=jax.tree.map(lambda x: x[last], window.final_obs),
                      **jax.tree.map(lambda x: x[order[0]], carried))
