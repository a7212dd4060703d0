"""A learner's program cut where learners agree: a traced function goes in, a generator comes out.

The generator yields what this learner brings to each agreement (a list of arrays) and is sent what was agreed on; it
returns the function's value. What lies between two agreements is compiled, once. A loop or branch that holds an
agreement is stepped on the host; all others stay inside what is compiled. The same learner thus runs the same
executables wherever it is, which is what strict mode rests on.

This file and msrl/api/agreement.py are the only ones that look into JAX's programs.
"""

from collections.abc import Callable, Generator
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

from msrl.api.agreement import agree_p

Steps = Generator[list[Any], list[Any], Any]


def cut(function: Callable[..., Any], *args: Any) -> Callable[..., Steps]:
    """`args` give the shapes. The function returned takes arguments like them."""
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*args)
    block, form = Block(closed.jaxpr), jax.tree.structure(shape)

    def run(*given: Any) -> Steps:
        out = yield from block.run(closed.consts, jax.tree.leaves(given))
        return jax.tree.unflatten(form, out)

    return run


class Block:
    """A program as compiled stretches and the equations between them that hold an agreement."""

    def __init__(self, jaxpr: Jaxpr):
        self.jaxpr = jaxpr

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
                parts.append((group[0], stepper(group[0])))
            elif group:
                parts.append(Stretch(self.jaxpr, group, needed))
            needed |= {id(v) for equation in group for v in equation.invars}
        return parts[::-1]

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


def stepper(equation: Any) -> Callable[..., Steps]:
    """How an equation that holds an agreement is run on the host."""
    params = equation.params
    match equation.primitive.name:
        case "agree":
            return _agree
        case "scan":
            return _scan(params)
        case "while":
            return _while(params)
        case "cond":
            blocks = [_closed(branch) for branch in params["branches"]]
            return lambda index, *args: blocks[int(np.clip(index, 0, len(blocks) - 1))](*args)
    inner = [value for value in params.values() if isinstance(value, (ClosedJaxpr, Jaxpr))]
    if len(inner) != 1:
        raise TypeError(f"learners cannot agree inside a {equation.primitive.name}")
    return _closed(inner[0])


def _closed(program: ClosedJaxpr | Jaxpr) -> Callable[..., Steps]:
    jaxpr, consts = (program.jaxpr, program.consts) if isinstance(program, ClosedJaxpr) else (program, [])
    block = Block(jaxpr)
    return lambda *args: block.run(consts, list(args))


def _agree(*leaves: Any) -> Steps:
    return (yield list(leaves))


def _scan(params: dict[str, Any]) -> Callable[..., Steps]:
    body, fixed, carried = _closed(params["jaxpr"]), params["num_consts"], params["num_carry"]
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


def _while(params: dict[str, Any]) -> Callable[..., Steps]:
    test, body = jax.jit(jaxpr_as_fun(params["cond_jaxpr"])), _closed(params["body_jaxpr"])
    tests, bodies = params["cond_nconsts"], params["body_nconsts"]

    def run(*args: Any) -> Steps:
        of_test, of_body, carry = args[:tests], args[tests:tests + bodies], list(args[tests + bodies:])
        while bool(test(*of_test, *carry)[0]):
            carry = yield from body(*of_body, *carry)
        return carry

    return run
