"""The checker's verdict on programs that were tampered with, held against runs of them: what gets stuck was refused."""

import random
from collections import Counter

import pytest

from msrl.errors import VerifyError
from msrl.ir.graph import If, While, walk
from msrl.projection.actions import actions
from msrl.projection.deadlock import capacities, check_actions
from msrl.projection.verify import check_ends, verify_placed, verify_programs
from tests.projection.mutants import KINDS, mutant
from tests.projection.placements import ALL, NAMES, placed, projected
from tests.projection.simulator import Simulator, drawn


def refused(programs, moves) -> bool:
    """For what they send and receive; a name used before it is defined would be found as well."""
    known = {move.id: move for move in moves}
    items = {name: actions(program, known) for name, program in programs.items()}
    try:
        check_ends(items, known)
        check_actions(items, known)
    except VerifyError:
        return True
    return False


@pytest.mark.parametrize(("name", "policy"), ALL)
def test_what_was_projected_is_never_refused_and_never_stuck(name, policy):
    moves, programs = placed(name, policy).moves, projected(name, policy)
    verify_placed(placed(name, policy))
    verify_programs(programs, moves)
    assert not any(Simulator(programs, moves, drawn(seed)).stuck(seed) for seed in range(4))


@pytest.mark.parametrize("name", NAMES)
def test_what_gets_stuck_was_refused(name):
    chance, seen = random.Random(name), Counter()
    for policy in [policy for other, policy in ALL if other == name]:
        moves, programs = placed(name, policy).moves, projected(name, policy)
        for kind in KINDS * 12:
            if (changed := mutant(programs, kind, chance)) is None:
                continue
            stuck = any(Simulator(changed, moves, drawn(seed)).stuck(seed) for seed in range(4))
            verdict = refused(changed, moves)
            assert verdict or not stuck, (policy, kind, changed)
            seen.update([(kind, stuck, verdict)])
    # What was only moved to where nobody minds must have been let through, or refusing everything would do.
    assert sum(count for (_, stuck, _), count in seen.items() if stuck) > 5
    assert sum(count for (kind, _, verdict), count in seen.items() if kind == "move" and not verdict) > 2


def test_what_is_refused_for_a_circle_gets_stuck():
    """Where nothing branches, so that both sides are never taken at once, the verdict is exact."""
    chance, seen = random.Random(1), Counter()
    for name, policy in ALL:
        moves, programs = placed(name, policy).moves, projected(name, policy)
        if any(isinstance(node, (If, While)) for program in programs.values() for node in walk(program.nodes)):
            continue
        for _ in range(10):
            if changed := mutant(programs, "move", chance):
                stuck = Simulator(changed, moves, lambda _: 3).stuck()
                assert refused(changed, moves) == stuck
                seen[stuck] += 1
    assert min(seen[True], seen[False]) > 20


@pytest.mark.parametrize(("name", "policy"), ALL)
def test_room_for_fewer_messages_than_computed_gets_stuck(name, policy):
    moves, programs = placed(name, policy).moves, projected(name, policy)
    room = capacities(programs, moves)
    assert not any(Simulator(programs, moves, drawn(seed), room).stuck(seed) for seed in range(4))
    for move in moves:
        # In the order of the loop, nobody has to send before another receives, but those who do both at once.
        assert room[move.id] == (1 if move.source == move.target else 0)
        if room[move.id]:
            assert Simulator(programs, moves, lambda _: 1, {**room, move.id: 0}).stuck()
