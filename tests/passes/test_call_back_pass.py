"""Which loops are compiled although an environment on the host is in them."""

from msrl.ir.graph import Call, Flush, Recv, Send
from msrl.ir.text import parse_local, show_local
from msrl.passes.call_back import call_back
from msrl.passes.fuse_stretches import fuse_stretches

LOOP = """
for i.1 in 0, 4, 1 {
  a.1 = actor.act(o.1)
  s.1 = env.step(a.1)
}"""


def on_host(node) -> bool:
    return isinstance(node, Call) and node.component == "env"


def traceable(node) -> bool:
    return not on_host(node) and not isinstance(node, (Send, Recv, Flush))


def callable(node) -> bool:
    return on_host(node) and node.method == "step"


def marked(body: str) -> list[str]:
    program = call_back(parse_local(f"local all {{\n{body}\n}}"), traceable, callable)
    return [line.strip() for line in show_local(program).splitlines()[1:-1]]


def plain(body: str) -> list[str]:
    return [line.strip() for line in body.splitlines() if line.strip()]


def test_a_loop_that_steps_an_environment():
    assert marked(LOOP) == ["stretch {", *plain(LOOP), "}"]


def test_a_loop_within_one_that_stays():
    outer = "for j.1 in 0, 2, 1 {{\nx.1 = env.reset()\n{}\n}}"
    assert marked(outer.format(LOOP)) == [
        "for j.1 in 0, 2, 1 {", "x.1 = env.reset()", "stretch {", *plain(LOOP), "}", "}"]


def test_loops_that_stay():
    for body in (LOOP.replace("s.1", "send a.1 by a.1:all>b\ns.1"),  # others take part
                 LOOP.replace("env.step(a.1)", "env.reset()"),  # may not be called
                 LOOP.replace("s.1 = env.step(a.1)", "b.1 = actor.act(a.1)")):  # there is nothing to call
        assert marked(body) == plain(body)


def test_a_test_is_not_evaluated_twice():
    loop = """
while c.1 {
  test {
    s.1 = env.step(a.1)
    c.1 = pure "s.done" s=s.1 in train
  }
  a.2 = actor.act(s.1)
}"""
    assert marked(loop) == plain(loop)


def test_it_is_left_alone_afterwards():
    program = call_back(parse_local(f"local all {{\nx.1 = actor.act(o.1)\n{LOOP}\n}}"), traceable, callable)
    assert [line.strip() for line in show_local(fuse_stretches(program, traceable, ())).splitlines()[1:-1]] == [
        "stretch {", "x.1 = actor.act(o.1)", "}", "stretch {", *plain(LOOP), "}"]
