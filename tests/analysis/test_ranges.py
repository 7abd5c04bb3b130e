"""Tests that every element lies within the predicted range of its term."""

from __future__ import annotations

import math

import numpy as np
import pytest

from glenside.analysis.ranges import EVERY, Range, ranges
from glenside.check.indices import index_limits
from glenside.check.input_generators import draw_reals
from glenside.ir.operator import COMPUTES, OPERATORS, Compute, Operator
from glenside.ir.term import Term, build
from glenside.ir.types import AccessType, Dims, Tensor
from glenside.semantics.interpreter import evaluate

RECORDS = [record for record in (*OPERATORS.values(), *COMPUTES.values()) if record.examples]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_no_element_is_outside(record: Operator | Compute) -> None:
    for example in record.examples:
        program = example.program(3)
        limits = index_limits(program.term)
        values = {name: draw_reals(tensor, limits.get(name), seed=3) for name, tensor in program.tensors.items()}
        found = ranges(program.term)
        wanted = [term for term in found if isinstance(term.type, AccessType) and not term.operator.opaque]
        for term, array in zip(wanted, evaluate(wanted, values), strict=True):
            low, high = found[term]
            real = array[~np.isnan(array)] if array.dtype.kind == "f" else array
            assert ((real >= low) & (real <= high)).all(), f"{term.operator.name} gives numbers outside {low} .. {high}"


def of(kind: str, a: Term) -> Range:
    term = build("compute", kind, a)
    return ranges(term)[term]


def test_what_is_known() -> None:
    x = build("access-tensor", Tensor("x", Dims((3, 4)), "float32"))
    assert of("relu", x) == Range(0, math.inf)
    assert of("(clip -3 6)", x) == Range(-3, 6)
    assert of("negative", build("compute", "(clip -3 6)", x)) == Range(-6, 3)
    assert of("exp", x) == Range(0, math.inf)
    assert of("reduce-max", build("access", build("compute", "(clip -3 6)", x), 1)) == Range(-3, 6)
    assert of("reduce-sum", build("access", x, 1)) == EVERY
    padded = build("access-pad", build("compute", "(clip 2 6)", x), "zero-padding", 0, 1, 1)
    assert ranges(padded)[padded] == Range(0, 6)
    lowest = build("access-pad", build("compute", "(clip 2 6)", x), "min-padding", 0, 1, 1)
    assert ranges(lowest)[lowest] == Range(-math.inf, 6)


def test_what_may_wrap_may_be_anything() -> None:
    x = build("access-tensor", Tensor("x", Dims((3,)), "int8"))
    assert of("negative", x) == Range(-128, 127)
    assert of("(clip 0 6)", x) == Range(0, 6)


def test_signs_of_sums_of_products_and_quotients_are_known() -> None:
    x = build("compute", "relu", build("access-tensor", Tensor("x", Dims((3, 4)), "float32")))
    large = build("full", Dims((1 << 11, 1 << 10)), "1/50", "float32")
    assert ranges(large)[large].low == pytest.approx(1 / 50)
    rows, weights = build("access", x, 1), build("access", build("full", Dims((5, 4)), "1/50", "float32"), 1)
    assert of("dot-product", build("access-product", rows, weights, 0)) == Range(0, math.inf)
    assert of("reduce-mean", rows) == Range(0, math.inf)
    half, minus = (build("full", Dims((3, 4)), value, "float32") for value in ("1/2", "-1/2"))
    assert of("elementwise-mul", build("access-product", x, minus, 0)) == Range(-math.inf, 0)
    assert of("elementwise-div", build("access-product", x, half, 0)) == Range(0, math.inf)
    assert of("elementwise-div", build("access-product", half, x, 0)).low == 0
    either = build("access-tensor", Tensor("y", Dims((3, 4)), "float32"))
    assert of("elementwise-div", build("access-product", x, either, 0)) == EVERY


def pooled(pad: int) -> Term:
    """Maxima of windows of 3 of numbers from 2 to 6, with so many lowest ones before and after."""
    x = build("compute", "(clip 2 6)", build("access-tensor", Tensor("x", Dims((3, 4)), "float32")))
    padded = build("access-pad", x, "min-padding", 1, pad, pad)
    return build("compute", "reduce-max", build("access-windows", build("access", padded, 1), Dims((3,)), Dims((1,))))


def test_padding_with_the_lowest_number_is_no_maximum_beside_others() -> None:
    assert ranges(pooled(2))[pooled(2)] == Range(2, 6)
    assert ranges(pooled(3))[pooled(3)] == Range(-math.inf, 6)
