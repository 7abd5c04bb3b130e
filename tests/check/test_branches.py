"""What no drawn number reached is said, and what none can reach is not."""

from __future__ import annotations

import pytest

from glenside.builder import Builder
from glenside.check import EXACT, check, is_equal
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.ir.types import Dims, Tensor

X = build("access-tensor", Tensor("x", Dims((5, 7)), "float32"))


def full(value: str) -> Term:
    return build("full", (5, 7), value, "float32")


def verdict(a: Term, b: Term) -> str:
    return check(Program(a), Program(b)).result


def test_a_threshold_that_no_number_reaches_is_said() -> None:
    """The two differ above 10^9 alone."""
    low, high = (Builder.combine("minimum", X, full(text)) for text in ("1000000000", "1000000001"))
    found = verdict(low, high)
    assert found.startswith("equal where reached: min of minimum, 5 x 7, never took the second number")
    assert is_equal(found)
    assert found != EXACT


def test_of_a_layer_its_own_are_said() -> None:
    far = Builder.combine("minimum", X, full("1000000000"))
    near = build("compute", "relu", far)
    program = Program(near, "p", {"far": far, "near": near})
    report = check(program, program)
    assert report.layers["near"] == EXACT
    assert report.layers["far"].startswith("equal where reached")
    assert report.result.startswith("equal where reached")
    assert report.ok


@pytest.mark.parametrize(
    "term",
    [
        build("compute", "relu", build("compute", "relu", X)),
        Builder.combine("maximum", build("compute", "exp", X), full("-1")),
        build("compute", "(compare lt)", build("access-product", build("compute", "(clip 0 6)", X), full("7"), 0)),
        build("compute", "(clip 0 6)", build("compute", "(clip -1 7)", X)),
        build("compute", "abs", X),
    ],
    ids=str,
)
def test_what_no_number_can_reach_is_not_missed(term: Term) -> None:
    assert verdict(term, term) == EXACT


def test_numbers_are_drawn_anew_until_every_side_was_taken() -> None:
    """One number of 35 decides, and it is seldom above."""
    one = build("compute", "reduce-min", build("access", X, 0))
    cut = build("compute", "(clip -40 9/2)", one)
    report = check(Program(cut), Program(cut))
    assert is_equal(report.result)
    assert report.how.startswith("random numbers, drawn ")


@pytest.mark.parametrize(("dtype", "other"), [("int8", "int16"), ("uint8", "int32"), ("int16", "int32")])
def test_a_cast_is_reached_where_it_wraps(dtype: str, other: str) -> None:
    """What is made an integer lies beyond its bounds too."""
    a, b = (build("cast", build("cast", X, kind), "float32") for kind in (dtype, other))
    assert verdict(a, b).startswith("differs")


def test_an_odd_power_keeps_its_sign() -> None:
    below = Builder.combine("minimum", X, full("-1"))
    cubed = Builder.combine("pow", below, full("3"))
    assert is_equal(verdict(build("compute", "relu", cubed), full("0")))
    squared = Builder.combine("pow", below, full("2"))
    assert verdict(build("compute", "relu", squared), full("0")).startswith("differs")


def test_what_differs_at_zero_alone_is_reached() -> None:
    """A sum of products is 0 for a few of its numbers only."""
    total = build("compute", "reduce-sum", build("access", X, 1))
    never = build("compute", "abs", build("compute", "sign", total))
    assert verdict(never, build("access", build("full", (5,), "1", "float32"), 1)).startswith("differs")
