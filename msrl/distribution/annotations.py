"""What a loop says of boundaries, put upon what a policy says: `with msrl.together():` and `with msrl.apart():`.

In: the policy's fragments and the graph, whose ops carry the annotations around them. Out: fragments in which the
components called inside a `together` are in one, and those called inside an `apart` in one with nobody else. A loop
without annotations keeps its fragments.
"""

from collections.abc import Mapping

from msrl.errors import UsageError
from msrl.ir.graph import Call, Graph, calls
from msrl.ir.placed import Axis, Fragment

DOCS = "docs/loop-language.md#partition-annotations"


def annotated(fragments: tuple[Fragment, ...], graph: Graph) -> tuple[Fragment, ...]:
    groups = _groups(graph)
    homes = {component: fragment.name for fragment in fragments for component in fragment.components}
    axes = {fragment.name: fragment.axis for fragment in fragments}
    for label, ops in groups.items():
        if label.startswith("together"):
            _join({op.component for op in ops}, homes, axes)
    for label, ops in groups.items():
        if label.startswith("apart"):
            _cut_off([op.component for op in ops], homes, axes)
    for label, ops in groups.items():
        _check(label, ops, homes)
    order = [component for fragment in fragments for component in fragment.components]
    found = tuple(Fragment(name, tuple(c for c in order if homes[c] == name), axis) for name, axis in axes.items())
    return tuple(fragment for fragment in found if fragment.components)


def _groups(graph: Graph) -> dict[str, list[Call]]:
    """Annotation → the ops inside."""
    found: dict[str, list[Call]] = {}
    for op in calls(graph.nodes):
        for label in op.partition:
            found.setdefault(label, []).append(op)
    return found


def _join(components: set[str], homes: dict[str, str], axes: Mapping[str, Axis | None]) -> None:
    """They go where the learner is if it is one of them; else where most is done at once."""
    names = [name for name in axes if name in {homes[component] for component in components}]
    home = homes["learner"] if "learner" in components else next((name for name in names if axes[name]), names[0])
    homes.update(dict.fromkeys(components, home))


def _cut_off(components: list[str], homes: dict[str, str], axes: dict[str, Axis | None]) -> None:
    """They get a fragment of their own, replicated as the first of them was."""
    mine = dict.fromkeys(components)
    home = homes[components[0]]
    if {component for component, name in homes.items() if name == home} <= mine.keys():
        new = home  # it has nobody else
    else:
        new = "-".join(mine)
        axes[new] = axes[home]
    homes.update(dict.fromkeys(mine, new))


def _check(label: str, ops: list[Call], homes: Mapping[str, str]) -> None:
    inside = {op.component for op in ops}
    where = {homes[component] for component in inside}
    others = {component for component, home in homes.items() if home in where} - inside
    if len(where) > 1 or (label.startswith("apart") and others):
        kind, names = label.partition(".")[0], ", ".join(sorted(inside))
        raise UsageError("The annotations of this loop contradict one another.", span=ops[0].span,
                         why=f"Inside `msrl.{kind}()` is called: {names}. Another annotation wants one of them "
                             "elsewhere.",
                         instead="Let each component be called inside of one of them.", docs=DOCS)
