"""Ops on the host that a compiled loop calls: XLA runs the loop, and Python is asked for a step where one is due.

In: the state of a component on the host, which stays here, with a token in its place in the program. Out: the op's
value as arrays of the program, and in the end the state. It always holds that calls are made one by one, in the order
of the loop; that nothing is raised inside XLA (`check` does, after the program); and that once something has gone
wrong, or a learn was not finite, the host is not asked any more.
"""

import weakref
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import mlir

from msrl.errors import EnvError
from msrl.ir.graph import Call, Node, base, calls

TOKEN = np.int32(0)
# As `jax.experimental.io_callback`, which makes JAX's arrays of NumPy's first, and takes longer for that than a step.
# Every call has the token of the one before, so that none can be left out or change places.
call_p = Primitive("call_host")
call_p.multiple_results = True
call_p.def_abstract_eval(lambda *given, call, shapes: [jax.core.ShapedArray(each.shape, each.dtype) for each in shapes])


def _lower(context: mlir.LoweringRuleContext, *given: Any, call: Callable[..., tuple], shapes: tuple) -> Any:
    return mlir.emit_python_callback(context, call, None, list(given), context.avals_in, context.avals_out,
                                     has_side_effect=True, returns_token=False)[0]


mlir.register_lowering(call_p, _lower, cacheable=False)

Run = Callable[[Call, tuple, dict[str, Any], tuple], tuple[Any, tuple]]


def hosted(nodes: tuple[Node, ...], traceable: Callable[[str], bool]) -> frozenset[str]:
    """The resources, without their versions, that stay on the host."""
    return frozenset(base(name) for call in calls(nodes) if not traceable(call.component)
                     for name in call.writes if name.startswith("$"))


class HostCalls:
    def __init__(self, run: Run):
        """`run` gives what an op returns and writes, of (node, arguments, fields, resources)."""
        self.run = run
        self.states: dict[str, Any] = {}  # resource, without its version → the newest
        self.problem: BaseException | None = None
        self.first: Callable[[], None] = lambda: None  # called before a step: the program is compiled by then

    def enter(self, name: str, state: Any) -> np.int32:
        """Keeps the state; what stands for it in the program."""
        self.states[base(name)] = state
        return TOKEN

    def leave(self, name: str) -> Any:
        return self.states[base(name)]

    def check(self) -> None:
        """Raises what the host has raised."""
        if self.problem is not None:
            problem, self.problem = self.problem, None
            raise problem

    def trace(self, node: Call, args: tuple, fields: dict[str, Any], token: Any, halted: Any, shape: Any
              ) -> tuple[Any, Any]:
        """The call as a part of the program that is being traced: (value of that shape, token)."""
        (given, form), (shapes, made) = jax.tree.flatten((args, fields)), jax.tree.flatten(shape)
        # The executable keeps what it calls, out of the garbage collector's sight, and who owns the executable owns
        # this, too: with a strong reference, no run on the host would ever be freed.
        owner = weakref.ref(self)

        def call(token: Any, halted: Any, *leaves: Any) -> tuple:
            host = owner()
            if host is not None and host.problem is None and not halted:
                try:
                    host.first()
                    found = host.step(node, *jax.tree.unflatten(form, leaves))
                    return *map(fitted, jax.tree.leaves(found), shapes), TOKEN
                except BaseException as problem:  # for `check`: XLA would make a text of it
                    host.problem = problem
            return *(np.zeros(each.shape, each.dtype) for each in shapes), TOKEN

        made_of = (*shapes, jax.ShapeDtypeStruct((), np.int32))
        *leaves, token = call_p.bind(token, halted, *given, call=call, shapes=made_of)
        return jax.tree.unflatten(made, leaves), token

    def step(self, node: Call, args: tuple, fields: dict[str, Any]) -> Any:
        resource = base(node.writes[0])
        counter = (TOKEN,) * (len(node.reads) - 1)  # nobody draws, so its number does not matter
        out, (self.states[resource], *_) = self.run(node, args, fields, (self.states[resource], *counter))
        return out


def fitted(value: Any, shape: jax.ShapeDtypeStruct) -> np.ndarray:
    array = np.asarray(value, shape.dtype)
    if array.shape != shape.shape:
        raise EnvError(f"An environment gave an array of {array.shape}, and its spaces say {shape.shape}.")
    return array
