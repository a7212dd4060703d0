"""All the small loops, by name. Each exercises some part of the language; all are of whole numbers: see toys.py."""

from tests.matrix.loops_control import Branches, Deep, Downwards, Helpers, Logic, Nothing, Rows, While
from tests.matrix.loops_parts import Components, Early, Ends, Plain, Prioritised, Rated, Stores, TwoBuffers
from tests.matrix.loops_values import Counters, Names, Schedules, Trees, Types

LOOPS = {cls.__name__: cls for cls in (
    Plain, Schedules, While, Branches, Counters, Rows, TwoBuffers, Helpers, Components, Nothing, Trees, Downwards,
    Ends, Prioritised, Rated, Logic, Early, Names, Types, Deep, Stores)}
