"""Tests the exact check of gradients: right ones are exact, wrong ones are reported with their place."""

from __future__ import annotations

import time

import pytest
from hand_gradients import RIGHT, WRONG, Gradient, above, dense, like, softmaxed, squared, tensor, times

from glenside.builder.pointwise import add, cast, compute, filled, multiply, relu
from glenside.check import check_gradient, gradients
from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.semantics import PRIMES


@pytest.mark.parametrize("name", RIGHT)
def test_right_gradients_are_exact(name: str) -> None:
    program, gradient, wrt = RIGHT[name]()
    report = check_gradient(program, gradient, wrt)
    assert report.ok
    assert report.gradients == dict.fromkeys(wrt, "exact"), report


@pytest.mark.parametrize("name", WRONG)
def test_wrong_gradients_are_found(name: str) -> None:
    made, wrong = WRONG[name]
    program, gradient, wrt = made()
    report = check_gradient(program, gradient, wrt)
    assert not report.ok
    for name, verdict in report.gradients.items():
        expected = f"differs: gradient with respect to {name}, first at (" if name in wrong.split() else "exact"
        assert verdict.startswith(expected), report


def test_the_first_wrong_element_is_named() -> None:
    x, mask = tensor("x", 4, 7), build("numbers", (4, 7), " ".join(["1"] * 17 + ["2"] + ["1"] * 10), "float32")
    made = Gradient.of(multiply(x, x), x=multiply(times(multiply(like(x), x), "2"), mask))
    report = check_gradient(*made)
    assert report.gradients == {"x": "differs: gradient with respect to x, first at (2, 3)"}


def test_values_beside_gradients_are_compared_too() -> None:
    program, gradient, wrt = squared()
    right = Program(build("construct-tuple", program.term, *gradient.term.children))
    wrong = Program(build("construct-tuple", times(program.term, "2"), *gradient.term.children))
    assert check_gradient(program, right, wrt).value == "exact"
    report = check_gradient(program, wrong, wrt)
    assert report.value == "differs: result 0, first at ()"
    assert report.gradients == {"x": "exact"}
    assert not report.ok


def test_a_gradient_of_a_gradient_is_checked_alike() -> None:
    """Of sum(x^3) twice: 6 x v."""
    x, v = tensor("x", 3), tensor("v", 3)
    cubed = Program(multiply(times(multiply(x, x), "3"), v), name="first")
    second = Gradient.of(cubed.term, x=multiply(multiply(times(x, "6"), v), like(x))).gradient
    assert check_gradient(cubed, second, "x").gradients == {"x": "exact"}


def test_several_results_have_a_cotangent_each() -> None:
    x = tensor("x", 3)
    program = Program(build("construct-tuple", multiply(x, x), relu(x)))
    u, v = tensor("g.output_0", 3), tensor("g.output_1", 3)
    right = add(multiply(times(x, "2"), u), multiply(above(x, "0"), v))
    assert check_gradient(program, Program(right), "x").gradients == {"x": "exact"}
    swapped = check_gradient(program, Program(right), "x", cotangents=["g.output_1", "g.output_0"])
    assert swapped.gradients["x"].startswith("differs")


def test_what_is_made_of_integers_carries_nothing() -> None:
    x, i = tensor("x", 3), tensor("i", 3, dtype="int32")
    y = multiply(multiply(x, cast(i, "float32")), compute("floor", x))
    right = multiply(multiply(like(y), cast(i, "float32")), compute("floor", x))
    assert check_gradient(*Gradient.of(y, x=right)).ok


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "float8_e4m3fn"])
def test_casts_between_floats_pass_on_what_changes(dtype: str) -> None:
    x = tensor("x", 3)
    y = cast(cast(multiply(x, x), dtype), "float32")
    made = Gradient.of(y, x=multiply(times(x, "2"), cast(cast(like(y), dtype), "float32")))
    assert check_gradient(*made).gradients == {"x": "exact"}


@pytest.mark.parametrize("dims", [(), (0,), (2, 0), (1, 1)])
def test_gradients_of_few_elements_are_checked_too(dims: tuple[int, ...]) -> None:
    x = tensor("x", *dims)
    y = multiply(x, x)
    assert check_gradient(*Gradient.of(y, x=multiply(times(x, "2"), like(y)))).gradients == {"x": "exact"}


def test_a_side_that_nothing_reached_is_said() -> None:
    x = tensor("x", 2)
    y = compute("(clip -4000000 4000000)", x)
    verdict = check_gradient(*Gradient.of(y, x=like(y))).gradients["x"]
    assert verdict.startswith("equal where reached: max of (clip -4000000 4000000), 2, never took the second number")


def test_what_differs_in_one_field_alone_is_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number may be 0 in one field: it is looked at again in other residues, at the same places."""
    seen: list[int] = []

    def compare(self: gradients._AdjointTest, point: gradients._Point) -> dict[str, str]:
        seen.append(point.numbers.field.p)
        return {"x": "differs"} if point.numbers.field.p == PRIMES[0] else {}

    monkeypatch.setattr(gradients._AdjointTest, "_compare", compare)
    assert check_gradient(*squared()).gradients == {"x": "exact"}
    assert seen[:3] == [PRIMES[0], PRIMES[1], PRIMES[1]]


def test_a_black_box_has_no_derivative() -> None:
    x = tensor("x", 2)
    y = build("opaque", "mystery", ((), (2,)), "float32", x)
    report = check_gradient(*Gradient.of(y, x=like(y)))
    assert report.gradients == {"x": "not checked: the black box mystery has no known derivative"}
    assert not report.ok


def test_past_the_deadline_nothing_is_called_exact() -> None:
    program, gradient, wrt = dense()
    report = check_gradient(program, gradient, wrt, deadline=time.monotonic())
    assert report.stopped == "time-limit"
    assert set(report.gradients.values()) == {"not checked: time ran out"}


def test_the_report_says_what_is_taken_for_granted() -> None:
    text = str(check_gradient(*softmaxed()))
    assert text.startswith("gradients: 1 of 1 exact\ndual numbers at random points")
    assert "pseudo-random functions with their derivative rules stand for exp" in text


@pytest.mark.parametrize(
    ("program", "gradient", "wrt", "sentence"),
    [
        (relu(tensor("x", 3)), tensor("x", 3), ["y"], "a gradient requires a tensor of the program, which has no y"),
        (relu(tensor("x", 3)), tensor("x", 3), [], "requires tensors, each once, got none"),
        (relu(tensor("x", 3)), tensor("x", 3), ["x"], "without cotangents requires a result of one number"),
        (relu(tensor("x", 3)), tensor("x", 4), ["x"], "the gradient with respect to x requires float32 of"),
        (relu(tensor("x", 3)), tensor("u", 4), ["x"], "the gradient with respect to x requires float32 of"),
        (relu(tensor("x", 3)), add(tensor("u", 3), tensor("v", 3)), ["x"], "requires 1 cotangents, one for each"),
        (cast(tensor("i", 3, dtype="int8"), "float32"), tensor("u", 3), ["i"], "with respect to i requires floats"),
        (
            relu(tensor("x", 3)),
            build("construct-tuple", *[filled(tensor("x", 3), 0)] * 3),
            ["x"],
            "requires 1 results, or 2 with the program's own before them, got 3",
        ),
    ],
)
def test_what_does_not_belong_together_is_a_sentence(
    program: Term, gradient: Term, wrt: list[str], sentence: str
) -> None:
    with pytest.raises(BadInput, match=sentence):
        check_gradient(Program(program), Program(gradient), wrt)
