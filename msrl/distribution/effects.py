"""Lets what components on the host do happen once, however many instances there are of the fragment they are in.

In: fragments, and the components on the host. Out: fragments in which each that may not be replicated is in a place of
which there is one; the others are sent what it returns. Where a distribution has no such place, an error.
"""

from collections.abc import Mapping

from msrl.distribution.policy import DistributionPolicy
from msrl.errors import UsageError
from msrl.ir.graph import Graph, calls
from msrl.ir.placed import Fragment

DOCS = "docs/distributions.md#components-on-the-host"


def keep_effects_single(policy: DistributionPolicy, fragments: tuple[Fragment, ...], graph: Graph,
                        on_host: Mapping[str, bool], *, actors: int, learners: int) -> tuple[Fragment, ...]:
    """`on_host`: components of the author's on the host, and whether each may be replicated. `actors` and `learners` as
    the deployment has them."""
    found: list[Fragment] = []
    taken: list[str] = []
    for fragment in fragments:
        count = learners if fragment.axis == "agent" or "learner" in fragment.components else actors
        mine = [name for name in fragment.components if not on_host.get(name, True)]
        if fragment.axis is None or count == 1:
            mine = []
        elif policy.device_each and (hosted := [name for name in fragment.components if name in on_host]):
            raise _device_error(policy, hosted[0], graph)
        elif policy.asynchronous and mine:
            raise _asynchronous_error(policy, fragment, mine[0], count, graph)
        taken += mine
        if rest := tuple(name for name in fragment.components if name not in mine):
            found.append(Fragment(fragment.name, rest, fragment.axis))
    if taken:
        names = {fragment.name for fragment in found}
        found.append(Fragment("host" if "host" not in names else "-".join(("host", *taken)), tuple(taken)))
    return tuple(found)


def _device_error(policy: DistributionPolicy, component: str, graph: Graph) -> UsageError:
    return _error(policy, component, graph, "The whole loop is one compiled program on several devices, and this "
                  "component is Python on the host.",
                  "Make it traceable, or use a distribution with a place for it: --distribution multi-learner.")


def _asynchronous_error(policy: DistributionPolicy, fragment: Fragment, component: str, count: int,
                        graph: Graph) -> UsageError:
    return _error(policy, component, graph, f"There are {count} instances of {fragment.name}, none of which waits for "
                  "the others: what this component does would be done in each of them, or by one for all at no "
                  "particular time.",
                  "Use a synchronous distribution; or, if it may run once in every instance, say so in its class: "
                  "`replicable = True`.")


def _error(policy: DistributionPolicy, component: str, graph: Graph, why: str, instead: str) -> UsageError:
    span = next((call.span for call in calls(graph.nodes) if call.component == component and call.span), None)
    return UsageError(f"{policy.name}: the component {component} cannot run here.", span=span, why=why, instead=instead,
                      docs=DOCS)
