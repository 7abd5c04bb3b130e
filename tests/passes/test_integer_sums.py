"""Tests that sums of dequantized bytes become integer sums where both are equal."""

from __future__ import annotations

import numpy as np
import pytest
from quantized_network import network, one, values

import glenside as gl
from glenside.builder import layout, quantization
from glenside.ir.program import Program, is_product
from glenside.ir.term import build, postorder
from glenside.passes.integer_sums import integer_sums


def _sums(program: Program) -> list[str]:
    return [term.access.dtype for term in postorder(program.term) if is_product(term)]


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("activation", ["uint8", "int8"])
def test_equal_where_nothing_is_rounded(zero: bool, activation: str, groups: int) -> None:
    program = network(zero, activation, groups)
    found = integer_sums(program)
    assert _sums(program) == ["float32"] * 2
    assert _sums(found) == ["int32"] * 2
    for seed in range(3):
        given = values(program, seed)
        (want,), (got,) = gl.evaluate([program.term], given), gl.evaluate([found.term], given)
        assert np.array_equal(want, got)
        assert np.unique(want).size > 4


def test_checked_exactly_in_a_prime_field() -> None:
    program = network(True)
    result = gl.optimize(program, gl.CPU())
    assert _sums(result.program) == ["int32"] * 2
    assert result.check().ok


def _products(item: int, scale_dims: tuple[int, ...], dtype: str = "int8", kind: str = "float32") -> Program:
    """(5)(item) x (3)(item), both scaled: rows as scale_dims say."""
    b = gl.Builder("p")
    x, w = b.input("x", (5, item), dtype=dtype), b.constant("w", (3, item), dtype="int8")
    scale = layout.reshape(b.constant("scale", scale_dims, dtype=kind), scale_dims)
    scale_of_all = one(b, "other", kind)
    real, weights = quantization.dequantize(x, scale_of_all, None), quantization.dequantize(w, scale, None)
    pair = build("access-product", layout.split_at(real, 1), layout.split_at(weights, 1), 0)
    return b.finish(build("compute", "dot-product", pair))


@pytest.mark.parametrize(
    ("program", "sums"),
    [
        (_products(8, (3, 1)), "int32"),
        (_products(8, (1,)), "int32"),
        (_products(8, (3, 8)), "float32"),  # the scale changes along the sum
        (_products(8, (1, 8)), "float32"),
        (_products(131_071, (3, 1)), "int32"),  # 128 * 128 * 131,071 < 2^31
        (_products(131_072, (3, 1)), "float32"),
        (_products(65_793, (3, 1), "uint8"), "int32"),  # 255 * 128 * 65,793 < 2^31
        (_products(65_794, (3, 1), "uint8"), "float32"),
        (_products(8, (3, 1), "int16"), "float32"),
        (_products(8, (3, 1), kind="float16"), "float16"),
    ],
)
def test_guards(program: Program, sums: str) -> None:
    found = integer_sums(program)
    assert _sums(found) == [sums]
    assert (found is program) == (sums != "int32")


def test_what_is_read_elsewhere_stays() -> None:
    """A dequantized tensor that others read too, and a sum whose float is a result."""
    program = network(True)
    before = next(term for term in postorder(program.term) if is_product(term))
    both = Program(build("construct-tuple", program.term, layout.split_at(before, 0)))
    found = integer_sums(both)
    given = values(program, 0)
    want, got = gl.evaluate([both.term], given)[0], gl.evaluate([found.term], given)[0]
    assert all(np.array_equal(a, b) for a, b in zip(want, got, strict=True))


def test_lowest_around_bytes_is_no_sum() -> None:
    b = gl.Builder("p")
    scale_of_all = one(b, "one", "float32")
    x = layout.pad(
        quantization.dequantize(b.input("x", (4, 6), dtype="int8"), scale_of_all, None), [(0, 0), (1, 1)], "min-padding"
    )
    w = quantization.dequantize(b.constant("w", (3, 8), dtype="int8"), scale_of_all, None)
    pair = build("access-product", layout.split_at(x, 1), layout.split_at(w, 1), 0)
    program = b.finish(build("compute", "dot-product", pair))
    assert integer_sums(program) is program
