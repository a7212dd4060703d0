"""Graph × fragments → PlacedGraph: gives every name its homes and every cut edge a move.

An op lives with its component. An expression lives with its inputs; one about a whole value lives where whole values
are, in a fragment that is not replicated; one of constants lives wherever it is needed. A loop's name lives with what
is handed on, and a fragment that reads it inside the loop has a copy of its own, so that what moves are its ends: a
move sits where a name is defined. A branch's condition is a value like any other, and moves to all that branch on it.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from msrl.errors import VerifyError
from msrl.ir.graph import Call, Carry, For, Graph, If, Merge, Node, Pure, While, definitions, walk
from msrl.ir.placed import (
    PARAMETERS,
    AgentAxis,
    Axis,
    Fragment,
    Kind,
    Move,
    PlacedGraph,
    restrict,
    wanted_at_end,
    wanted_whole,
)

EVERYWHERE = "*"


@dataclass(frozen=True)
class Site:
    """Where a name is defined: by which node, in which loops and branches (outermost first), as what."""

    node: Node
    inside: tuple[Node, ...]
    part: Carry | Merge | None = None  # of a loop or branch
    role: str = "value"  # value, phi, out or index


def place(graph: Graph, fragments: tuple[Fragment, ...], axes: Mapping[str, int],
          agents: AgentAxis = AgentAxis()) -> PlacedGraph:  # noqa: B008 (frozen)
    """`axes`: the dimension on which a name is divided among shards, of those that are; `agents`: among agents."""
    return _Placer(graph, fragments, axes, agents).place()


class _Placer:
    def __init__(self, graph: Graph, fragments: tuple[Fragment, ...], axes: Mapping[str, int], agents: AgentAxis):
        self.graph, self.fragments, self.axes, self.agents = graph, {f.name: f for f in fragments}, axes, agents
        assert not {"env", "agent"} <= {f.axis for f in fragments}, "checked by msrl.distribution.fragments"
        self.of = {component: fragment.name for fragment in fragments for component in fragment.components}
        for component, _ in graph.components:
            if component not in self.of:
                raise VerifyError(f"No fragment has the component {component}.")
        whole = [f.name for f in fragments if f.axis is None and PARAMETERS not in f.components
                 and any(graph.kind(component) != "own" for component in f.components)]
        # If everything is replicated, each instance has a copy of what is whole.
        self.whole = whole[0] if whole and self.of["learner"] not in whole else self.of["learner"]
        self.sites: dict[str, Site] = {}
        self.visit(graph.nodes, ())
        self.homes: dict[str, str] = {}
        while self.find_homes():
            pass
        self.wholes = self.find_wholes()

    def visit(self, nodes: tuple[Node, ...], inside: tuple[Node, ...]) -> None:
        for node in nodes:
            match node:
                case For() | While():
                    if isinstance(node, For):
                        self.sites[node.index] = Site(node, (*inside, node), role="index")
                    for carry in node.carries:
                        if carry.phi:
                            self.sites[carry.phi] = Site(node, (*inside, node), carry, "phi")
                        self.sites[carry.out] = Site(node, inside, carry, "out")
                    self.visit(node.body, (*inside, node))
                    if isinstance(node, While):
                        self.visit(node.test, (*inside, node))
                case If():
                    for merge in node.merges:
                        self.sites[merge.out] = Site(node, inside, merge, "out")
                    self.visit(node.then, (*inside, node))
                    self.visit(node.orelse, (*inside, node))
                case _:
                    for name in definitions(node):
                        self.sites[name] = Site(node, inside)

    # -- homes -------------------------------------------------------------------------------------------------------

    def find_homes(self) -> bool:
        """One round; True if something changed."""
        before = dict(self.homes)
        for name, site in self.sites.items():
            match site.node, site.part:
                case Call(component=component), _:
                    home: str | None = self.of[component]
                case Pure(), _:
                    home = self.pure_home(site.node)
                case _, Carry() as carry:
                    home = self.homes.get(carry.next)
                    if home in (None, EVERYWHERE) and carry.init:
                        home = self.homes.get(carry.init, home)
                    if self.leaves_shards(carry.out, tuple(end for end in (carry.init, carry.next) if end)):
                        home = self.whole
                case _, Merge() as merge:
                    sides = {self.homes.get(merge.then), self.homes.get(merge.orelse)} - {None, EVERYWHERE}
                    home = sides.pop() if len(sides) == 1 else EVERYWHERE
                    if self.leaves_shards(merge.out, (merge.then, merge.orelse)):
                        home = self.whole
                case _:
                    home = EVERYWHERE  # an index
            if home:
                self.homes[name] = home
        return self.homes != before

    def leaves_shards(self, name: str, of: tuple[str, ...]) -> bool:
        """Is it a whole value, made of some that are divided among the instances of a fragment?"""
        alone = {"env": self.axes, "agent": self.agents.alone}
        return any(axis and self.part(value) and name not in alone[axis] for value in of
                   for axis in (self.axis(value),))

    def axis(self, name: str) -> Axis | None:
        """The axis of the fragment that the name lives in."""
        home = self.homes.get(name)
        return self.fragments[home].axis if home in self.fragments else None

    def part(self, name: str) -> bool:
        """Where it lives, has an instance a part of it?"""
        return name in (self.agents.names if self.axis(name) == "agent" else self.axes)

    def pure_home(self, node: Pure) -> str | None:
        homes = dict.fromkeys(home for _, value in node.inputs
                              if (home := self.homes.get(value)) not in (None, EVERYWHERE))
        if not homes:
            return EVERYWHERE
        if self.leaves_shards(node.out, tuple(value for _, value in node.inputs)):
            return self.whole
        by_agent = [self.homes[value] for _, value in node.inputs if self.axis(value) == "agent" and self.part(value)]
        if by_agent:
            return by_agent[0]
        divided = [self.homes[value] for _, value in node.inputs if value in self.axes and value in self.homes]
        return next(iter(homes)) if len(homes) == 1 else (divided[0] if node.out in self.axes else self.whole)

    def find_wholes(self) -> set[tuple[str, str]]:
        """What fragments over agents have the whole of: what an actor or learner sees all agents in, and what is
        computed wherever it is needed. A loop's name is whole with what is handed on. What such a fragment makes
        itself, it has to gather."""
        linked: dict[str, set[str]] = {}
        for node in walk(self.graph.nodes):
            groups = [(c.phi, c.next, c.out) for c in node.carries] if isinstance(node, (For, While)) else \
                [(m.out, m.then, m.orelse) for m in node.merges] if isinstance(node, If) else []
            for group in groups:
                for name in filter(None, group):
                    linked.setdefault(name, set()).update(filter(None, group))
            for carry in node.carries if isinstance(node, (For, While)) else ():
                if carry.phi and carry.init:
                    linked[carry.phi].add(carry.init)
        found: set[tuple[str, str]] = set()
        for fragment in (fragment.name for fragment in self.fragments.values() if fragment.axis == "agent"):
            todo = [name for name in self.agents.names if self.homes[name] == EVERYWHERE]
            todo += [node.args[at] for node in self.graph_calls() if self.of[node.component] == fragment
                     for at in self.agents.sees_all.get(node.component, ()) if at < len(node.args)]
            while todo:
                name = todo.pop()
                if name in self.agents.names and self.homes[name] != fragment and (fragment, name) not in found:
                    found.add((fragment, name))
                    todo += linked.get(name, ())
        return found

    # -- demand ------------------------------------------------------------------------------------------------------

    def place(self) -> PlacedGraph:
        """Works out, from the ops backwards, what each fragment needs. What one round learns of loops (which names a
        fragment keeps a copy of) may save moves in the next."""
        copies: set[tuple[str, str]] = set()
        while True:
            self.needed: set[tuple[str, str]] = set()
            self.moved: dict[tuple[str, str], None] = {}
            for node in self.graph_calls():
                self.present(self.sites_of(node), self.of[node.component])
                for name in (*node.args, *(value for _, value in node.kwargs), *node.reads):
                    self.need(name, self.of[node.component], copies)
                if is_learning(node) and PARAMETERS in self.of:
                    self.present(self.sites_of(node), self.of[PARAMETERS], copies)
            for result in self.graph.results:
                home = self.homes[result]
                self.need(result, home if home != EVERYWHERE else next(iter(self.fragments)), copies)
            found = {(name, fragment) for name, fragment in self.needed if self.sites[name].role == "phi"}
            if found == copies:
                return self.result()
            copies = found

    def graph_calls(self) -> list[Call]:
        return list(dict.fromkeys(site.node for site in self.sites.values() if isinstance(site.node, Call)))

    def sites_of(self, node: Call) -> tuple[Node, ...]:
        return self.sites[next(iter(definitions(node)))].inside

    def present(self, inside: tuple[Node, ...], fragment: str, copies: set[tuple[str, str]] = frozenset()) -> None:  # type: ignore[assignment]
        """The fragment takes part in these loops and branches, and so needs what they depend on."""
        for node in inside:
            match node:
                case For():
                    names = [bound for bound in (node.start, node.stop, node.step) if isinstance(bound, str)]
                case While() | If():
                    names = [node.condition]
                case _:
                    names = []
            for name in names:
                self.need(name, fragment, copies)

    def need(self, name: str, fragment: str, copies: set[tuple[str, str]]) -> None:
        if (name, fragment) in self.needed:
            return
        self.needed.add((name, fragment))
        site, home = self.sites[name], self.homes[name]
        here = home in (fragment, EVERYWHERE)
        self.present(site.inside, fragment, copies)
        match site.node, site.part:
            case Call(), _:
                if not here:
                    self.moved[name, fragment] = None
            case Pure(inputs=inputs), _:
                if here:
                    for _, value in inputs:
                        self.need(value, fragment, copies)
                else:
                    self.moved[name, fragment] = None
                    self.need(name, home, copies)
            case _, Carry() as carry:
                if site.role == "phi" or here or (carry.phi and (carry.phi, fragment) in copies):
                    if site.role == "out":
                        self.present((site.node,), fragment, copies)
                    for end in (carry.init, carry.next, carry.phi):
                        if end:
                            self.need(end, fragment, copies)
                else:
                    self.moved[name, fragment] = None
                    self.need(name, home, copies)
            case _, Merge() as merge:
                if here:
                    self.present((site.node,), fragment, copies)
                    self.need(merge.then, fragment, copies)
                    self.need(merge.orelse, fragment, copies)
                else:
                    self.moved[name, fragment] = None
                    self.need(name, home, copies)

    # -- result ------------------------------------------------------------------------------------------------------

    def result(self) -> PlacedGraph:
        moves = (*(self.move(name, target) for name, target in sorted(self.moved, key=self.order)), *self.among())
        computed: dict[str, list[str]] = {}
        for name, fragment in sorted(self.needed):
            if (name, fragment) not in self.moved:
                computed.setdefault(name, []).append(fragment)
        return PlacedGraph(self.graph, tuple(self.fragments.values()), moves,
                           tuple((name, tuple(where)) for name, where in computed.items()), tuple(self.axes.items()),
                           self.agents, tuple(sorted(self.wholes)))

    def among(self) -> list[Move]:
        """The moves among the instances of one fragment."""
        by_env = {call.component for call in self.graph_calls() if any(name in self.axes for name in call.writes)}
        found: dict[tuple[str, str], Move] = {}
        for whole in walk(self.graph.nodes):
            for fragment in self.fragments.values():
                computed = {name for name, where in self.needed if where == fragment.name} - {
                    name for name, where in self.moved if where == fragment.name}
                node, span = restrict(whole, computed), whole.span
                if fragment.axis is None or not self.here(node, fragment.name, computed):
                    continue
                by_agent = fragment.axis == "agent"
                axes = self.parts_in(fragment.name) if by_agent else self.axes
                divided = {"actor", "learner"} if by_agent else by_env
                sees_all: Mapping[str, tuple[int, ...]] = self.agents.sees_all if by_agent else {}
                names = (*wanted_whole(node, axes, divided, sees_all), *itertools.chain(*wanted_at_end(node, axes)))
                for name in names:
                    move = Move(name, fragment.name, fragment.name, "allgather", axes[name], span, fragment.axis)
                    found.setdefault((name, fragment.name), move)
                if is_learning(node):
                    found.update(((move.id, ""), move) for move in self.agreement(node, fragment))
        return list(found.values())

    def agreement(self, node: Node, learners: Fragment) -> list[Move]:
        """How the instances of the learner's fragment agree: among themselves, or by way of where parameters are."""
        assert isinstance(node, Call)
        state = node.writes[0]
        if PARAMETERS not in self.of:
            return [Move(state, learners.name, learners.name, "allreduce", None, node.span, learners.axis or "env")]
        server = self.of[PARAMETERS]
        return [Move(state, learners.name, server, "gather", None, node.span),
                Move(state, server, learners.name, "broadcast", None, node.span)]

    def parts_in(self, fragment: str) -> dict[str, int]:
        """What instances of a fragment over agents have a part of."""
        return {name: dim for name, dim in self.agents.names.items() if (fragment, name) not in self.wholes}

    def here(self, node: Node, fragment: str, computed: set[str]) -> bool:
        """Does the fragment compute what the node makes?"""
        if isinstance(node, Call):
            return self.of[node.component] == fragment
        return any(name in computed for name in definitions(node))

    def order(self, move: tuple[str, str]) -> tuple[int, str]:
        return list(self.sites).index(move[0]), move[1]

    def move(self, name: str, target: str) -> Move:
        source, dim = self.homes[name], self.axes.get(name)
        axis = self.fragments[source].axis or self.fragments[target].axis or "env"
        if axis == "agent":
            dim = None if (target, name) in self.wholes and self.fragments[source].axis is None else \
                self.agents.names.get(name)
        kind: Kind = "send"
        if target == self.of.get(PARAMETERS):
            # Every learner says how its loops go on, as they need not be at the same pass.
            return Move(name, source, target, "gather", None, self.sites[name].node.span)
        match self.fragments[source].axis, self.fragments[target].axis:
            case "agent", "agent" if (target, name) in self.wholes:
                kind = "gather"
            case None, str():
                kind = "scatter" if dim is not None else "broadcast"
            case str(), None if dim is not None:
                kind = "gather"
        return Move(name, source, target, kind, dim, self.sites[name].node.span, axis)


def is_learning(node: Node) -> bool:
    return isinstance(node, Call) and (node.component, node.method) == ("learner", "learn")
