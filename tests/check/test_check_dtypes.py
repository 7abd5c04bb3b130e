"""Tests the check of low-precision programs: rounding to fewer bits is an opaque function, movement is exact."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_exports import leaf

from glenside.check import EXACT, check, check_floating, is_equal
from glenside.check.onnxruntime import check_onnxruntime
from glenside.ir.dtypes import REALS, STORED
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.semantics import PRIMES, PrimeField
from glenside.semantics.interpreter import evaluate
from glenside.semantics.ordered_field import OrderedField

FEW = [dtype for dtype in REALS if dtype in STORED]


def verdict(left: Term, right: Term) -> str:
    return check(Program(left), Program(right)).result


def through(x: Term, dtype: str) -> Term:
    return build("cast", build("cast", x, dtype), "float32")


def turned(x: Term) -> Term:
    return build("access-transpose", x, (1, 0))


def product(a: Term, b: Term) -> Term:
    return build("compute", "elementwise-mul", build("access-product", build("access", a, 2), build("access", b, 2), 2))


X, S = leaf("x", (3, 5)), leaf("s", (3, 5))


@pytest.mark.parametrize("dtype", STORED)
def test_movement_around_casts_is_equal(dtype: str) -> None:
    assert is_equal(verdict(turned(through(X, dtype)), through(turned(X), dtype)))
    stored = leaf("w", (3, 5), dtype)
    wide = build("cast", stored, "float32")
    assert verdict(turned(wide), build("cast", turned(stored), "float32")) == EXACT


@pytest.mark.parametrize("dtype", STORED)
def test_rounding_to_few_bits_is_not_left_out_and_not_moved_over_arithmetic(dtype: str) -> None:
    assert not is_equal(verdict(through(X, dtype), X))
    assert not is_equal(verdict(through(product(X, S), dtype), product(through(X, dtype), through(S, dtype))))


def test_floats_that_are_computed_in_are_equal_as_reals() -> None:
    assert is_equal(verdict(through(X, "bfloat16"), X))
    a, b = leaf("a", (3, 4), "bfloat16"), leaf("b", (5, 4), "bfloat16")

    def dot(left: Term, right: Term) -> Term:
        pairs = build("access-product", build("access", left, 1), build("access", right, 1), 0)
        return build("compute", "dot-product", pairs)

    assert verdict(turned(dot(a, b)), dot(b, a)) == EXACT
    assert not is_equal(verdict(dot(a, b), build("compute", "negative", dot(a, b))))


@pytest.mark.parametrize("dtype", FEW)
def test_numbers_in_both_fields_are_those_that_the_dtype_has(dtype: str) -> None:
    """A storage-only number is represented by itself; 0 stays 0."""
    x = leaf("x", (4,), dtype)
    values = {"x": np.array([0, 1, 1.5, -2]).astype(dtype)}
    for arithmetic in (PrimeField(PRIMES[0]), OrderedField(PrimeField(PRIMES[0]))):
        nothing = build("cast", build("full", (1,), 0, "float32"), dtype)
        wide, zero = evaluate([build("cast", x, "float32"), nothing], values, arithmetic)
        field = arithmetic if isinstance(arithmetic, PrimeField) else arithmetic.field
        want = field.encode("x", np.array([0, 1, 1.5, -2]), "float32")
        assert (arithmetic.identity(wide) == want).all()
        assert (arithmetic.identity(zero) == 0).all()


def test_both_programs_run_where_numpy_has_no_dtype() -> None:
    """In onnxruntime, which takes bits alone; and in floating point."""
    x, w = leaf("x", (3, 5), "bfloat16"), leaf("w", (3, 5), "int4")
    scaled = product(x, build("cast", w, "bfloat16"))
    one = Program(build("construct-tuple", scaled, build("cast", scaled, "float8_e4m3fn"), turned(w)))
    other = Program(build("construct-tuple", turned(turned(scaled)), build("cast", scaled, "float8_e4m3fn"), turned(w)))
    report = check_onnxruntime(one, other)
    assert report.ok, report
    assert check_floating(one, other).largest == 0
    wrong = Program(build("construct-tuple", product(scaled, x), *other.term.children[1:]))
    assert "output 0 differs" in check_onnxruntime(one, wrong).verdict
