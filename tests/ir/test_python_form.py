"""Local programs as Python: the functions of all fragments, run together, make the calls that the graph means."""

import ast
import builtins
import queue
import threading
from collections import Counter, defaultdict
from contextlib import nullcontext

import pytest

from msrl import distribution as distributions
from msrl.distribution.place import place
from msrl.frontend.lower import lower
from msrl.ir.axes import find_axes
from msrl.ir.graph import Flush, Recv, Send, base
from msrl.ir.interp import Host, interpret
from msrl.ir.python_form import show
from msrl.ir.text import parse
from msrl.passes.coalesce_moves import coalesce_moves
from msrl.passes.fuse_stretches import fuse_stretches
from msrl.projection.project import project
from tests.ir.symbols import Symbol
from tests.matrix.loops import LOOPS
from tests.matrix.toys import SPEC

HELPERS = {"part_": lambda whole, dim: whole,
           "unpack_": lambda whole, count: tuple(whole[number] for number in range(count))}


def scope(code: str, **more) -> dict:
    """What an expression sees: helpers, Python's own functions, and symbols for all else."""
    names = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    return {**{name: Symbol(name) for name in names if not hasattr(builtins, name)}, **HELPERS, **more}


class Trace:
    """Calls by component, in order, each with what it was given."""

    def __init__(self):
        self.calls: dict[str, list[str]] = defaultdict(list)
        self.counts: Counter = Counter()

    def call(self, component: str, method: str, args: tuple, kwargs: dict) -> Symbol:
        self.counts[component, method] += 1
        self.calls[component].append(f"{method}{args}{kwargs}")
        return Symbol(f"{component}.{method}#{self.counts[component, method]}")


class Meaning(Host):
    def __init__(self, graph):
        self.trace, self.own = Trace(), {f"${name}" for name, _ in graph.components}

    def call(self, node, args, kwargs, reads):
        shown = [value for name, value in zip(node.reads, reads, strict=True)
                 if name[0] == "$" and base(name) not in self.own]
        out = self.trace.call(node.component, node.method, (*shown, *args), kwargs)
        return out, (out,) * len(node.writes)

    def pure(self, node, inputs):
        return eval(node.expr, scope(node.expr), inputs)


class Object:
    """A component as the functions see it."""

    def __init__(self, name: str, trace: Trace):
        self._name, self._trace = name, trace

    def __getattr__(self, method: str):
        return lambda *args, **kwargs: self._trace.call(self._name, method, args, kwargs)


def optimised(placed):
    """The local programs as all passes leave them."""
    programs = coalesce_moves(project(placed), {move.id: move for move in placed.moves})
    return {name: fuse_stretches(program, lambda node: not isinstance(node, (Send, Recv, Flush)), ())
            for name, program in programs.items()}


def run_functions(placed, programs) -> Trace:
    trace, problems = Trace(), []
    channels: dict[tuple[str, str], queue.Queue] = defaultdict(queue.Queue)
    objects = {name: Object(name, trace) for name, _ in placed.graph.components}

    def function(name: str, code: str):
        held: dict[str, list] = defaultdict(list)
        seen = scope(code, **objects, compiled=nullcontext(),
                     send=lambda value, to, by: channels[name, to].put(value),
                     hold=lambda value, to, by: held[to].append(value),
                     flush=lambda to: [channels[name, to].put(value) for value in held.pop(to, ())],
                     receive=lambda what, source, by: channels[source, name].get(timeout=20))
        exec(code, seen)
        return seen[f"{name}_fragment"]

    def work(run) -> None:
        try:
            run()
        except BaseException as problem:
            problems.append(problem)

    # All are read before any is run: Python 3.11 cannot read source in two threads at a time.
    threads = [threading.Thread(target=work, args=(run,))
               for run in [function(name, show(program, placed)) for name, program in programs.items()]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    return trace


def placed_under(graph, distribution: str, with_actors: frozenset[str] = frozenset()):
    axes = find_axes(graph, dict.fromkeys(with_actors, "shard"))
    return place(graph, distributions.load(distribution).fragments(graph, with_actors), axes)


@pytest.mark.parametrize("passes", [project, optimised])
@pytest.mark.parametrize("distribution", ["local", "single-learner-coarse", "single-learner-fine"])
@pytest.mark.parametrize("name", LOOPS)
def test_functions_together_mean_the_graph(name, distribution, passes):
    trainer = LOOPS[name](LOOPS[name].Config(), SPEC)
    buffers = trainer.buffers()
    graph = lower(trainer, tuple(buffers), tuple(trainer.components()))
    meaning = Meaning(graph)
    interpret(graph, meaning)
    assert meaning.trace.calls["env"]
    with_actors = frozenset(each for each, buffer in buffers.items() if buffer.home == "actor")
    placed = placed_under(graph, distribution, with_actors)
    assert run_functions(placed, passes(placed)).calls == meaning.trace.calls


SWAP = """\
graph Swap {
  component env: env
  component actor: actor
  component learner: learner
  | $env.1 = env.init()
  | $learner.1 $weights.1 = learner.init()
  #env.reset.1 = pure "0" in train
  #env.step.1 = pure "0" in train
  a.1 | $env.2 #env.reset.2 = env.reset() | $env.1 #env.reset.1
  b.1 | $env.3 #env.reset.3 = env.reset() | $env.2 #env.reset.2
  for i.1 in 0, 3, 1 {
    carry a.2 = a.1 next b.2 out a.4
    carry b.2 = b.1 next a.2 out b.4
    carry $env.4 = $env.3 next $env.6 out $env.7
    carry #env.step.2 = #env.step.1 next #env.step.4 out #env.step.5
    c.1 | $env.5 #env.step.3 = env.step(a.2) | $env.4 #env.step.2
    c.2 | $env.6 #env.step.4 = env.step(b.2) | $env.5 #env.step.3
    t.1 = pure "c + d" c=c.1 d=c.2 in train
    t.2 | = learner.note(t.1)
  }
  results $env.7 $learner.1 $weights.1
}
"""


def test_versions_are_told_apart_where_one_name_would_not_do():
    graph = parse(SWAP)
    placed = placed_under(graph, "local")
    assert show(project(placed)["all"], placed) == '''\
def all_fragment():
    """env, actor, learner"""
    env.init()
    weights = learner.init()
    a = env.reset()
    b = env.reset()
    for i in range(3):
        c_1 = env.step(a)
        c_2 = env.step(b)
        t = c_1 + c_2
        learner_note = learner.note(t)
        a, b = b, a
'''
    meaning = Meaning(graph)
    interpret(graph, meaning)
    assert run_functions(placed, project(placed)).calls == meaning.trace.calls
