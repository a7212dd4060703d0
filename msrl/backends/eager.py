"""Runs `Trainer.train` as plain Python, with the reference machine behind the interaction API.

This is what one steps through in a debugger. It gives the same numbers as the interpreter, to the bit
(msrl/backends/plain.py).
"""

import sys
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msrl.api import Interaction, Record, Step, Trainer
from msrl.backends.plain import place, plain_python
from msrl.engines.ops import Layout, values
from msrl.engines.reference import Reference
from msrl.errors import RunError, Span
from msrl.ir.graph import Graph, calls
from msrl.ir.interactions import INTERACTIONS


class Eager(Interaction):
    def __init__(self, machine: Reference, graph: Graph):
        self.machine, self.graph = machine, graph
        # Arrays do not say how they are divided among shards, learners and agents; the graph does, for each call.
        self.layouts: dict[tuple[str, int, str, str], set[Layout]] = {}
        for node in calls(graph.nodes):
            if node.span:
                at = Path(node.span.file).name, node.span.line, node.component, node.method
                self.layouts.setdefault(at, set()).add(machine.ops.layouts.of(node))
        self.resources: dict[str, Any] = {}
        world = machine.world
        self.buffers = world.buffers
        self._init("env", "$env")
        self._init("learner", "$learner", "$weights")
        self._init("metrics", "$metrics")
        for name in (*world.buffers, *world.own):
            self._init(name, f"${name}")

    def _init(self, component: str, *writes: str) -> None:
        _, written = self.machine.apply(component, "init", (), {}, ())
        self.resources.update(zip(writes, written, strict=True))

    def _run(self, interaction: str, component: str, method: str, args: tuple, kwargs: dict[str, Any]) -> Any:
        entry = INTERACTIONS[interaction]
        names = {"buffer": component, "component": component}
        counter = [f"#{component}.{method}"] if entry.keyed else []
        reads = [resource.format(**names) for resource in entry.reads] + counter
        writes = [resource.format(**names) for resource in entry.writes] + counter
        given = tuple(self.resources.get(resource, 0) for resource in reads)
        out, written = self.machine.apply(component, method, args, kwargs, given, self._layout(component, method))
        self.resources.update(zip(writes, written, strict=True))
        return values(out)

    def env_reset(self) -> Any:
        return self._run("env_reset", "env", "reset", (), {})

    def env_step(self, action: Any) -> Step:
        return self._run("env_step", "env", "step", (action,), {})

    def agent_act(self, obs: Any, *extra: Any) -> Any:
        return self._run("agent_act", "actor", "act", (obs, *extra), {})

    def agent_learn(self, batch: Any, *extra: Any) -> Any:
        return self._run("agent_learn", "learner", "learn", (batch, *extra), {})

    def _layout(self, component: str, method: str) -> Layout:
        """Of the line of the trainer that makes the call: the nearest frame that the graph knows."""
        if component == "env":
            return Layout((None,)) if method == "step" else Layout()
        if component not in ("actor", "learner") and (method in ("insert", "sample") or component not in self.buffers):
            return Layout()  # a record's fields have a row for each environment
        frame = sys._getframe(1)
        while (at := (Path(frame.f_code.co_filename).name, frame.f_lineno, component, method)) not in self.layouts:
            assert frame.f_back is not None, "the trainer's loop makes all calls"
            frame = frame.f_back
        if len(self.layouts[at]) > 1:
            raise RunError(
                f"Two calls of `{component}.{method}` on one line divide their arguments otherwise.",
                why=f"Line {at[1]} of {at[0]} stands for several calls, and arrays do not say how they are divided.",
                instead="Give each call a line of its own; a helper method, one kind of argument.")
        return next(iter(self.layouts[at]))

    def replay_buffer_insert(self, buffer: str | None = None, /, **fields: Any) -> None:
        self._run("replay_buffer_insert", self._buffer(buffer), "insert", (), fields)

    def replay_buffer_sample(self, buffer: str | None = None, /) -> Record:
        return self._run("replay_buffer_sample", self._buffer(buffer), "sample", (), {})

    def call(self, component: str, method: str, /, *args: Any) -> Any:
        return self._run("call", component, method, args, {})

    def report(self, metrics: Any = None, /, **named: Any) -> None:
        self._run("report", "metrics", "report", () if metrics is None else (metrics,), named)

    @contextmanager
    def together(self) -> Iterator[None]:
        yield

    @contextmanager
    def apart(self) -> Iterator[None]:
        yield

    def _buffer(self, name: str | None) -> str:
        return name if name is not None else next(iter(self.machine.world.buffers))


def run_eagerly(trainer: Trainer, interaction: Eager, folded: Set[tuple[str, Span]]
                ) -> tuple[dict[str, Any], list[dict[str, float]]]:
    """The resources and reports that the loop leaves. `folded` as of msrl/frontend/lower.py."""
    places = frozenset(place(method, span) for method, span in folded)
    machine = interaction.machine
    plain_python(trainer, interaction.graph, machine.ops.tabular, places).train(interaction)
    return interaction.resources, machine.reports
