"""What all environments on the host share: a batch behind a handle, seeded from a key, NumPy in and NumPy out.

An adapter says how to open a `Batch`; the handle is the environment's whole state slot, and replaces a batch that fails
(supervised.py). It always holds that the seeds are a function of the reset's key alone.
"""

import contextlib
import weakref
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence

import jax
import numpy as np

from msrl.api.env import Env, Step
from msrl.envs.batch import Batch
from msrl.envs.contract import check_bounds
from msrl.envs.spaces import some_action
from msrl.envs.supervised import Supervised
from msrl.errors import EnvError, UsageError


def seeds(key: jax.Array, num_envs: int) -> list[int]:
    """One seed per environment, each in [0, 2**31): the range that every library takes."""
    return (np.asarray(jax.random.bits(key, (num_envs,), "uint32")) >> 1).tolist()


class HostEnv(Env):
    """An environment whose state is a batch behind a handle. Pickles as its name, and so reaches other processes."""

    traceable = draws = False
    called_back = True
    exact = True  # may a batch keep all actions since the start, to be restored to the bit?
    timeout: float | None = None  # how many seconds a step may take
    kind: type  # the library's class, whose methods give what is handed out

    def __init__(self, name: str):
        self.name = name
        self._handles: weakref.WeakSet[Supervised] = weakref.WeakSet()
        self._trouble: deque[Sequence[tuple[str, int]]] = deque()

    def __reduce__(self):
        return type(self), (self.name,), {"exact": self.exact, "timeout": self.timeout}

    @abstractmethod
    def open(self, num_envs: int) -> Batch: ...

    def init(self, key: jax.Array, num_envs: int) -> Supervised:
        def fresh() -> Batch:
            batch = self.open(num_envs)
            batch.agents, batch.exact = bool(self.spec.agents), batch.exact and self.exact
            return batch

        handle = Supervised(fresh, self.timeout)
        with contextlib.suppress(IndexError):  # one handle has it all: those for evaluation are made later
            handle.trouble(self._trouble.popleft())
        self._handles.add(handle)
        return handle

    def reset(self, state: Supervised, key: jax.Array) -> tuple[Supervised, np.ndarray]:
        return state, state.begin(seeds(key, len(state)))

    def step(self, state: Supervised, action: np.ndarray, key: jax.Array) -> tuple[Supervised, Step]:
        # A copy: one that hangs keeps what it was given, for longer perhaps than there is a JAX to free it.
        return state, state.play(np.array(action))

    def probe(self) -> None:
        """Resets and steps one environment, so that one which breaks its promises is refused before anything is
        compiled. What else goes wrong is left to the run, which tries again."""
        space = self.spec.action
        action = np.broadcast_to(some_action(space), self.spec.batch(space, 1)).astype(space.dtype)
        try:
            handle = Supervised(lambda: self.open(1), self.timeout)
            with contextlib.closing(handle):
                first, step = handle.probe(action)
        except EnvError:
            raise
        except Exception:
            return
        check_bounds(first, self.spec.observation, self.kind, "reset")
        check_bounds(step.final_obs, self.spec.observation, self.kind, "step")

    def trouble(self, faults: Sequence[tuple[str, int]]) -> None:
        if self.timeout is None and any(kind == "hang" for kind, _ in faults):
            raise UsageError("--chaos hang:env would hang for ever.",
                             why="A step of the environment may take any time.",
                             instead="Say how many seconds it may take: --env-timeout 5",
                             docs="docs/reliability.md#faults-on-purpose")
        self._trouble.clear()
        if faults:
            self._trouble.append(tuple(faults))

    def close(self) -> None:
        for handle in list(self._handles):
            handle.close()
