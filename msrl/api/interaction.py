"""The interaction API: all that may cross a boundary between fragments goes through these calls."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any

from msrl.api.env import Step
from msrl.api.record import Record


class Interaction(ABC):
    """What `Trainer.train` is given as `msrl`. The compiler reads the calls; run eagerly, they do the work."""

    @abstractmethod
    def env_reset(self) -> Any:
        """Starts new episodes everywhere: the first observations."""

    @abstractmethod
    def env_step(self, action: Any) -> Step:
        """Steps every environment once."""

    @abstractmethod
    def agent_act(self, obs: Any, *extra: Any) -> Any:
        """What `Actor.act` returns for the observations, under the newest weights."""

    @abstractmethod
    def agent_learn(self, batch: Any, *extra: Any) -> Any:
        """One call of `Learner.learn`: its second result."""

    @abstractmethod
    def replay_buffer_insert(self, buffer: str | None = None, /, **fields: Any) -> None:
        """Stores one record. The buffer's name may be left out if there is only one."""

    @abstractmethod
    def replay_buffer_sample(self, buffer: str | None = None, /) -> Record:
        """Takes a batch of records, fields by attribute."""

    @abstractmethod
    def call(self, component: str, method: str, /, *args: Any) -> Any:
        """Calls a method of a component of one's own, or of a buffer by its name."""

    @abstractmethod
    def report(self, metrics: Any = None, /, **named: Any) -> None:
        """Records metrics: a dict or keywords of scalars."""

    @abstractmethod
    def together(self) -> AbstractContextManager[None]:
        """`with msrl.together():` forbids a fragment boundary between the components called inside."""

    @abstractmethod
    def apart(self) -> AbstractContextManager[None]:
        """`with msrl.apart():` forces a boundary between the components called inside and all others."""
