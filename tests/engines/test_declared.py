"""What components and buffers on the host return is held against what they declare, the same in every mode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from msrl.api import Buffer, Component, Record
from msrl.engines.declared import Declared
from msrl.errors import RunError
from msrl.pipeline import compile
from tests.engines.pure_toys import Toy
from tests.matrix.toys import Corridor


def shape(dtype, *dims):
    return jax.ShapeDtypeStruct(dims, np.dtype(dtype))


class Says(Component):
    traceable = False

    def __init__(self, gives, declares):
        self.gives, self.declares = gives, declares

    def init(self, key):
        return 0

    def get(self, state, key):
        return state, self.gives

    def output_shape(self, method, *args):
        return self.declares


class Asking(Toy):
    gives = declares = None

    def components(self):
        return {"says": Says(self.gives, self.declares)}

    def train(self, msrl):
        obs = msrl.env_reset()
        obs = msrl.env_step(msrl.agent_act(obs).action).obs
        for _ in range(1):
            x = msrl.call("says", "get")
            msrl.report(y=total(x))


def total(x):
    return sum(jnp.sum(leaf) * 1.0 for leaf in jax.tree.leaves(x))


MODES = {
    "fast": lambda cls, env: [u.metrics for u in compile(cls, env, num_envs=4).run() if u.metrics],
    "strict": lambda cls, env: [u.metrics for u in compile(cls, env, num_envs=4, strict=True).run() if u.metrics],
    "interpreted": lambda cls, env: compile(cls, env, num_envs=4, strict=True).interpret()[1],
    "eager": lambda cls, env: compile(cls, env, num_envs=4, strict=True).eager()[1],
}
HARMLESS = {
    "a double": (np.float64(1 / 3), shape("float32"), np.float32(1 / 3)),
    "a Python float": (1 / 3, shape("float32"), np.float32(1 / 3)),
    "a Python int for a float": (3, shape("float32"), 3),
    "a bool for an int": (True, shape("int32"), 1),
    "64 bits": (np.arange(4), shape("int32", 4), 6),
    "doubles declared": (np.ones(2), shape("float64", 2), 2),
    "not finite": (np.float64("inf"), shape("float32"), np.inf),
    "a list": ([1.0, 2], [shape("float32"), shape("float32")], 3),
    "what was declared": (np.float32(2), shape("float32"), 2),
}
WRONG = {
    "2.7 for an int": (2.7, shape("int32"), "int32[]", "2.7 (float), which cannot be converted without loss"),
    "2.0 for an int": (np.float32(2), shape("int32"), "int32[]", "float32[], which cannot be converted without loss"),
    "an int for a bool": (1, shape("bool"), "bool[]", "1 (int), which cannot be converted without loss"),
    "too large an int": (np.int64(2**40), shape("int32"), "int32[]", "int64[], of which 1099511627776 does not fit"),
    "an int with more digits": (2**24 + 1, shape("float32"), "float32[]",
                                "16777217 (int), of which 16777217 has too many digits"),
    "too large a double": (1e39, shape("float32"), "float32[]", "1e+39 (float), of which 1e+39 does not fit"),
    "a vector for a number": (np.ones(3, np.float32), shape("float32"), "float32[]", "float32[3]"),
    "another length": (np.ones(3, np.float32), shape("float32", 4), "float32[4]", "float32[3]"),
    "another length in a tree": ({"a": np.ones(3, np.float32)}, {"a": shape("float32", 4)}, "float32[4] in ['a']",
                                 "float32[3]"),
    "a field too many": ({"a": 1.0, "b": 2.0}, {"a": shape("float32")}, "{a: float32[]}",
                         "{a: 1.0 (float), b: 2.0 (float)}"),
    "nothing": (None, shape("float32"), "float32[]", "None"),
    "something": (1.0, None, "None", "1.0 (float)"),
    "a word": ("high", shape("float32"), "float32[]", "str, which cannot be converted without loss"),
}


def asking(gives, declares) -> type:
    return type("T", (Asking,), {"gives": gives, "declares": declares})


def fit(gives, declares):
    return Declared("Says", "get", lambda: declares).fit(gives, ())


@pytest.mark.parametrize("name", HARMLESS)
def test_what_loses_nothing_is_converted(name):
    gives, declares, wanted = HARMLESS[name]
    found = fit(gives, declares)
    assert all(leaf.dtype in (np.float32, np.int32) for leaf in jax.tree.leaves(found))
    assert total(found) == wanted


@pytest.mark.parametrize("name", WRONG)
def test_the_rest_is_an_error(name):
    gives, declares, wanted, found = WRONG[name]
    with pytest.raises(RunError) as caught:
        fit(gives, declares)
    check_error(caught.value, wanted, found)


def check_error(error, wanted, found):
    assert error.what == "`Says.get` does not return what it declares."
    assert error.why == f"Its `output_shape` says {wanted}, for which the loop was compiled, and it returned {found}."
    assert error.instead == "Let it return that, or say in `output_shape` what it returns."
    assert error.docs == "docs/loop-language.md#components-of-ones-own"


def test_every_mode_converts_alike():
    cls = asking(np.float64(1 / 3), shape("float32"))
    assert [use(cls, Corridor())[0]["y"] for use in MODES.values()] == [np.float32(1 / 3)] * len(MODES)


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_refuses(mode):
    gives, declares, wanted, found = WRONG["2.7 for an int"]
    with pytest.raises(RunError) as caught:
        MODES[mode](asking(gives, declares), Corridor())
    check_error(caught.value, wanted, found)


@pytest.mark.parametrize(("returned", "said"), [(None, "None"), (3.0, "a float"), ((0, 1.0, 2.0), "a tuple of 3")])
def test_a_method_returns_two(returned, said):
    class One(Says):
        def get(self, state, key):
            return returned

    class T(Asking):
        def components(self):
            return {"says": One(None, shape("float32"))}

    with pytest.raises(RunError) as caught:
        MODES["interpreted"](T, Corridor())
    assert caught.value.what == f"`One.get` returns {said}."
    assert caught.value.why == ("A method of a component takes (state, key, ...) and returns two: (state, value).")


class Narrow(Buffer):
    """On the host, and hands out fewer rows than it says."""

    traceable, home = False, "actor"

    def init(self, item):
        return []

    def insert(self, state, item):
        return [item]

    def sample(self, state, key):
        return state, jax.tree.map(lambda x: np.asarray(x)[None, :1], state[0])

    def output_shape(self, method, item, *args):
        return Record(x=shape("float32", 1, *item.x.shape))


@pytest.mark.parametrize("mode", MODES)
def test_buffers_too(mode):
    class T(Toy):
        def buffers(self):
            return {"narrow": Narrow()}

        def train(self, msrl):
            obs = msrl.env_reset()
            for _ in range(2):
                act = msrl.agent_act(obs)
                msrl.replay_buffer_insert(x=act.x)
                obs = msrl.env_step(act.action).obs
                msrl.report(msrl.agent_learn(msrl.replay_buffer_sample()))

    with pytest.raises(RunError) as caught:
        MODES[mode](T, Corridor())
    assert caught.value.what == "`Narrow.sample` does not return what it declares."
    assert caught.value.why == ("Its `output_shape` says float32[1, 4] in .x, for which the loop was compiled, and it "
                                "returned float32[1, 1].")
