"""Which conditions go the same way on every pass."""

from msrl.engines.tables import decided
from msrl.ir.graph import If, walk
from msrl.pipeline import Deployment, compile
from tests.matrix.toys import Corridor, Whole


def picky(i):
    if i == 4:  # neither the first, nor the last, nor that in the middle
        raise ValueError("not this one")
    return True


class Branches(Whole):
    def train(self, msrl):
        obs = msrl.env_reset()
        for i in range(6):
            for j in range(2, 5):
                if i >= 0:
                    msrl.report(always=i)
                if j > 5 or i < 0:
                    msrl.report(never=i)
                if j + i < 8:
                    msrl.report(not_at_the_end=i)
                half = i // 2
                if half < 3:
                    msrl.report(of_another_name=i)
                if picky(i):
                    msrl.report(goes_wrong=i)
                if obs.sum() >= 0:
                    msrl.report(not_of_indices=i)


def test_only_what_holds_on_every_pass_is_decided():
    program = compile(Branches, Corridor())
    found = {}
    for node in walk(program.graph.nodes):
        if isinstance(node, If):
            reported = next(call for call in node.then if call.kwargs).kwargs[0][0]
            found[reported] = decided(node.condition, program.shapes.tabular, program.ops.scopes)
    assert found == dict(always=True, never=False, not_at_the_end=None, of_another_name=True, goes_wrong=None,
                         not_of_indices=None)
    left = [node for node in walk(program.placed.graph.nodes) if isinstance(node, If)]
    assert len(left) == 3


def test_what_would_take_too_long_stays_open():
    program = compile(Branches, Corridor())
    first = next(node for node in walk(program.graph.nodes) if isinstance(node, If))
    assert decided(first.condition, program.shapes.tabular, program.ops.scopes, most=6) is True
    assert decided(first.condition, program.shapes.tabular, program.ops.scopes, most=5) is None


def test_the_graph_that_is_the_meaning_keeps_its_branches():
    with_it, without = (compile("dqn", "CartPole-v1", total_steps=400, num_envs=4, warmup=200,
                                deployment=Deployment(passes=f"{sign}decide-branches")) for sign in "+-")
    assert with_it.graph == without.graph and with_it.fingerprints == without.fingerprints
    assert sum(isinstance(node, If) for node in walk(without.placed.graph.nodes)) == 1
    assert not any(isinstance(node, If) for node in walk(with_it.placed.graph.nodes))
