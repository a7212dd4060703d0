"""When instances put down what they have: all at one point, however far apart they are."""

from msrl.backends.schedule import AT_END, Schedule


def visited(schedule: Schedule, instance: str, loops: dict[str, int], chunk: int) -> list[tuple[str, int]]:
    """The points at which an instance puts down what it has, going through the loops by itself."""
    found = []
    for loop, total in loops.items():
        done = 0
        while done < total:
            done += schedule.passes(loop, done, min(chunk, total - done))
            if schedule.due(instance, loop, done):
                found.append((loop, done))
    return found


def test_every_so_many_passes_whatever_the_chunks():
    for chunk in (1, 2, 5, 100):
        assert visited(Schedule(["i"], 3), "a", {"i": 10}, chunk) == [("i", 3), ("i", 6), ("i", 9)]


def test_never_unless_asked():
    assert visited(Schedule(["i"]), "a", {"i": 10}, 3) == []


def test_asked_for_is_where_nobody_has_set_out_for():
    schedule = Schedule(["i"])
    assert schedule.passes("i", 0, 4) == 4  # the foremost is on its way to 4
    assert schedule.ask()
    assert visited(schedule, "b", {"i": 20}, 3) == [("i", 5)]
    assert not schedule.due("a", "i", 4)
    assert schedule.passes("i", 4, 4) == 1
    assert schedule.due("a", "i", 5)
    assert not schedule.due("a", "i", 6)


def test_asked_for_at_the_end_of_a_loop_is_in_the_next():
    schedule = Schedule(["i", "j"])
    assert schedule.passes("i", 9, 1) == 1
    assert schedule.ask()
    for instance in "ab":
        assert visited(schedule, instance, {"i": 10, "j": 4}, 2) == [("j", 2)]
        schedule.ahead = (0, 10)


def test_a_loop_that_not_all_take_part_in_is_left_alone():
    assert visited(Schedule(["j"], 2), "a", {"i": 4, "j": 4}, 4) == [("j", 2), ("j", 4)]
    assert not Schedule([]).ask()


def test_too_late_for_a_point():
    schedule = Schedule(["i"])
    schedule.passes("i", 0, 4)
    assert not schedule.ask_at((0, 4))
    assert schedule.ask_at((0, 6))
    assert visited(schedule, "a", {"i": 8}, 8) == [("i", 6)]


def test_who_is_not_waited_for_follows_the_learner():
    schedule = Schedule(["i"], 2, unordered=True)
    assert not schedule.due("actor", "i", 2, leads=False)
    assert schedule.due("learner", "i", 2)
    assert schedule.due("actor", "i", 3, leads=False)
    assert not schedule.due("actor", "i", 4, leads=False)
    schedule.call()
    assert schedule.due("actor", "i", 5, leads=False)


def test_in_the_end_there_is_one_if_there_are_any():
    for schedule, wanted in ((Schedule(["i"], 3, unordered=True), True), (Schedule(["i"], unordered=True), False),
                             (Schedule(["i"], 3), True), (Schedule(["i"], AT_END), True), (Schedule(["i"]), False),
                             (Schedule(["i", "j"], AT_END), False)):
        assert not schedule.due("learner", "i", 4)
        assert schedule.due("learner", "i", 5, last=True) is wanted


def test_a_loop_that_ends_unforeseen():
    """It is asked once more when the pass before turns out to have been the last."""
    for schedule, wanted in ((Schedule(["i"], 3, unordered=True), True), (Schedule(["i"], unordered=True), False),
                             (Schedule(["i"], AT_END), True), (Schedule(["i"]), False),
                             (Schedule(["i", "j"], AT_END), False)):
        assert not schedule.due("learner", "i", 4)
        assert schedule.due_at_end("learner", "i") is wanted
    assert not Schedule(["i"], AT_END).due_at_end("learner", "k")


def test_who_is_not_waited_for_follows_at_the_end():
    """Though the learner has not called yet: word of its end may be faster than its call."""
    schedule = Schedule(["i"], AT_END, unordered=True)
    assert not schedule.due("actor", "i", 5, leads=False)
    assert schedule.due_at_end("actor", "i")
