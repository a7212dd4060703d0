"""The interaction API as the compiler sees it: which call is which op, and which resources it touches.

One table, so that the front end, the eager runtime and the docs cannot disagree.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interaction:
    """`{buffer}` stands for the buffer's name and `{component}` for that of a component of the user's own."""

    name: str
    component: str
    method: str
    signature: str  # as shown to the user
    positional: tuple[int, int | None]  # at least, at most
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    fields: bool = False  # takes keywords
    value: bool = True  # gives a value to the loop
    keyed: bool = True  # draws random numbers, and so counts its calls in a resource of its own


INTERACTIONS = {
    entry.name: entry
    for entry in (
        Interaction("env_reset", "env", "reset", "msrl.env_reset()", (0, 0), ("$env",), ("$env",)),
        Interaction("env_step", "env", "step", "msrl.env_step(action)", (1, 1), ("$env",), ("$env",)),
        Interaction("agent_act", "actor", "act", "msrl.agent_act(obs, *extra)", (1, None), ("$weights",), ()),
        Interaction("agent_learn", "learner", "learn", "msrl.agent_learn(batch, *extra)", (1, None),
                    ("$learner",), ("$learner", "$weights")),
        Interaction("replay_buffer_insert", "{buffer}", "insert", "msrl.replay_buffer_insert(field=value, ...)",
                    (0, 0), ("${buffer}",), ("${buffer}",), fields=True, value=False, keyed=False),
        Interaction("replay_buffer_sample", "{buffer}", "sample", "msrl.replay_buffer_sample()", (0, 0),
                    ("${buffer}",), ("${buffer}",)),
        Interaction("call", "{component}", "", 'msrl.call("component", "method", *args)', (0, None),
                    ("${component}",), ("${component}",)),
        Interaction("report", "metrics", "report", "msrl.report(metrics) or msrl.report(name=value, ...)",
                    (0, 1), ("$metrics",), ("$metrics",), fields=True, value=False, keyed=False),
    )
}

ANNOTATIONS = ("together", "apart")
