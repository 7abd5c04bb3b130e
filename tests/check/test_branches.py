"""Tests that the check reports outcomes which no sample reached, but not those that no input can reach."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from slow_cases import quick

from glenside.builder import Builder
from glenside.check import EXACT, check, is_equal
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.ir.types import Dims, Tensor

X = build("access-tensor", Tensor("x", Dims((5, 7)), "float32"))
GROWN = build("compute", "exp", X)
"""Nobody can say where it takes a given value exactly."""


def full(value: str) -> Term:
    return build("full", (5, 7), value, "float32")


def verdict(a: Term, b: Term) -> str:
    return check(Program(a), Program(b)).result


def test_a_threshold_that_no_number_reaches_is_said() -> None:
    """The two differ above 10^9 alone, where numbers are moved to if that is a way along a line."""
    bounds = "1000000000", "1000000001"
    assert verdict(*(Builder.combine("minimum", X, full(text)) for text in bounds)).startswith("differs")
    found = verdict(*(Builder.combine("minimum", GROWN, full(text)) for text in bounds))
    assert found.startswith("equal where reached: min of minimum, 5 x 7, never took the second number")
    assert is_equal(found)
    assert found != EXACT


def test_of_a_layer_its_own_are_said() -> None:
    far = Builder.combine("minimum", GROWN, full("1000000000"))
    near = build("compute", "relu", far)
    program = Program(near, "p", {"far": far, "near": near})
    far = Builder.combine("minimum", full("1000000000"), GROWN)
    near = build("compute", "relu", far)
    report = check(program, Program(near, "p", {"far": far, "near": near}))
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
    """Inputs of a cast to an integer dtype exceed the bounds of the dtype too."""
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


def test_a_sign_that_is_never_of_zero_is_said() -> None:
    """No drawn number is 1/3, but a directed input moves x there."""
    beside = build("compute", "sign", Builder.combine("subtract", X, full("1/3")))
    assert verdict(beside, beside) == EXACT
    beside = build("compute", "sign", Builder.combine("subtract", GROWN, full("1/3")))
    assert verdict(beside, beside) == "equal where reached: sign of sign, 5 x 7, never was of 0"
    assert verdict(build("compute", "sign", X), build("compute", "sign", X)) == EXACT


def test_a_comparison_that_is_never_of_equal_numbers_is_said() -> None:
    a, b = (compared(kind, X, full("1/3")) for kind in ("lt", "le"))
    assert verdict(a, b).startswith("differs")
    a, b = (compared(kind, GROWN, full("1/3")) for kind in ("lt", "le"))
    assert verdict(a, b).startswith("equal where reached: lt of (compare lt), 5 x 7, never was of equal numbers")
    total = build("compute", "reduce-sum", build("access", X, 1))
    bound = build("access", build("full", (5,), "7/2", "float32"), 1)
    assert verdict(compared("lt", total, bound), compared("le", total, bound)).startswith("differs")


def compared(kind: str, a: Term, b: Term) -> Term:
    return build("compute", f"(compare {kind})", build("access-product", a, b, a.access.split))


@pytest.mark.parametrize(
    ("term", "found"),
    [
        (
            build("compute", "round", Builder.combine("subtract", GROWN, full("1/3"))),
            "round of round, 5 x 7, never was of a",
        ),
        (
            build("compute", "floor", Builder.combine("subtract", GROWN, full("1/3"))),
            "floor of floor, 5 x 7, never was of a",
        ),
        (
            build("cast", Builder.combine("subtract", GROWN, full("1/3")), "bool"),
            "cast of bool, 5 x 7, never was of 0",
        ),
    ],
    ids=str,
)
def test_what_is_rounded_and_never_decided_is_said(term: Term, found: str) -> None:
    assert found in verdict(term, term)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("round", lambda a: build("compute", "floor", Builder.combine("elementwise-add", a, half(a)))),
        ("sign", lambda a: Builder.combine("subtract", full_of(a, "1"), doubled(a))),
        ("(clip -300 300)", lambda a: build("compute", "(clip -300 301)", a)),
    ],
    ids=["a half above an even number", "zero", "a bound that is far"],
)
@pytest.mark.parametrize("shown", quick(["bias", "weights"], 1))
def test_numbers_are_moved_to_where_programs_differ(right: str, wrong: Callable[[Term], Term], shown: str) -> None:
    """Thirds of sums of products are seldom halves or 0; along a bias, and along weights, the way there is straight."""
    weights = build("access-tensor", Tensor("w", Dims((3, 7)), "float32"))
    sums = build(
        "compute", "dot-product", build("access-product", build("access", X, 1), build("access", weights, 1), 0)
    )
    thirds = Builder.combine("elementwise-mul", build("access", sums, 2), full_of(sums, "1/3"))
    if shown == "bias":
        thirds = Builder.combine("elementwise-add", build("compute", "sigmoid", thirds), tensor_like(thirds, "bias"))
    assert verdict(build("compute", right, thirds), wrong(thirds)).startswith("differs")


def full_of(a: Term, value: str) -> Term:
    return build("full", tuple(a.access.dims), value, "float32")


def tensor_like(a: Term, name: str) -> Term:
    return build("access-tensor", Tensor(name, a.access.dims, "float32"))


def half(a: Term) -> Term:
    return full_of(a, "1/2")


def doubled(a: Term) -> Term:
    """2 where a is below 0, and 0 elsewhere."""
    below = build("cast", compared("lt", a, full_of(a, "0")), "float32")
    return Builder.combine("elementwise-mul", below, full_of(a, "2"))


@pytest.mark.parametrize(
    "term",
    [
        build("compute", "floor", build("compute", "round", X)),
        build("cast", build("compute", "(clip 0 6)", build("compute", "round", X)), "int32"),
        build("compute", "round", build("cast", build("cast", X, "int8"), "float32")),
        build("cast", build("compute", "(clip 0 100)", X), "int8"),
    ],
    ids=str,
)
def test_of_whole_numbers_no_fraction_is_missed(term: Term) -> None:
    assert verdict(term, term) == EXACT


def test_what_only_equal_numbers_decide_is_reached_without_any_order() -> None:
    y = build("access-tensor", Tensor("y", Dims((5, 7)), "float32"))
    never = build("cast", compared("ne", X, X), "float32")
    assert verdict(build("cast", compared("eq", X, y), "float32"), never).startswith("differs")


def test_indices_below_zero_are_drawn() -> None:
    i = build("access-tensor", Tensor("i", Dims((4,)), "int64"))
    picked = build("access-gather", X, i, 0)
    assert verdict(picked, build("access-gather", X, build("compute", "relu", i), 0)).startswith("differs")
    assert verdict(picked, picked) == EXACT


def test_numbers_lie_about_where_operands_are_the_same() -> None:
    """A tie that another bound breaks: some numbers are below both bounds, some between, and they come in any order."""
    b = Builder("p")
    weighed = Builder.combine("elementwise-mul", b.input("y", (2, 6)), b.input("w", (2, 6)))
    far = Builder.combine("elementwise-add", weighed, build("full", (2, 6), "-2000", "float32"))
    low, high = (
        build("compute", "argmax", build("access", build("compute", f"(clip {least} 0)", far), 1))
        for least in ("-100", "-99")
    )
    assert verdict(low, high).startswith("differs")
