import pytest

from msrl.rl import linear


@pytest.mark.parametrize("index, value", [(-1, 1.0), (0, 1.0), (5, 0.6), (10, 0.2), (11, 0.2), (10**9, 0.2)])
def test_linear(index, value):
    result = linear(index, start=1.0, end=0.2, steps=10)
    assert type(result) is float and result == pytest.approx(value)


def test_linear_without_steps_is_the_end():
    assert linear(0, start=1, end=0, steps=0) == 0.0
