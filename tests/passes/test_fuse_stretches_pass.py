"""What is marked as one compiled call: a local program as text goes in, and comes out."""

import pytest

from msrl.ir.graph import Call, Flush, Recv, Send
from msrl.ir.text import parse_local, show_local
from msrl.passes.fuse_instances import fuse_instances
from msrl.passes.fuse_stretches import fuse_stretches, is_selection


def traceable(node) -> bool:
    return node.component != "env" if isinstance(node, Call) else not isinstance(node, (Send, Recv, Flush))


def fused(body: str, tabular=()) -> list[str]:
    program = parse_local(f"local all {{\n{body}\n}}")
    return [line.strip() for line in show_local(fuse_stretches(program, traceable, tabular)).splitlines()[1:-1]]


def test_what_stands_between_ops_on_the_host_is_one_stretch():
    assert fused("""
        a.1 = actor.act(o.1)
        b.1 = pure "a + 1" a=a.1 in train
        c.1 = env.step(b.1)
        d.1 = actor.act(c.1)
        results d.1""") == [
        "stretch b.1 {", "a.1 = actor.act(o.1)", 'b.1 = pure "a + 1" a=a.1 in train', "}",
        "c.1 = env.step(b.1)",
        "stretch d.1 {", "d.1 = actor.act(c.1)", "}",
        "results d.1"]


def test_selections_and_tables_are_not_worth_a_compiled_call():
    assert fused("""
        n.1 = pure "i / 2" i=i.1 in train
        a.1 = actor.act(n.1)
        b.1 = pure "o.obs" o=o.1 in train
        c.1 = pure "a.action" a=a.1 in train
        d.1 = env.step(c.1)
        results b.1 d.1""", tabular=("n.1",)) == [
        'n.1 = pure "i / 2" i=i.1 in train',
        'b.1 = pure "o.obs" o=o.1 in train',
        "stretch a.1 {", "a.1 = actor.act(n.1)", "}",
        'c.1 = pure "a.action" a=a.1 in train',
        "d.1 = env.step(c.1)",
        "results b.1 d.1"]


def test_a_top_loop_is_a_stretch_of_its_own_and_an_inner_one_part_of_its_neighbours():
    loop = "for {i} in 0, 4, 1 {{\n a.{n} = actor.act()\n}}"
    assert fused("x.1 = actor.act()\n" + loop.format(i="i.1", n=2) + "\ny.1 = actor.act()") == [
        "stretch {", "x.1 = actor.act()", "}",
        "stretch {", "for i.1 in 0, 4, 1 {", "a.2 = actor.act()", "}", "}",
        "stretch {", "y.1 = actor.act()", "}"]
    assert fused("for i.1 in 0, 4, 1 {\nsend o.1 by o.1:all>b\nx.1 = actor.act()\n" + loop.format(i="j.1", n=2) +
                 "\ny.1 = actor.act()\n}") == [
        "for i.1 in 0, 4, 1 {", "send o.1 by o.1:all>b",
        "stretch {", "x.1 = actor.act()", "for j.1 in 0, 4, 1 {", "a.2 = actor.act()", "}", "y.1 = actor.act()", "}",
        "}"]


def test_blocks_with_host_ops_are_gone_into_and_outputs_are_what_is_read_later():
    assert fused("""
        while going.1 {
          carry x.1 = x.0 next x.3 out x.4
          test {
            u.1 = actor.note(x.1)
            going.1 = pure "u < 3" u=u.1 in train
          }
          v.1 = env.step(u.1)
          if c.1 {
            w.1 = actor.act(v.1)
          } else {
            w.2 = actor.act(x.1)
            y.1 = env.reset()
            merge x.3 = w.1 or w.2
          }
        }
        results x.4""") == [
        "while going.1 {", "carry x.1 = x.0 next x.3 out x.4", "test {",
        "stretch u.1 going.1 {", "u.1 = actor.note(x.1)", 'going.1 = pure "u < 3" u=u.1 in train', "}", "}",
        "v.1 = env.step(u.1)",
        "if c.1 {", "stretch w.1 {", "w.1 = actor.act(v.1)", "}", "} else {",
        "stretch w.2 {", "w.2 = actor.act(x.1)", "}", "y.1 = env.reset()", "merge x.3 = w.1 or w.2", "}", "}",
        "results x.4"]


@pytest.mark.parametrize(("expr", "selects"), [
    ("step.obs", True), ("pair[0]", True), ("(a, b.c)", True), ("unpack_(x, 2)", True), ("1.0", False),
    ("x + 1", False), ("x.mean()", False), ("x[i + 1]", False)])
def test_selections(expr, selects):
    program = parse_local(f'local a {{\n y.1 = pure "{expr}" in train\n}}')
    assert is_selection(program.nodes[0]) is selects


def test_a_batched_program_says_so():
    program = parse_local("local a over env {\n}\n")
    assert show_local(fuse_instances(program)) == "local a over env batched {\n}\n"
    assert parse_local("local a over env batched {\n}\n") == fuse_instances(program) != program
