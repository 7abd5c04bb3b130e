"""Tests which terms are known to be integer-valued, and which terms round."""

from __future__ import annotations

import numpy as np
import pytest

from glenside.analysis.integer_valued import whole_terms
from glenside.builder import Builder
from glenside.ir.operator import COMPUTES, Compute
from glenside.ir.term import Term, build, tensors
from glenside.ir.types import Dims, Tensor
from glenside.semantics.interpreter import evaluate

X = build("access-tensor", Tensor("x", Dims((3, 4)), "float32"))
ROUNDED = build("compute", "round", X)


def full(value: str) -> Term:
    return build("full", (3, 4), value, "float32")


@pytest.mark.parametrize(
    ("term", "whole"),
    [
        (X, False),
        (ROUNDED, True),
        (build("cast", build("cast", X, "int8"), "float32"), True),
        (build("cast", X, "float16"), False),
        (Builder.combine("elementwise-add", ROUNDED, full("3")), True),
        (Builder.combine("elementwise-add", ROUNDED, full("1/2")), False),
        (Builder.combine("elementwise-div", ROUNDED, full("2")), False),
        (build("compute", "(clip 0 6)", ROUNDED), True),
        (build("compute", "(clip 0 13/2)", ROUNDED), False),
        (build("compute", "reduce-sum", build("access", ROUNDED, 1)), True),
        (build("compute", "reduce-mean", build("access", ROUNDED, 1)), False),
        (build("access-pad", ROUNDED, "zero-padding", 0, 1, 1), True),
        (build("access-flip", X, 0), False),
    ],
    ids=str,
)
def test_whole(term: Term, whole: bool) -> None:
    assert (term in whole_terms(term)) is whole


@pytest.mark.parametrize("record", COMPUTES.values(), ids=lambda record: record.name)
def test_compute_types_that_keep_whole_numbers_give_them(record: Compute) -> None:
    """Of the examples of every compute type, with whole inputs."""
    for example in record.examples:
        term = example.program(1).term
        values = {}
        for leaf in tensors(term):
            tensor = leaf.attributes[0]
            values[tensor.name] = np.random.default_rng(0).integers(0, 2, tensor.dims).astype(tensor.dtype)
        for found in whole_terms(term):
            value = np.asarray(evaluate([found], values)[0], np.float64)
            assert (np.rint(value) == value).all()
