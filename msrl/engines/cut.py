"""A learner's program cut where learners agree: a traced function goes in, a generator comes out.

The generator yields what this learner brings to each agreement, a `Meeting`, and is sent what was agreed on; it returns
the function's value. What lies between two agreements is compiled, once. A loop or branch that holds an agreement is
stepped on the host; all others stay inside what is compiled. Where gradients are applied, applying them is a program of
its own, a `Site`, which may run elsewhere. The same learner thus runs the same executables wherever it is: strict mode
rests on that.

This file and msrl/api/agreement.py are the only ones that look into JAX's programs.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

from msrl.api.agreement import agree_p, apply_gradients


@dataclass(frozen=True)
class Meeting:
    """What a learner brings to an agreement on a mean; at a site, also what the mean is then applied to."""

    brought: list[Any]
    site: "Site | None" = None
    state: list[Any] = field(default_factory=list)  # parameters and optimiser state, as the site leaves them
    others: list[Any] = field(default_factory=list)  # anything else that the site needs


Steps = Generator[Meeting, list[Any], Any]


class Cut:
    """A learner's program. `args` give the shapes; it takes arguments like them."""

    def __init__(self, function: Callable[..., Any], *args: Any):
        self.closed, shape = jax.make_jaxpr(function, return_shape=True)(*args)
        self.form, self.traffic = jax.tree.structure(shape), traffic(self.closed.jaxpr)
        self.sites = list(find_sites(self.closed.jaxpr, {}).values())
        self.block = Block(self.closed.jaxpr, {id(site.equation): site for site in self.sites})

    def __call__(self, *given: Any) -> Steps:
        out = yield from self.block.run(self.closed.consts, jax.tree.leaves(given))
        return jax.tree.unflatten(self.form, out)


@dataclass(frozen=True)
class Traffic:
    """How often a learner comes to agree in one run of its program, and the bytes that it brings and takes away."""

    times: int = 0
    brought: int = 0
    taken: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(self.times + other.times, self.brought + other.brought, self.taken + other.taken)

    def __mul__(self, count: int) -> "Traffic":
        return Traffic(self.times * count, self.brought * count, self.taken * count)


def traffic(jaxpr: Jaxpr) -> Traffic | None:
    """None if it depends on values: of a `while` loop, or of branches that differ."""
    total = Traffic()
    for equation in filter(agrees, jaxpr.eqns):
        if equation.primitive is agree_p or equation.params.get("name") == apply_gradients.__name__:
            agreements = [e for e in (equation, *(e for inner in subprograms(equation) for e in inner.eqns))
                          if e.primitive is agree_p]
            total += Traffic(1, *(sum(v.aval.size * v.aval.dtype.itemsize for v in variables)
                                  for variables in (agreements[0].invars, equation.outvars)))
            continue
        found = [traffic(inner) for inner in subprograms(equation)]
        if equation.primitive.name == "while" or len(set(found)) > 1 or found[0] is None:
            return None
        total += found[0] * equation.params.get("length", 1)
    return total


class Site:
    """One place of a learner's program at which gradients are applied, known by its number."""

    def __init__(self, equation: Any, number: int):
        self.equation, self.number = equation, number
        program = equation.params["jaxpr"]
        jaxpr, (agreement,) = program.jaxpr, [e for e in program.jaxpr.eqns if e.primitive is agree_p]
        self.grads = [jaxpr.invars.index(v) for v in agreement.invars]
        kept = [at for at in range(len(jaxpr.invars)) if at not in self.grads]
        # What is returned are parameters and optimiser state, which are taken last before the gradients.
        split = len(kept) - len(jaxpr.outvars)
        self.others, self.state = kept[:split], kept[split:]
        inner = jaxpr.replace(
            constvars=[], invars=[*jaxpr.constvars, *(jaxpr.invars[at] for at in (*self.others, *self.state)),
                                  *agreement.outvars],
            eqns=[e for e in jaxpr.eqns if e is not agreement], debug_info=jaxpr.debug_info.with_unknown_names())
        self.consts, self.run = program.consts, jax.jit(jaxpr_as_fun(ClosedJaxpr(inner, [])))

    def apply(self, others: list[Any], state: list[Any], mean: list[Any]) -> list[Any]:
        """The state after a step."""
        return self.run(*self.consts, *others, *state, *mean)

    def steps(self, *args: Any) -> Steps:
        def pick(places: list[int]) -> list[Any]:
            return [args[at] for at in places]

        return (yield Meeting(pick(self.grads), self, pick(self.state), pick(self.others)))


def find_sites(jaxpr: Jaxpr, found: dict[int, Site]) -> dict[int, Site]:
    """By their equations' identity, in the order of the program."""
    for equation in jaxpr.eqns:
        if agrees(equation) and id(equation) not in found:
            if equation.params.get("name") == apply_gradients.__name__:
                found[id(equation)] = Site(equation, len(found))
            else:
                for inner in subprograms(equation):
                    find_sites(inner, found)
    return found


class Block:
    """A program as compiled stretches and the equations between them that hold an agreement."""

    def __init__(self, jaxpr: Jaxpr, sites: dict[int, Site]):
        self.jaxpr, self.sites = jaxpr, sites

    @cached_property
    def parts(self) -> list["Stretch | tuple[Any, Callable[..., Steps]]"]:
        groups: list[list[Any]] = [[]]
        for equation in self.jaxpr.eqns:
            if agrees(equation):
                groups += [[equation], []]
            else:
                groups[-1].append(equation)
        parts: list[Stretch | tuple[Any, Callable[..., Steps]]] = []
        needed = {id(v) for v in self.jaxpr.outvars}
        for number in reversed(range(len(groups))):
            group = groups[number]
            if number % 2:
                parts.append((group[0], self.stepper(group[0])))
            elif group:
                parts.append(Stretch(self.jaxpr, group, needed))
            needed |= {id(v) for equation in group for v in equation.invars}
        return parts[::-1]

    def stepper(self, equation: Any) -> Callable[..., Steps]:
        """How an equation that holds an agreement is run on the host."""
        params = equation.params
        if id(equation) in self.sites:
            return self.sites[id(equation)].steps
        match equation.primitive.name:
            case "agree":
                return _agree
            case "scan":
                return _scan(params, self.inner(params["jaxpr"]))
            case "while":
                return _while(params, self.inner(params["body_jaxpr"]))
            case "cond":
                blocks = [self.inner(branch) for branch in params["branches"]]
                return lambda index, *args: blocks[int(np.clip(index, 0, len(blocks) - 1))](*args)
        inner = [value for value in params.values() if isinstance(value, (ClosedJaxpr, Jaxpr))]
        if len(inner) != 1:
            raise TypeError(f"learners cannot agree inside a {equation.primitive.name}")
        return self.inner(inner[0])

    def inner(self, program: ClosedJaxpr | Jaxpr) -> Callable[..., Steps]:
        jaxpr, consts = (program.jaxpr, program.consts) if isinstance(program, ClosedJaxpr) else (program, [])
        block = Block(jaxpr, self.sites)
        return lambda *args: block.run(consts, list(args))

    def run(self, consts: Any, args: list[Any]) -> Steps:
        values = dict(zip((*self.jaxpr.constvars, *self.jaxpr.invars), (*consts, *args), strict=True))

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, Literal) else values[atom]

        for part in self.parts:
            if isinstance(part, Stretch):
                values.update(zip(part.outputs, part(*map(read, part.inputs)), strict=True))
            else:
                equation, steps = part
                out = yield from steps(*map(read, equation.invars))
                values.update(zip(equation.outvars, out, strict=True))
        return [read(atom) for atom in self.jaxpr.outvars]


class Stretch:
    """Consecutive equations as one compiled function of the values they need to those needed later."""

    def __init__(self, jaxpr: Jaxpr, equations: list[Any], needed: set[int]):
        made = {id(v) for equation in equations for v in equation.outvars}
        read = {id(v): v for equation in equations for v in equation.invars
                if not isinstance(v, Literal) and id(v) not in made}
        self.inputs = tuple(read.values())
        self.outputs = tuple(v for equation in equations for v in equation.outvars if id(v) in needed)
        inner = jaxpr.replace(constvars=[], invars=list(self.inputs), outvars=list(self.outputs), eqns=equations,
                              debug_info=jaxpr.debug_info.with_unknown_names())
        self.run = jax.jit(jaxpr_as_fun(ClosedJaxpr(inner, [])))

    def __call__(self, *values: Any) -> list[Any]:
        return self.run(*values)


def agrees(equation: Any) -> bool:
    return equation.primitive is agree_p or any(
        agrees(inner) for jaxpr in subprograms(equation) for inner in jaxpr.eqns)


def subprograms(equation: Any) -> list[Jaxpr]:
    found = []
    for value in equation.params.values():
        for entry in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(entry, ClosedJaxpr):
                found.append(entry.jaxpr)
            elif isinstance(entry, Jaxpr):
                found.append(entry)
    return found


def _agree(*leaves: Any) -> Steps:
    return (yield Meeting(list(leaves)))


def _scan(params: dict[str, Any], body: Callable[..., Steps]) -> Callable[..., Steps]:
    fixed, carried = params["num_consts"], params["num_carry"]
    order = range(params["length"])

    def run(*args: Any) -> Steps:
        consts, carry, columns = args[:fixed], list(args[fixed:fixed + carried]), args[fixed + carried:]
        columns = [_rows(column) for column in columns]
        rows: list[Any] = [None] * params["length"]
        for at in reversed(order) if params["reverse"] else order:
            out = yield from body(*consts, *carry, *(column[at] for column in columns))
            carry, rows[at] = out[:carried], out[carried:]
        return [*carry, *(_stack(column) for column in zip(*rows, strict=True))]

    return run


def _rows(column: Any) -> Any:
    """On the host, where a row costs nothing. Random keys stay as they are."""
    return column if jax.dtypes.issubdtype(column.dtype, jax.dtypes.prng_key) else np.asarray(column)


def _stack(column: tuple) -> Any:
    if jax.dtypes.issubdtype(column[0].dtype, jax.dtypes.prng_key):
        return jax.numpy.stack(column)
    return np.stack([np.asarray(x) for x in column])


def _while(params: dict[str, Any], body: Callable[..., Steps]) -> Callable[..., Steps]:
    test = jax.jit(jaxpr_as_fun(params["cond_jaxpr"]))
    tests, bodies = params["cond_nconsts"], params["body_nconsts"]

    def run(*args: Any) -> Steps:
        of_test, of_body, carry = args[:tests], args[tests:tests + bodies], list(args[tests + bodies:])
        while bool(test(*of_test, *carry)[0]):
            carry = yield from body(*of_body, *carry)
        return carry

    return run
