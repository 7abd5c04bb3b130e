"""Tests directed inputs: only free tensors are moved, neither given ones nor those that indices are computed from."""

from __future__ import annotations

import numpy as np

from glenside.builder.layout import concatenate, gather, reshape
from glenside.builder.pointwise import add, cast, combine, compute
from glenside.check import check
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.ir.types import Dims, Tensor


def _tensor(name: str, *dims: int, dtype: str = "float32") -> Term:
    return build("access-tensor", Tensor(name, Dims(dims), dtype))


def test_what_is_given_is_taken_as_it_is() -> None:
    total = add(_tensor("y", 4), _tensor("w", 4))
    fifty, fifty_one = (Program(compute(f"(clip 0 {most})", total)) for most in (50, 51))
    assert check(fifty, fifty_one).result.startswith("differs")
    ones = np.ones(4, np.float32)
    assert check(fifty, fifty_one, given={"w": ones, "y": 3 * ones}).result.startswith("equal where reached")
    assert check(fifty, fifty_one, given={"w": ones}).result.startswith("differs")


def test_numbers_that_choose_elements_stay_within_their_axis() -> None:
    chosen = _tensor("i", 3, dtype="int64")
    most = combine("maximum", chosen, build("full", (3,), "50", "int64"))
    rows = reshape(gather(_tensor("x", 5, 4), chosen, 0), (12,))
    program = Program(concatenate([rows, cast(most, "float32")], 0))
    verdict = check(program, program)
    assert verdict.ok
    assert "never took" in str(verdict)
