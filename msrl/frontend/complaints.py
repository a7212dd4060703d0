"""What the loop language leaves out, each with the reason and the form to write instead."""

import ast
from typing import NamedTuple


class Complaint(NamedTuple):
    what: str
    why: str
    instead: str


STATEMENTS: dict[type[ast.stmt], Complaint] = {
    ast.Break: Complaint(
        "`break` leaves the loop in the middle of a pass.",
        "Every fragment must know at the head of a pass whether it takes part in it.",
        "Put the condition in the head: `while going:`, with `going = ...` as the last line of the body.",
    ),
    ast.Continue: Complaint(
        "`continue` skips the rest of a pass.",
        "The rest of the pass is a branch, and the compiler takes branches as `if`.",
        "Put the rest of the body under `if not (condition):`.",
    ),
    ast.Try: Complaint(
        "`try` cannot be compiled.",
        "An exception would have to travel between fragments that run apart from one another.",
        "Let the error stop the run, or handle it inside the component that raises it.",
    ),
    ast.TryStar: Complaint(
        "`except*` cannot be compiled.",
        "An exception would have to travel between fragments that run apart from one another.",
        "Let the error stop the run, or handle it inside the component that raises it.",
    ),
    ast.Global: Complaint(
        "`global` makes the loop depend on state that the compiler cannot see.",
        "Fragments that run in different processes share no globals.",
        "Carry the value in a local variable, or keep it in the state of a component.",
    ),
    ast.Nonlocal: Complaint(
        "`nonlocal` makes the loop depend on state that the compiler cannot see.",
        "Fragments that run in different processes share no variables.",
        "Carry the value in a local variable, or keep it in the state of a component.",
    ),
    ast.FunctionDef: Complaint(
        "A function is defined inside the loop's method.",
        "The compiler inlines methods of the trainer, and takes any other function as a pure one defined elsewhere.",
        "Make it a function of the module, or, if it interacts, a method of the trainer: `self.name(msrl, ...)`.",
    ),
    ast.AsyncFunctionDef: Complaint(
        "An `async` function is defined inside the loop's method.",
        "What runs at the same time is for the distribution to say, not for the algorithm.",
        "Write plain calls in order.",
    ),
    ast.AsyncFor: Complaint(
        "`async for` is not part of the loop language.",
        "What runs at the same time is for the distribution to say, not for the algorithm.",
        "Write `for i in range(n):`.",
    ),
    ast.AsyncWith: Complaint(
        "`async with` is not part of the loop language.",
        "What runs at the same time is for the distribution to say, not for the algorithm.",
        "Write plain calls in order.",
    ),
    ast.ClassDef: Complaint(
        "A class is defined inside the loop's method.",
        "The compiler reads a loop; a class made on every run has no place in it.",
        "Define the class in the module.",
    ),
    ast.Import: Complaint(
        "`import` inside the loop's method.",
        "Every fragment evaluates expressions with the module's names, and would not see this one.",
        "Move the import to the top of the file.",
    ),
    ast.ImportFrom: Complaint(
        "`import` inside the loop's method.",
        "Every fragment evaluates expressions with the module's names, and would not see this one.",
        "Move the import to the top of the file.",
    ),
    ast.Delete: Complaint(
        "`del` is not part of the loop language.",
        "Values live as long as something needs them; the compiler works that out.",
        "Leave the line out.",
    ),
    ast.Assert: Complaint(
        "`assert` is not part of the loop language.",
        "It has an effect (stopping the run), which a compiled program cannot have in the middle of a pass.",
        "Check configuration in `__init__`, and values with `msrl.report(...)`.",
    ),
    ast.Raise: Complaint(
        "`raise` is not part of the loop language.",
        "It has an effect (stopping the run), which a compiled program cannot have in the middle of a pass.",
        "Check configuration in `__init__`; report what is wrong with `msrl.report(...)`.",
    ),
    ast.Match: Complaint(
        "`match` is not part of the loop language.",
        "Patterns look into Python objects, which a compiled program does not have.",
        "Write `if` / `elif` / `else`.",
    ),
}

EXPRESSIONS: dict[type[ast.expr], Complaint] = {
    ast.Yield: Complaint(
        "`yield` makes the loop a generator.",
        "The loop has to run by itself, from start to end, wherever its fragments are.",
        "Use `msrl.report(...)` to hand values out while training.",
    ),
    ast.YieldFrom: Complaint(
        "`yield from` makes the loop a generator.",
        "The loop has to run by itself, from start to end, wherever its fragments are.",
        "Use `msrl.report(...)` to hand values out while training.",
    ),
    ast.Await: Complaint(
        "`await` is not part of the loop language.",
        "What runs at the same time is for the distribution to say, not for the algorithm.",
        "Call the interaction directly.",
    ),
    ast.NamedExpr: Complaint(
        "`:=` assigns inside an expression.",
        "Assignments are the edges of the graph, and have to stand on lines of their own.",
        "Assign on the line before.",
    ),
}

_CONDITIONAL = "The call would happen on some passes and not on others, without a branch that the compiler can see."

AROUND_INTERACTIONS: dict[type[ast.expr], Complaint] = {
    ast.Lambda: Complaint(
        "An interaction is called inside a lambda.",
        "The compiler cannot see when, or how often, the lambda is called.",
        "Call the interaction in the loop and give the lambda its result.",
    ),
    ast.IfExp: Complaint(
        "An interaction is called inside a conditional expression.", _CONDITIONAL,
        "Write an `if` statement with an assignment in each branch.",
    ),
    ast.BoolOp: Complaint(
        "An interaction is called after `and` / `or`.", _CONDITIONAL,
        "Call it on the line before, and use its result.",
    ),
    ast.Compare: Complaint(
        "An interaction is called in the middle of a chained comparison.", _CONDITIONAL,
        "Call it on the line before, and use its result.",
    ),
    **{
        kind: Complaint(
            "An interaction is called inside a comprehension.",
            "A comprehension makes a Python list, whose length the compiler cannot see.",
            "Write a `for ... in range(...)` loop, with a buffer to collect what it makes.",
        )
        for kind in (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    },
}

LAMBDA = Complaint(
    "A lambda is kept as a value.",
    "Values are numbers and arrays, which can be carried and sent; a function is neither.",
    "Write it where it is called, or make it a function of the module or a method of the trainer.",
)
