"""What holds of every placed graph and of the local programs made from it, checked before anything runs.

`verify_placed`: every component is in one fragment; what a fragment computes has its inputs there, computed or
received, and what the loops and branches around it depend on; a move's source computes its value, its target does not,
and its kind fits both. `verify_programs`: names are defined before they are used; each move has one end in each of its
two fragments, both in the same loops and branches; the programs cannot wait for one another in a circle.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from msrl.errors import Span, VerifyError
from msrl.ir.graph import Call, Carry, For, Graph, If, Merge, Node, Pure, While, calls, definitions, uses
from msrl.ir.placed import PARAMETERS, Fragment, LocalProgram, Move, PlacedGraph
from msrl.ir.verify import verify_local
from msrl.projection.actions import Action, Item, actions, flat, show_path
from msrl.projection.deadlock import check_actions

DOCS = "docs/ir.md#placed-graphs-and-local-programs"


def fail(what: str, why: str, span: Span | None = None, also: Span | None = None) -> VerifyError:
    return VerifyError(what, span=span, why=why, also=also, docs=DOCS)


# -- placed graphs -----------------------------------------------------------------------------------------------------


def verify_placed(placed: PlacedGraph) -> None:
    """Raises VerifyError, naming the fragment, the move and the line, where an invariant is broken."""
    _components(placed.graph, placed.fragments)
    fragments = {fragment.name: fragment for fragment in placed.fragments}
    computed: dict[str, set[str]] = {name: set() for name in fragments}
    for name, where in placed.computed:
        for fragment in where:
            if fragment not in fragments:
                raise fail(f"{name} is computed in {fragment}.", f"There is no fragment {fragment}.")
            computed[fragment].add(name)
    of = {component: fragment.name for fragment in placed.fragments for component in fragment.components}
    for call in calls(placed.graph.nodes):  # whether or not anybody needs what it makes
        computed[of[call.component]].update(definitions(call))
    for move in placed.moves:
        _move(move, fragments, computed, {other.value for other in placed.moves if other.target == move.source})
    for key, count in Counter((move.value, move.target) for move in placed.moves
                              if move.kind != "allgather").items():
        if count > 1:
            raise fail(f"{key[0]} moves to {key[1]} more than once.", "A name has one value, which is sent once.")
    for name, mine in computed.items():
        there = mine | {move.value for move in placed.moves if move.target == name}
        _Sources(name, mine, there, of).block(placed.graph.nodes, ())
    for result in placed.graph.results:
        if not any(result in mine for mine in computed.values()):
            raise fail(f"The result {result} has no home.", "No fragment computes it.")


def _components(graph: Graph, fragments: tuple[Fragment, ...]) -> None:
    for name, count in Counter(fragment.name for fragment in fragments).items():
        if count > 1:
            raise fail(f"{count} fragments are called {name}.", "Moves name fragments, so each has a name of its own.")
    where = Counter(component for fragment in fragments for component in fragment.components)
    for component, count in where.items():
        if component not in dict(graph.components) and component != PARAMETERS:
            raise fail(f"There is no component {component}.", "A fragment names it.")
        if count > 1:
            raise fail(f"{component} is in {count} fragments.", "Its state has one home.")
    for component, _ in graph.components:
        if component not in where:
            raise fail(f"No fragment has the component {component}.", "Its ops have no place to run.")


def _move(move: Move, fragments: Mapping[str, Fragment], computed: Mapping[str, set[str]],
          received: set[str]) -> None:
    """`received`: by the move's source, which then has nothing to send on, but may share it with its like."""
    for name in (move.source, move.target):
        if name not in fragments:
            raise fail(f"The move {move.id} joins no two fragments.", f"There is no fragment {name}.", move.span)
    source, target = fragments[move.source], fragments[move.target]
    if move.agrees and source is not target:
        kept = {"gather": target, "broadcast": source}.get(move.kind)
        if kept is None or PARAMETERS not in kept.components:
            raise fail(f"The move {move.id} does not fit its kind, {move.kind}.",
                       "Learners agree where parameters are kept: a gather goes there, a broadcast comes from there.",
                       move.span)
        return
    if move.value not in computed[source.name] and not (source is target and move.value in received):
        raise fail(f"The move {move.id} has nothing to send.", f"{source.name} does not compute {move.value}.",
                   move.span)
    if source is not target and move.value in computed[target.name]:
        raise fail(f"The move {move.id} brings what is there.", f"{target.name} computes {move.value} itself.",
                   move.span)
    if why := _misfit(move, source, target):
        raise fail(f"The move {move.id} does not fit its kind, {move.kind}.", why, move.span)


def _misfit(move: Move, source: Fragment, target: Fragment) -> str:
    """Why the kind does not fit, if it does not. Between fragments over two different axes, any may."""
    many, to_many, divided = source.axis is not None, target.axis is not None, move.dim is not None
    among = move.kind in ("allgather", "allreduce")
    if among and (source is not target or not many):
        return f"It is among the instances of one replicated fragment, and this is from {source.name} to {target.name}."
    if not among and source is target:
        return f"It is between two fragments, and this is within {source.name}."
    told = move.kind == "gather" and PARAMETERS in target.components  # each learner for itself how its loops go on
    if move.kind in ("scatter", "gather", "allgather") and not divided and not told:
        return f"It divides or joins on a dimension, and {move.value} is not divided."
    if move.kind in ("broadcast", "allreduce") and divided:
        return f"It hands on whole values, and {move.value} is divided on dimension {move.dim}."
    if among or (many and to_many and source.axis != target.axis):
        return ""
    if move.kind in ("scatter", "broadcast") and (many or not to_many):
        return f"It goes from one place to many: {_number(source)}, {_number(target)}."
    if move.kind == "gather" and not many:
        return f"It goes from many places: {_number(source)}, {_number(target)}."
    if move.kind == "send" and (many != to_many) and (to_many or divided):
        return f"It hands on one value as it is: {_number(source)}, {_number(target)}."
    return ""


def _number(fragment: Fragment) -> str:
    return f"{fragment.name} is {'replicated' if fragment.axis else 'one'}"


class _Sources:
    """Checks one fragment: `mine` is what it computes, `there` also what it receives, `of` where components live."""

    def __init__(self, fragment: str, mine: set[str], there: set[str], of: Mapping[str, str]):
        self.fragment, self.mine, self.there, self.of = fragment, mine, there, of

    def block(self, nodes: tuple[Node, ...], around: tuple[tuple[str, Node], ...]) -> None:
        """`around`: what the loops and branches around the block depend on."""
        for node in nodes:
            match node:
                case Call():
                    self.call(node, around)
                case Pure() if node.out in self.mine:
                    self.have(node.out, (*uses(node),), node, around)
                case For():
                    bounds = [(bound, node) for bound in (node.start, node.stop, node.step) if isinstance(bound, str)]
                    self.carries(node, (*around, *bounds))
                    self.block(node.body, (*around, *bounds))
                case While():
                    self.carries(node, (*around, (node.condition, node)))
                    self.block((*node.test, *node.body), (*around, (node.condition, node)))
                case If():
                    inside = (*around, (node.condition, node))
                    for merge in node.merges:
                        if merge.out in self.mine:
                            self.have(merge.out, _ends(merge), node, inside)
                    self.block((*node.then, *node.orelse), inside)

    def call(self, node: Call, around: tuple[tuple[str, Node], ...]) -> None:
        home = self.of[node.component]
        for name in definitions(node):
            if (name in self.mine) and self.fragment != home:
                raise fail(f"{self.fragment} computes {name}.", f"{node.component} lives in {home}.", node.span)
        if self.fragment == home:
            self.have(f"{node.component}.{node.method}", tuple(uses(node)), node, around)

    def carries(self, node: For | While, around: tuple[tuple[str, Node], ...]) -> None:
        for carry in node.carries:
            if carry.out in self.mine or carry.phi in self.mine:
                self.have(carry.out, _ends(carry), node, around)

    def have(self, name: str, inputs: tuple[str, ...], node: Node, around: tuple[tuple[str, Node], ...]) -> None:
        for value in inputs:
            if value not in self.there:
                raise fail(f"{self.fragment} has no {value}, of which it makes {name}.",
                           "It neither computes nor receives it.", node.span)
        for value, outer in around:
            if value not in self.there:
                raise fail(f"{self.fragment} has no {value}, on which a loop or branch around {name} depends.",
                           "It neither computes nor receives it.", outer.span, node.span)


def _ends(part: Carry | Merge) -> tuple[str, ...]:
    match part:
        case Carry():
            return tuple(name for name in (part.init, part.next) if name)
        case Merge():
            return part.then, part.orelse


# -- local programs ----------------------------------------------------------------------------------------------------


def verify_programs(programs: Mapping[str, LocalProgram], moves: Iterable[Move]) -> None:
    """Raises VerifyError, naming the fragment, the move and the line, where an invariant is broken."""
    known = {move.id: move for move in moves}
    for name, program in programs.items():
        try:
            verify_local(program)
        except VerifyError as error:
            raise fail(f"In {name}: {error.what}", error.why, error.span) from None
    items = {name: actions(program, known) for name, program in programs.items()}
    check_ends(items, known)
    check_actions(items, known)


def check_ends(items: Mapping[str, tuple[Item, ...]], moves: Mapping[str, Move]) -> None:
    """Each move has one send in its source and one receive in its target, in the same loops and branches; among the
    instances of a fragment there may be several, and after each send what it brings is received. What is held leaves
    by a flush in the same block or around it."""
    found: dict[tuple[str, bool], list[Action]] = {}
    for name, mine in items.items():
        flushes = [action for action in flat(mine) if action.kind == "flush"]
        for action in flat(mine):
            if action.kind == "flush":
                continue
            receives = action.kind == "recv"
            found.setdefault((action.move, receives), []).append(action)
            doing = f"{name} {'receives' if receives else 'sends'} {action.name} by {action.move}."
            if action.move not in moves:
                raise fail(doing, "There is no such move.", action.span)
            move = moves[action.move]
            if name != (home := move.target if receives else move.source):
                raise fail(doing, f"Of this move, that is for {home} to do.", action.span)
            if action.kind == "hold" and not any(flush.name == move.target and _around(flush, action)
                                                 for flush in flushes):
                raise fail(f"{name} holds {action.name} back for good.",
                           f"No flush to {move.target} follows in its block or around it.", action.span)
    for move in moves.values():
        sends, taken = found.get((move.id, False), []), found.get((move.id, True), [])
        if len(sends) != len(taken) or (move.source != move.target and len(sends) != 1):
            raise fail(f"{move.id} is sent in {_places(len(sends))} and received in {_places(len(taken))}.",
                       "A name has one value: for each place that it is sent in there is one in which it is received, "
                       "and between two fragments there is one of each.", move.span)
        for send, take in zip(sends, taken, strict=True):
            if send.path != take.path:
                raise fail(f"The ends of {move.id} are in different loops or branches.",
                           f"{move.source} sends in {show_path(send.path)}; {move.target} receives in "
                           f"{show_path(take.path)}.", send.span, take.span)


def _around(flush: Action, held: Action) -> bool:
    return held.path[:len(flush.path)] == flush.path


def _places(count: int) -> str:
    return "one place" if count == 1 else f"{count or 'no'} places"
