"""Tests that plausibly wrong programs are never called equal, whatever operators come before the fault."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from slow_cases import quick
from stepped_programs import by, full

from glenside.builder.indexing import top
from glenside.builder.layout import concatenate, flip, pad, reshape, slice_axis, transpose
from glenside.builder.pointwise import add, cast, combine, compare, compute, filled, mean_from, select, softmax
from glenside.builder.products import matmul
from glenside.builder.reductions import position, reduce_axes, running
from glenside.builder.windows import average_pool, max_pool
from glenside.check import check
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.ir.types import Dims, Tensor

DIMS = (4, 6)
Pair = tuple[Term, Term]


def tensor(name: str, dtype: str, dims: tuple[int, ...] = DIMS) -> Term:
    return build("access-tensor", Tensor(name, Dims(dims), dtype))


def holds(relation: str, x: Term, value: str) -> Term:
    return cast(compare(relation, x, full(x, value)), "float32")


def real(x: Term) -> Term:
    return cast(x, "float32")


def image(x: Term) -> Term:
    return reshape(x, (1, 1, *DIMS))


def summed(x: Term) -> Term:
    return running(add, x, 1, "0")


def in_bytes(x: Term) -> Term:
    return real(cast(x, "int8"))


def divided_down(x: Term) -> Term:
    """x / 3, less what the rest is of a number below 0."""
    return by("elementwise-div", combine("subtract", x, by("(mod floor)", x, "3")), "3")


BEGINNINGS: dict[str, Callable[[], Term]] = {
    "plain": lambda: tensor("x", "float32"),
    "product": lambda: matmul(tensor("w", "float32", (4, 4)), tensor("x", "float32")).result,
    "third": lambda: by("elementwise-mul", tensor("x", "float32"), "1/3"),
    "difference": lambda: combine("subtract", tensor("x", "float32"), tensor("y", "float32")),
}
REALS: dict[str, Callable[[Term], Pair]] = {
    "a threshold": lambda x: (compute("(clip 0 6)", x), compute("(clip 0 6001/1000)", x)),
    "a far threshold": lambda x: (compute("(clip -40 40)", x), compute("(clip -40 4001/100)", x)),
    "equal numbers": lambda x: (holds("lt", x, "1/2"), holds("le", x, "1/2")),
    "0": lambda x: (holds("gt", x, "0"), holds("ge", x, "0")),
    "the sign of 0": lambda x: (compute("abs", compute("sign", x)), full(x, "1")),
    "the last of equals": lambda x: (real(position("argmax", x, 1)), real(position("argmax", x, 1, last=True))),
    "order of equals": lambda x: (real(top(x, 2, 1)[1]), by("subtract", real(top(flip(x, 1), 2, 1)[1]), "5")),
    "halves up": lambda x: (compute("round", x), compute("floor", by("elementwise-add", x, "1/2"))),
    "halves down": lambda x: (compute("round", x), compute("ceil", by("subtract", x, "1/2"))),
    "cut or down": lambda x: (real(cast(x, "int32")), compute("floor", x)),
    "cut after a half": lambda x: (compute("round", x), real(cast(by("elementwise-add", x, "1/2"), "int32"))),
    "wrapped": lambda x: (in_bytes(compute("(clip -128 127)", x)), in_bytes(x)),
    "saturated": lambda x: (in_bytes(compute("(clip -128 127)", x)), in_bytes(compute("(clip -127 127)", x))),
    "a rest's sign": lambda x: (by("(mod floor)", x, "3"), by("(mod truncate)", x, "3")),
    "padded by 0": lambda x: (
        max_pool(image(x), 3, padding=1),
        max_pool(pad(image(x), [(0, 0)] * 2 + [(1, 1)] * 2), 3),
    ),
    "what is counted": lambda x: (
        average_pool(image(x), 3, padding=1),
        average_pool(image(x), 3, padding=1, count_padding=False),
    ),
    "exclusive": lambda x: (summed(x), running(add, x, 1, "0", exclusive=True)),
    "from the end": lambda x: (summed(x), flip(summed(flip(x, 1)), 1)),
    "the least": lambda x: (reduce_axes("reduce-max", x, [1]), compute("relu", reduce_axes("reduce-max", x, [1]))),
    "one off": lambda x: (slice_axis(x, 1, 0, 5), slice_axis(x, 1, 1, 6)),
    "an axis": lambda x: (softmax(slice_axis(x, 1, 0, 4), 0), softmax(slice_axis(x, 1, 0, 4), 1)),
    "another axis": lambda x: (mean_from(slice_axis(x, 1, 0, 4), 0), mean_from(slice_axis(x, 1, 0, 4), 1)),
    "a square": lambda x: (slice_axis(x, 1, 0, 4), transpose(slice_axis(x, 1, 0, 4), (1, 0))),
    "a narrow gap": lambda x: (
        select(
            combine("logical-and", compare("gt", x, filled(x, 5)), compare("lt", x, full(x, "41/8"))), full(x, "0"), x
        ),
        x,
    ),
    "one number": lambda x: (select(compare("eq", x, full(x, "2")), full(x, "0"), x), x),
}
INTEGERS: dict[str, Callable[[Term], Pair]] = {
    "cut or down": lambda x: (by("elementwise-div", x, "3"), divided_down(x)),
    "a rest's sign": lambda x: (by("(mod floor)", x, "3"), by("(mod truncate)", x, "3")),
    "what wraps": lambda x: (cast(by("elementwise-add", x, "1"), "float32"), by("elementwise-add", real(x), "1")),
    "equal numbers": lambda x: (holds("gt", x, "100"), holds("ge", x, "100")),
    "the most": lambda x: (holds("gt", x, "124"), holds("ge", x, "124")),
    "the sign of 0": lambda x: (compute("abs", compute("sign", x)), full(x, "1")),
    "halves": lambda x: (
        by("elementwise-div", combine("elementwise-add", x, flip(x, 1)), "2"),
        combine("elementwise-add", by("elementwise-div", x, "2"), by("elementwise-div", flip(x, 1), "2")),
    ),
    "the last of equals": lambda x: (position("argmax", x, 1), position("argmax", x, 1, last=True)),
    "all bits": lambda x: (by("bitwise-or", x, "8"), by("bitwise-xor", x, "8")),
    "by 0": lambda x: (
        combine("elementwise-div", x, tensor("d", "int8")),
        select(compare("eq", tensor("d", "int8"), full(x, "0")), x, combine("elementwise-div", x, tensor("d", "int8"))),
    ),
    "a pair": lambda x: (x, concatenate([slice_axis(x, 1, 1, 2), slice_axis(x, 1, 0, 1), slice_axis(x, 1, 2, 6)], 1)),
}


@pytest.mark.parametrize(
    ("name", "beginning"),
    quick(
        product(REALS, BEGINNINGS),
        *(i * len(BEGINNINGS) + i % len(BEGINNINGS) for i in range(len(REALS))),
        unpacked=True,
    ),
)
def test_reals(name: str, beginning: str) -> None:
    right, wrong = REALS[name](BEGINNINGS[beginning]())
    assert check(Program(right), Program(wrong)).result.startswith("differs")


@pytest.mark.parametrize("beginning", ["plain", "times 3"])
@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name: str, beginning: str) -> None:
    x = tensor("x", "int8")
    right, wrong = INTEGERS[name](x if beginning == "plain" else by("elementwise-mul", x, "3"))
    assert check(Program(right), Program(wrong)).result.startswith("differs")


ENDS: dict[str, Callable[[Term, Term], Pair]] = {
    "the most and 1": lambda x, y: (
        combine("maximum", by("elementwise-add", x, "1"), x),
        by("elementwise-add", x, "1"),
    ),
    "the least of two": lambda x, y: (
        compute("relu", compute("abs", combine("maximum", x, y))),
        compute("abs", combine("maximum", x, y)),
    ),
    "the least and its opposite": lambda x, y: (
        compute("negative", combine("minimum", compute("negative", x), compute("negative", y))),
        combine("maximum", x, y),
    ),
}


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("name", ENDS)
def test_integers_at_their_ends(name: str, dtype: str) -> None:
    right, wrong = ENDS[name](tensor("x", dtype), tensor("y", dtype))
    assert check(Program(right), Program(wrong)).result.startswith("differs")
