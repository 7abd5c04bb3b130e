"""Tests inputs for computed indices: they are drawn like all others, and the indices stay within their axes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from slow_cases import quick
from stepped_programs import by, plus, tensor, times

import glenside as gl
from glenside.builder.indexing import gather_nd, top
from glenside.builder.layout import broadcast, concatenate, flip, gather, reshape, slice_axis
from glenside.builder.pointwise import add, cast, combine, compare, compute, multiply, relu, select
from glenside.builder.reductions import position
from glenside.check import check, check_gradient
from glenside.check.confined import Confined
from glenside.check.indices import index_limits, picks
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.semantics import Native

Of = Callable[[Term], Term]
X, I, T = tensor("x", (4, 5), "float32"), tensor("i", (4,), "int64"), tensor("t", (9, 3), "float32")  # noqa: E741


def at(indices: Term) -> Term:
    """Returns rows of a table."""
    return gather(T, reshape(indices, (-1,)))


def of_best(x: Term) -> Term:
    return gather(tensor("s", (5, 2), "float32"), reshape(position("argmax", x, 1), (-1,)))


def shifted_far(x: Term) -> Term:
    """x for numbers from 0 to 999."""
    return add(x, compute("floor", times(x, "1/1000")))


ABOVE: dict[str, Of] = {
    "top 1": lambda x: top(x, 1, 1)[0],
    "top all": lambda x: top(x, 5, 1)[0],
    "places and numbers": lambda x: concatenate([top(x, 2, 1)[0], cast(top(x, 2, 1)[1], "float32")], 1),
    "beside argmax": lambda x: concatenate([reshape(x, (-1, 1)), reshape(of_best(x), (-1, 1))], 0),
    "rows of itself": lambda x: gather(x, reshape(position("argmin", slice_axis(x, 1, 0, 4), 0), (-1,))),
    "cut to an index": lambda x: gather(x, _cut(x)),
}


def _cut(x: Term) -> Term:
    return compute("(clip -4 3)", reshape(cast(x, "int64"), (-1,)))


CHANGED: dict[str, Of] = {
    "doubled": lambda x: add(x, x),
    "squared": lambda x: multiply(x, x),
    "floor far away": shifted_far,
    "no number below 0": relu,
    "absolute": lambda x: compute("abs", x),
    "whole": lambda x: compute("floor", x),
}


@pytest.mark.parametrize("above", ABOVE)
@pytest.mark.parametrize("changed", CHANGED)
def test_what_differs_above_an_index_is_seen(above: str, changed: str) -> None:
    of = ABOVE[above]
    report = check(Program(of(X)), Program(of(CHANGED[changed](X))))
    assert report.result.startswith("differs"), report


@pytest.mark.parametrize("rows", [1, 2, 3, 40])
def test_axes_of_any_size_are_no_limit(rows: int) -> None:
    x = tensor("x", (rows, 3), "float32")
    for changed in (multiply(x, x), shifted_far(x), times(x, "2")):
        found = (Program(build("construct-tuple", *top(of, rows, 0))) for of in (x, changed))
        assert check(*found).result.startswith("item 0 of the tuple differs")


WHOLE: dict[str, tuple[Of, Of]] = {
    "1 further, cut": (lambda i: plus(i, 1), lambda i: plus(relu(i), 1)),
    "far away": (lambda i: plus(i, 100), lambda i: plus(by("maximum", i, "-100"), 100)),
    "square": (lambda i: multiply(i, i), lambda i: multiply(i, relu(i))),
    "negative": (lambda i: compute("negative", i), lambda i: compute("negative", compute("abs", i))),
    "halves": (lambda i: cast(times(cast(i, "float64"), "1/2"), "int64"), lambda i: by("minimum", i, "1")),
    "of floats": (
        lambda i: cast(times(tensor("f", (4,)), "3"), "int64"),
        lambda i: cast(compute("floor", times(tensor("f", (4,)), "3")), "int64"),
    ),
    "of two": (lambda i: add(i, tensor("k", (4,), "int64")), lambda i: add(relu(i), tensor("k", (4,), "int64"))),
}


@pytest.mark.parametrize("case", WHOLE)
def test_an_index_that_only_some_numbers_make_valid(case: str) -> None:
    right, wrong = WHOLE[case]
    program = Program(at(right(I)))
    assert check(program, Program(at(plus(plus(right(I), 1), "-1")))).result == "exact"
    assert check(program, Program(at(wrong(I)))).result.startswith("differs")


def test_what_reads_outside_differs() -> None:
    narrow = gather(slice_axis(T, 0, 0, 5), I)
    assert check(Program(gather(T, I)), Program(narrow)).result.startswith("differs: access-gather requires indices")


def rest(i: Term, divisor: int, rounding: str = "floor") -> Term:
    """What is left of indices that are divided by one number."""
    return combine(f"(mod {rounding})", i, build("full", tuple(i.access.dims), str(divisor), "int64"))


AS_FAR_AS_THE_DIVISOR: dict[str, Callable[[Term, int], Term]] = {
    "cut": lambda i, n: compute(f"(clip 0 {n - 1})", i),
    "itself": lambda i, n: i,
    "of twice as much": lambda i, n: rest(i, 2 * n),
    "of the other rounding": lambda i, n: rest(i, n, "truncate"),
}


@pytest.mark.parametrize("other", AS_FAR_AS_THE_DIVISOR)
@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_a_rest_is_told_from_what_is_the_same_up_to_the_divisor(other: str, dtype: str) -> None:
    """Where it is compared with one number, few numbers beyond the divisor show a difference."""
    x = tensor("x", (2, 2), dtype)
    i = cast(compute("floor", x), "int64") if dtype == "float64" else x
    for divisor, one, seed in product((10, 100, 4096), (1, 7), range(2)):
        right, wrong = (
            select(compare("eq", j, build("full", (2, 2), str(one), "int64")), x, compute("negative", x))
            for j in (rest(i, divisor), AS_FAR_AS_THE_DIVISOR[other](i, divisor))
        )
        report = check(Program(right), Program(wrong), layers=False, seed=seed)
        assert report.result.startswith("differs"), (divisor, one, seed, report)


def test_the_order_of_few_indices_is_seen() -> None:
    x, i = tensor("x", (2, 1)), tensor("i", (3,), "int64")
    for seed in range(8):
        report = check(Program(gather(x, i)), Program(gather(x, flip(i, 0))), seed=seed)
        assert report.result.startswith("differs")


def test_each_element_of_an_index_has_its_own_limit() -> None:
    pairs, table = tensor("p", (4, 2), "int64"), tensor("t", (3, 7), "float32")
    assert np.array_equal(index_limits(gather_nd(table, pairs))["p"], np.broadcast_to([3, 7], (4, 2)))
    low, high = slice_axis(pairs, 1, 0, 1), compute("(clip -7 4)", slice_axis(pairs, 1, 1, 2))
    wrong = Program(gather_nd(table, concatenate([low, high], 1)))
    assert check(Program(gather_nd(table, pairs)), wrong).result.startswith("differs")


def test_an_element_that_is_no_index_is_any() -> None:
    some, rest = slice_axis(I, 0, 0, 2), slice_axis(I, 0, 2, 4)
    right = build("construct-tuple", gather(T, some), rest)
    wrong = build("construct-tuple", gather(T, some), compute("(clip -9 9)", rest))
    assert index_limits(right)["i"].tolist() == [9, 9, 0, 0]  # type: ignore[union-attr]
    assert check(Program(right), Program(wrong)).result.startswith("item 1 of the tuple differs")


def test_intervals_reach_as_far_as_the_axis() -> None:
    def interval(indices: Term, **drawn: np.ndarray) -> dict[str, tuple[float, float]]:
        confined = Confined(picks(at(indices)))
        assert confined.settle(drawn, Native()) is not None
        return {n: at for box in confined.boxes for n, at in box.intervals.items()}

    far = np.array([-4000, 17, 9, 1 << 40])
    assert interval(plus(I, 100), i=far) == {"i": (-109, -92)}
    assert interval(multiply(I, I), i=far) == {"i": (-2, 2)}
    assert interval(compute("(clip -9 8)", I), i=far) == {}
    low, high = interval(cast(tensor("f", (4,)), "int64"), f=np.array([-40.0, 40.0, 0.5, 8.25]))["f"]
    assert -10 < low <= -9.5
    assert 8.5 <= high < 9


def test_an_index_that_no_numbers_make_valid_is_not_checked() -> None:
    program = Program(at(compute("(clip 100 200)", I)))
    assert check(program, program).result.startswith("not checked: access-gather requires indices from -9 to 8")


@pytest.mark.parametrize("target", [gl.SystolicArray(4, 4), gl.ConvolutionUnit("nhwc")])
def test_programs_that_cast_a_float_to_an_index_are_optimized(target: gl.Target) -> None:
    b = gl.Builder("p")
    x, i = b.input("x", (4, 3)), b.input("i", (2,))
    picked = b.gather(b.matmul(x, b.constant("w", (3, 5))), cast(i, "int64"))
    result = gl.optimize(b.finish(picked), target)
    assert result.report.checked == "exact"


# Gradients.


@pytest.mark.parametrize("factor", quick(["7", "-1", "0", "1001/1000", "1"], 1, 3, 4))
def test_a_gradient_above_an_index(factor: str) -> None:
    b = gl.Builder("p")
    program = b.finish(b.top(b.compute("cos", b.input("x", (4, 1))), 1, 1)[0])
    (right,) = gl.gradient(program, "x", cotangent="u").term.children
    for seed in range(3):
        report = check_gradient(program, Program(times(right, factor)), "x", cotangents=["u"], seed=seed)
        assert report.ok == (factor == "1"), report


def test_equal_numbers_above_an_index_are_no_corner() -> None:
    b = gl.Builder("p")
    program = b.finish(b.top(b.relu(b.input("x", (5,), "float64")), 3, 0)[0])
    gradient = gl.gradient(program, "x", cotangent="u")
    assert all(check_gradient(program, gradient, "x", seed=seed).ok for seed in range(3))


# Compiled programs.


@pytest.mark.needs_compiler
@pytest.mark.parametrize("indices", [*WHOLE, "argmax"])
def test_compiled_programs_are_compared(indices: str) -> None:
    term = of_best(X) if indices == "argmax" else at(WHOLE[indices][0](I))
    report = gl.compile(Program(term), "none").check()
    if indices == "halves":  # the residue of a half is no small number
        assert report.residues == "exact" or report.residues.startswith("not compared")
    else:
        assert report.ok, report


def test_indices_of_casts_beside_others_have_limits() -> None:
    """Indices concatenated from a cast tensor and numbers: both are int64 only after the cast."""
    narrow = tensor("i", (2, 3, 1), "int32")
    rows = reshape(build("iota", 2, "int64"), (2, 1, 1))
    indices = concatenate([broadcast(rows, (2, 3, 1)), cast(narrow, "int64")], 2)
    program = Program(gather_nd(tensor("a", (2, 4), "float32"), indices))
    assert index_limits(program.term) == {"i": 4}
    assert check(program, program).result == "exact"
