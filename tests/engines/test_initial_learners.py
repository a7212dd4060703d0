"""The first state of several learners."""

import jax
import jax.numpy as jnp

from msrl.api import LearnerState
from msrl.engines.ops import make_op
from msrl.engines.world import make_world
from msrl.envs.cartpole import CartPole
from tests.cli.tiny import Tiny


def shapes_of(jaxpr, primitive: str) -> list[tuple[int, ...]]:
    """Of the first operand, wherever the primitive is used."""
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == primitive:
            found.append(equation.invars[0].aval.shape)
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "jaxpr")):
            found += shapes_of(inner.jaxpr, primitive) if hasattr(inner, "jaxpr") else []
    return found


def test_matrices_of_several_seeds_are_never_factorised_as_a_batch(monkeypatch):
    """jaxlib's QR of a batch runs on the threads that it waits for: with two of them at once, two cores hang."""
    env = CartPole()
    world = make_world(Tiny(Tiny.Config(), env.spec), env)

    def init(key):
        return LearnerState({"weights": jnp.linalg.qr(jax.random.normal(key, (6, 4)))[0]}, ())

    monkeypatch.setattr(world.agent.learner, "init", init)
    monkeypatch.setattr(world.agent.learner, "weights", lambda state: state.params)
    begin = make_op(world, "learner", "init").run
    keys = jax.random.split(jax.random.key(0), 3)
    several = jax.vmap(lambda key: begin(key, (), (), {})[1][0].params["weights"])
    assert shapes_of(jax.make_jaxpr(several)(keys).jaxpr, "qr") == [(6, 4)]
    for key, one in zip(keys, several(keys), strict=True):
        assert (one == init(key).params["weights"]).all()
