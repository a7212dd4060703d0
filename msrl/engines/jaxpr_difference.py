"""Where two traces of one function differ: JAX's programs compared equation by equation, constants included.

Objects that only have an address, such as the rules of custom derivatives, are not compared.
"""

from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

Numbers = dict[Any, int]  # of a program's variables, in the order in which they are defined

SAME = object()


def find_difference(first: ClosedJaxpr, second: ClosedJaxpr) -> Any:
    """The first equation of the second program that is not as in the first; None if there is none to show; SAME if they
    are the same."""
    return _closed(first, second)


def _closed(first: ClosedJaxpr, second: ClosedJaxpr) -> Any:
    if first is second:
        return SAME
    found = _open(first.jaxpr, second.jaxpr)
    if found is not SAME:
        return found
    for at, (one, two) in enumerate(zip(first.consts, second.consts, strict=True)):
        if not _equal(one, two):
            return _user(second.jaxpr, second.jaxpr.constvars[at])
    return SAME


def _open(first: Jaxpr, second: Jaxpr) -> Any:
    if first is second:
        return SAME
    mine: Numbers = {}
    others: Numbers = {}
    for one, two in ((first.constvars, second.constvars), (first.invars, second.invars)):
        if [str(var.aval) for var in one] != [str(var.aval) for var in two]:
            return second.eqns[0] if second.eqns else None
        _define(one, mine)
        _define(two, others)
    for one, two in zip(first.eqns, second.eqns):
        found = _equation(one, two, mine, others)
        if found is not SAME:
            return found
        _define(one.outvars, mine)
        _define(two.outvars, others)
    if len(first.eqns) != len(second.eqns):
        return second.eqns[min(len(first.eqns), len(second.eqns) - 1)] if second.eqns else None
    same = len(first.outvars) == len(second.outvars) and all(
        _atom(one, two, mine, others) for one, two in zip(first.outvars, second.outvars))
    return SAME if same else second.eqns[-1] if second.eqns else None


def _define(variables: Any, numbers: Numbers) -> None:
    for variable in variables:
        numbers[variable] = len(numbers)


def _equation(first: Any, second: Any, mine: Numbers, others: Numbers) -> Any:
    """SAME, or the equation that differs: the second, or one inside it."""
    if first.primitive is not second.primitive or len(first.invars) != len(second.invars) \
            or not all(_atom(one, two, mine, others) for one, two in zip(first.invars, second.invars)) \
            or [str(var.aval) for var in first.outvars] != [str(var.aval) for var in second.outvars] \
            or first.params.keys() != second.params.keys():
        return second
    for name, value in first.params.items():
        found = _parameter(value, second.params[name], second)
        if found is not SAME:
            return second if found is None else found
    return SAME


def _atom(first: Any, second: Any, mine: Numbers, others: Numbers) -> bool:
    if isinstance(first, Literal) or isinstance(second, Literal):
        return type(first) is type(second) and str(first.aval) == str(second.aval) and _equal(first.val, second.val)
    return mine.get(first) == others.get(second)


def _parameter(first: Any, second: Any, equation: Any) -> Any:
    if type(first) is not type(second):
        return SAME if callable(first) and callable(second) else equation
    match first:
        case ClosedJaxpr():
            return _closed(first, second)
        case Jaxpr():
            return _open(first, second)
        case tuple() | list():
            if len(first) != len(second):
                return equation
            return next((found for one, two in zip(first, second)
                         if (found := _parameter(one, two, equation)) is not SAME), SAME)
        case bool() | int() | float() | str() | np.ndarray() | np.generic() | np.dtype():
            return SAME if _equal(first, second) else equation
    return SAME


def _equal(first: Any, second: Any) -> bool:
    if first is second:
        return True
    if hasattr(first, "dtype") and not isinstance(getattr(first, "dtype", None), np.dtype):
        return True  # random keys are compared where they are made
    one, two = np.asarray(first), np.asarray(second)
    if one.dtype != two.dtype or one.shape != two.shape:
        return False
    return one.tobytes() == two.tobytes() if one.dtype != object else bool(first == second)


def _user(jaxpr: Jaxpr, variable: Any) -> Any:
    """The first equation that reads it."""
    return next((equation for equation in jaxpr.eqns if any(variable is each for each in equation.invars)), None)
