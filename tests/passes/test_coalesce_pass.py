"""What leaves together, and where: local programs as text go in, and come out."""

from msrl.ir.placed import Move
from msrl.ir.text import parse_local, show_local
from msrl.passes.coalesce_moves import coalesce_moves, reaches


def coalesced(**bodies: str) -> dict[str, list[str]]:
    """The lines of each fragment's program. Moves are `value>target`, from whoever sends them."""
    programs, moves = {}, {}
    for name, body in bodies.items():
        lines = []
        for line in body.strip().splitlines():
            words = line.split()
            if words[0] == "send":
                value, target = words[1].split(">")
                move = Move(value, name, target, "gather", 0)
                moves[move.id] = move
                line = line.replace(words[1], f"{value} by {move.id}")
            lines.append(line)
        programs[name] = parse_local("\n".join([f"local {name} {{", *lines, "}"]))
    found = coalesce_moves(programs, moves)
    return {name: [line.strip() for line in show_local(program).splitlines()[1:-1]] for name, program in found.items()}


def test_sends_of_one_place_are_one_message_and_are_received_at_one_place():
    found = coalesced(
        a="""
        x.1 = pure "1" in train
        send x.1>b
        y.1 = pure "x" x=x.1 in train
        send y.1>b
        z.1 = pure "y" y=y.1 in train
        """,
        b="""
        x.1 = recv x.1:a>b
        u.1 = pure "x" x=x.1 in train
        y.1 = recv y.1:a>b
        v.1 = pure "y" y=y.1 in train
        """)
    assert found["a"] == ['x.1 = pure "1" in train', 'y.1 = pure "x" x=x.1 in train', 'z.1 = pure "y" y=y.1 in train',
                          "hold x.1 by x.1:a>b", "hold y.1 by y.1:a>b", "flush b"]
    assert found["b"] == ["x.1 = recv x.1:a>b", "y.1 = recv y.1:a>b", 'u.1 = pure "x" x=x.1 in train',
                          'v.1 = pure "y" y=y.1 in train']


def test_nothing_is_held_where_the_sender_may_wait_or_be_busy():
    found = coalesced(
        a="""
        send x.1>b
        y.1 = recv y.1:b>a
        send z.1>b
        | $learner.2 = learner.learn(z.1) | $learner.1
        send u.1>b
        """,
        b="""
        x.1 = recv x.1:a>b
        send y.1>a
        z.1 = recv z.1:a>b
        u.1 = recv u.1:a>b
        """)
    assert found["a"] == ["send x.1 by x.1:a>b", "y.1 = recv y.1:b>a", "send z.1 by z.1:a>b",
                          "| $learner.2 = learner.learn(z.1) | $learner.1", "send u.1 by u.1:a>b"]


def test_a_resource_is_held_where_it_is_not_yet_written_over():
    found = coalesced(a="""
        send $w.1>b
        | $w.2 = learner.note() | $w.1
        send x.1>b
        """, b="""
        $w.1 = recv $w.1:a>b
        x.1 = recv x.1:a>b
        """)
    assert found["a"] == ["hold $w.1 by $w.1:a>b", "| $w.2 = learner.note() | $w.1", "hold x.1 by x.1:a>b", "flush b"]


LOOP = """
    for i.1 in 0, 4, 1 {{
      x.1 = pure "1" in train
      if c.1 {{
        send x.1>b
      }} else {{
      }}
      {more}
    }}
"""


def test_what_the_receiver_needs_only_after_the_loop_leaves_after_it():
    found = coalesced(a=LOOP.format(more="send y.1>b") + "send z.1>b", b="""
        for i.1 in 0, 4, 1 {
          x.1 = recv x.1:a>b
          y.1 = recv y.1:a>b
        }
        z.1 = recv z.1:a>b
        """)
    assert found["a"] == ["for i.1 in 0, 4, 1 {", 'x.1 = pure "1" in train', "if c.1 {", "hold x.1 by x.1:a>b",
                          "} else {", "}", "hold y.1 by y.1:a>b", "}", "hold z.1 by z.1:a>b", "flush b"]


def test_nothing_leaves_after_a_loop_in_which_its_receiver_answers():
    answers = "for i.1 in 0, 4, 1 {{\n x.1 = recv x.1:a>b\n {more}\n}}"
    direct = coalesced(a=LOOP.format(more="y.1 = recv y.1:b>a"), b=answers.format(more="send y.1>a"))
    assert "hold x.1 by x.1:a>b" not in direct["a"]
    assert "flush b" not in direct["a"]
    around = coalesced(a=LOOP.format(more="y.1 = recv y.1:c>a"), b=answers.format(more="send z.1>c"),
                       c="for i.1 in 0, 4, 1 {\n z.1 = recv z.1:b>c\n send y.1>a\n}")
    assert "send x.1 by x.1:a>b" in around["a"]
    assert "send z.1 by z.1:b>c" in around["b"]


def test_nested_loops_hold_as_long_as_nobody_answers():
    inner = "for j.1 in 0, 4, 1 {{\n {what}\n}}"
    found = coalesced(
        a="for i.1 in 0, 4, 1 {\n" + inner.format(what="send x.1>b") + "\ny.1 = recv y.1:b>a\n}",
        b="for i.1 in 0, 4, 1 {\n" + inner.format(what="x.1 = recv x.1:a>b") + "\nsend y.1>a\n}")
    assert found["a"] == ["for i.1 in 0, 4, 1 {", "for j.1 in 0, 4, 1 {", "hold x.1 by x.1:a>b", "}", "flush b",
                          "y.1 = recv y.1:b>a", "}"]
    assert found["b"][-2:] == ["send y.1 by y.1:b>a", "}"]


def test_what_instances_of_one_fragment_tell_one_another_is_never_held():
    found = coalesced(a="""
        for i.1 in 0, 4, 1 {
          send x.1>a
          whole_x.1 = recv x.1:a>a
        }
        """)
    assert found["a"] == ["for i.1 in 0, 4, 1 {", "send x.1 by x.1:a>a", "whole_x.1 = recv x.1:a>a", "}"]


def test_ways():
    edges = frozenset({("a", "b"), ("b", "c"), ("c", "b")})
    assert reaches("a", "c", edges)
    assert reaches("b", "b", edges)
    assert not reaches("c", "a", edges)
