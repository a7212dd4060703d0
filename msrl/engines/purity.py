"""Finds components that a compiled program would get wrong: what they compute depends on more than their arguments.

In: ops with the traces that their shapes were found by. Out: nothing, or a PurityError with the author's line; a
PurityWarning where something is done that the program does not depend on. A compiled program keeps what Python did when
it was traced. So every op is traced once more and both traces are compared, and the state that the author's code can
see (msrl/engines/author_state.py) is looked at before and after. Programs without an author's code are not checked.
"""

import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from types import CodeType, FrameType
from typing import Any

import jax

from msrl.engines.author import find_line, is_authors, is_pythons
from msrl.engines.author_state import NUMPYS, PYTHONS, AuthorState, Generator, Traced, changed
from msrl.engines.jaxpr_difference import SAME, find_difference
from msrl.engines.library import Ops, Trace
from msrl.engines.shapes import Shapes, find_shapes
from msrl.engines.tables import Tabular, typical
from msrl.engines.world import World
from msrl.errors import PurityError, PurityWarning, Span
from msrl.ir.graph import Graph, Pure

DOCS = "docs/loop-language.md#components-are-pure"
ONCE = "Python runs once, while the loop is being compiled: "
CARRY = ("Make it a value of the loop, which is given to the method and returned by it; or keep it in the state of a "
         "learner or a component.")
EXPRESSION = "<loop expression>"  # the file of what msrl/engines/scopes.py makes
CLOCKS = {"now", "utcnow", "today"}  # methods of `datetime`'s classes


@dataclass(frozen=True)
class Line:
    """A line that runs, and the function that it is in."""

    function: str
    span: Span
    about: str = ""  # what is called there


def components_of(world: World) -> list[Any]:
    """Those that are compiled."""
    each = (world.env, *world.buffers.values(), *world.own.values())
    return [world.agent.actor, world.agent.learner, world.agent, world.trainer, *(one for one in each if one.traceable)]


class Purity:
    """Made before ops are traced for the first time."""

    def __init__(self, ops: Ops):
        self.ops, self.world = ops, ops.world
        self.state = AuthorState(components_of(ops.world))
        self.authored = len(self.state.roots) > 2  # more than Python's and NumPy's generators
        self.before = self.state.take()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Around the first traces: if one fails because of what another left behind, that is what to tell."""
        try:
            yield
        except Exception as problem:
            self._check_left(problem)
            raise

    def check(self, tabular: Tabular, always: bool = False) -> None:
        """Traces every op again. `always`: also where all code is ours."""
        if not (self.authored or always):
            return
        self._check_left(None)
        self._add_exploit()
        for node in tabular.makers.values():
            self._add_table(node, tabular)
        for trace in self.ops.traces.values():
            self._check_op(trace)
        self.before = self.state.take()

    def check_unchanged(self) -> None:
        """Before a run: what was compiled is what the author's code says now."""
        if found := self._find_outdated():
            path, title = found
            raise PurityError(
                f"`{path}` has changed since the program was compiled.",
                why=f"`{title}` was compiled with what it was then.",
                instead="Set it before `msrl.compile`, or compile again.", docs=DOCS)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Around a run. What was changed meanwhile had no effect."""
        self.check_unchanged()
        yield
        if found := self._find_outdated():
            path, title = found
            warnings.warn(f"`{path}` was changed during the run, which had no effect: `{title}` was compiled before. "
                          f"See {DOCS}.", PurityWarning, stacklevel=3)

    def _find_outdated(self) -> tuple[str, str] | None:
        """What has changed since it was last looked at, and what would be compiled in another way for it."""
        now = self.state.take() if self.authored else {}
        paths = [path for path in changed(self.before, now) if path not in (PYTHONS, NUMPYS)] if now else []
        self.before = now or self.before
        for trace in self.ops.traces.values() if paths else ():
            if find_difference(trace.jaxpr, self._trace_again(trace)) is not SAME:
                return _shown(paths[0]), self._title(trace)
        return None

    def _add_exploit(self) -> None:
        """Evaluation calls it, and not the loop. With agent shards it is called in another way, and not checked."""
        act = self.ops.traces.get(("actor", "act"))
        if act is None or not act.given[2] or self.world.config.agent_shards > 1:
            return
        key = jax.ShapeDtypeStruct((), act.given[0].dtype)
        given, exploit = (act.given[1][0], key, act.given[2][0]), self.world.agent.actor.exploit

        def make(_: Ops) -> Callable[..., Any]:
            return lambda *given: exploit(*given)

        with suppress(Exception):  # which evaluation will tell of: it may be given other observations
            jaxpr = jax.jit(make(self.ops)).trace(*given).jaxpr
            self.ops.traces["actor", "exploit"] = Trace("actor", "exploit", make, given, jaxpr)

    def _add_table(self, node: Pure, tabular: Tabular) -> None:
        """Expressions of loop indices are Python's, which computes them as often as it likes."""

        def make(ops: Ops) -> Callable[..., Any]:
            def evaluate() -> Any:
                with jax.ensure_compile_time_eval():
                    return typical(node.out, tabular, ops.scopes)
            return evaluate

        with suppress(TypeError):  # it does not give numbers, and is part of an expression that does
            jaxpr = jax.jit(make(self.ops)).trace().jaxpr
            self.ops.traces["train", node.out] = Trace("train", node.out, make, (), jaxpr, node)

    # -- one op ------------------------------------------------------------------------------------------------------

    def _check_op(self, trace: Trace) -> None:
        before, calls = self.state.take(), list[Line]()
        with _watched_calls(calls, trace.node) if self.state.suspect else nullcontext():
            again = self._trace_again(trace)
        paths, different = changed(before, self.state.take()), find_difference(trace.jaxpr, again)
        if different is not SAME:
            raise self._different(trace, paths, different)
        for path in paths:
            line = self._find_change(trace, path)
            if line is None:  # another thread's doing
                continue
            if isinstance(self.state.read(path), Generator):
                raise _drawn(line, path)
            _warn(line, f"`{line.function}` changes `{_shown(path)}` while it is traced.",
                  f"{ONCE}it is changed then, and not when the loop runs.")
        for line in dict.fromkeys(calls):
            _warn(line, f"`{line.function}` calls `{line.about}` while it is traced.",
                  f"{ONCE}it is called then, and not when the loop runs.")

    def _different(self, trace: Trace, paths: list[str], equation: Any) -> PurityError:
        for path in paths:
            line = self._find_change(trace, path)
            if line is not None:
                return _drawn(line, path) if isinstance(self.state.read(path), Generator) else PurityError(
                    f"`{line.function}` changes `{_shown(path)}`, which it depends on.", span=line.span,
                    why=f"{ONCE}every call of the run would be that one call.", instead=CARRY, docs=DOCS)
        calls: list[Line] = []
        with suppress(Exception), _watched_calls(calls, trace.node):
            self._trace_afresh(trace)
        if calls:
            return PurityError(
                f"`{calls[0].function}` calls `{calls[0].about}`.", span=calls[0].span,
                why=f"{ONCE}every call of the run would have what it gave then.",
                instead="Draw with the key that the method is given: `jax.random.uniform(key)`."
                if calls[0].about == "os.urandom" else
                "Leave clocks to a component with `traceable = False`, or to what iterates over `program.run()`.",
                docs=DOCS)
        others = changed(self.before, self.state.take())
        cause = f"{_quoted(others[0])} had changed." if others else "something that it reads had changed."
        line = _line_of(equation) or _expression(trace)
        return PurityError(
            f"`{line.function if line else self._title(trace)}` computes something else when it is traced again.",
            span=line.span if line else self._definition(trace), why=f"The second time, {cause} {ONCE}every call of "
            "the run would compute what it did then.", instead=CARRY, docs=DOCS)

    def _check_left(self, problem: Exception | None) -> None:
        """Values of the program that are kept where the program is not."""
        left = [path for path, value in self.state.take().items() if isinstance(value, Traced)]
        if not left:
            return
        self.state.reset()
        line = next(filter(None, (self._find_change(trace, left[0]) for trace in self.ops.traces.values())), None)
        who = line.function if line else type(self.world.trainer).__name__
        raise PurityError(
            f"`{who}` keeps a value of the program in `{_shown(left[0])}`.", span=line.span if line else None,
            why="It is compiled: its values exist while the program runs, and Python has but a stand-in for them.",
            instead=CARRY, docs=DOCS) from problem

    def _trace_again(self, trace: Trace) -> Any:
        try:
            return self._trace_afresh(trace)
        except Exception as problem:
            self._check_left(problem)
            raise PurityError(
                f"`{self._title(trace)}` fails when it is traced again: {type(problem).__name__}.",
                span=self._definition(trace), why=str(problem).strip().split("\n\n")[0],
                instead="Let it depend on nothing but its arguments.", docs=DOCS) from problem

    def _trace_afresh(self, trace: Trace) -> Any:
        fresh = self.ops.with_buffers({})  # these have traced nothing yet
        return jax.jit(partial(trace.make(fresh))).trace(*trace.given).jaxpr

    # -- whose line --------------------------------------------------------------------------------------------------

    def _find_change(self, trace: Trace, path: str) -> Line | None:
        """The line of the author's that changes what has this path, when the op is traced."""
        found: list[Line] = []
        last = first = self.state.read(path)
        lines: dict[FrameType, int] = {}

        def watch(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal last
            if found or not is_authors(frame.f_code.co_filename):
                return None
            now = self.state.read(path)
            if now != last:  # by the line before; of a function that begins, by the one that calls it
                doer: FrameType | None = frame
                while doer is not None and doer not in lines:
                    doer = doer.f_back
                if doer is not None:
                    found.append(Line(_name(doer.f_code), find_line(doer.f_code.co_filename, lines[doer])))
            last, lines[frame] = now, frame.f_lineno
            return watch

        before = sys.gettrace()
        sys.settrace(watch)
        try:
            with suppress(Exception):
                self._trace_afresh(trace)
        finally:
            sys.settrace(before)
        if found or self.state.read(path) == first:
            return found[0] if found else None
        return _expression(trace)

    def _component(self, trace: Trace) -> Any:
        world = self.world
        return {"train": world.trainer, "env": world.env, "actor": world.agent.actor, "learner": world.agent.learner,
                **world.buffers, **world.own}[trace.component]

    def _title(self, trace: Trace) -> str:
        method = "train" if trace.node else trace.method
        return f"{type(self._component(trace)).__name__}.{method}"

    def _definition(self, trace: Trace) -> Span | None:
        method = getattr(type(self._component(trace)), trace.method, None)
        code = getattr(inspect.unwrap(method), "__code__", None) if method else None
        return find_line(code.co_filename, code.co_firstlineno) if code else None


def find_pure_shapes(graph: Graph, ops: Ops) -> tuple[Shapes, Purity]:
    """The shapes of a graph whose components are pure."""
    purity = Purity(ops)
    with purity.watching():
        shapes = find_shapes(graph, ops)
    purity.check(shapes.tabular)
    return shapes, purity


@contextmanager
def _watched_calls(found: list[Line], node: Pure | None) -> Iterator[None]:
    """Notes the author's lines that lead to a clock or to the system's random numbers. `node`: if it is an expression
    of the loop."""
    here = node.span if node else None

    def watch(frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call" and (name := _clock(function)):
            while frame.f_back is not None and is_pythons(frame.f_code.co_filename):
                frame = frame.f_back
            if is_authors(frame.f_code.co_filename):
                found.append(Line(_name(frame.f_code), find_line(frame.f_code.co_filename, frame.f_lineno), name))
            elif frame.f_code.co_filename == EXPRESSION:
                found.append(Line("train", here or Span("", 0, 1, 1, ""), name))

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(before)


def _clock(function: Any) -> str:
    module, name = getattr(function, "__module__", None), function.__name__
    if module == "time" and name != "sleep":
        return f"time.{name}"
    if name == "urandom":
        return "os.urandom"
    owner = getattr(function, "__self__", None)
    return f"{owner.__name__}.{name}" if name in CLOCKS and getattr(owner, "__module__", None) == "datetime" else ""


def _line_of(equation: Any) -> Line | None:
    """The author's innermost line that made an equation."""
    traceback = getattr(getattr(equation, "source_info", None), "traceback", None)
    for frame in traceback.frames if traceback else ():
        if is_authors(frame.file_name):
            return Line(_plain(frame.function_name), find_line(frame.file_name, frame.line_num))
    return None


def _expression(trace: Trace) -> Line | None:
    return Line("train", trace.node.span) if trace.node and trace.node.span else None


def _name(code: CodeType) -> str:
    return _plain(getattr(code, "co_qualname", code.co_name))


def _plain(name: str) -> str:
    """A function's name without the functions around it."""
    return name.rpartition("<locals>.")[2]


def _shown(path: str) -> str:
    """As the author writes it: every object is `self` to itself."""
    return re.sub(r"^.*\bself\b|#\d+", lambda found: "self" if found[0].endswith("self") else "", path)


def _quoted(path: str) -> str:
    return path if path in (PYTHONS, NUMPYS) else f"`{_shown(path)}`"


def _drawn(line: Line, generator: str) -> PurityError:
    return PurityError(
        f"`{line.function}` draws from {_quoted(generator)}.", span=line.span,
        why=f"{ONCE}every call of the run would have what was drawn then.",
        instead="Draw with the key that the method is given: `jax.random.uniform(key)`.", docs=DOCS)


def _warn(line: Line, what: str, why: str) -> None:
    warnings.warn_explicit(f"{what} {why} See {DOCS}.", PurityWarning, line.span.file, line.span.line)


