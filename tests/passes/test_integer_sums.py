"""Sums of dequantized bytes are sums of integers, where that is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import glenside as gl
from glenside.builder import layout, pointwise, quantization
from glenside.ir.operand import Array
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, build, postorder
from glenside.passes.integer_sums import integer_sums


def _one(b: Any, name: str, dtype: str) -> Term:
    return layout.reshape(b.constant(name, (1,), dtype=dtype), ())


def _network(zero: bool, activation: str = "uint8", groups: int = 1) -> Program:
    """(1 4 7 6) floats: quantized, a padded convolution with scales of channels, a bias, and quantized again."""
    b = gl.Builder("p")
    x = b.input("x", (1, 4, 7, 6))
    scale, other = _one(b, "scale", "float32"), _one(b, "other", "float32")
    point = _one(b, "point", activation) if zero else None
    narrow = quantization.quantize(x, scale, point, activation)
    weights = b.constant("w", (8, 4 // groups, 3, 3), dtype="int8")
    scales = layout.reshape(b.constant("scales", (8,)), (8, 1, 1, 1))
    y = b.conv(
        quantization.dequantize(narrow, scale, point),
        quantization.dequantize(weights, scales, None),
        padding=1,
        groups=groups,
    )
    y = pointwise.add(y, layout.reshape(b.constant("bias", (8,)), (8, 1, 1)))
    z = quantization.quantize(y, other, point, activation)
    return b.finish(quantization.dequantize(z, other, point))


def _values(program: Program, seed: int) -> dict[str, Array]:
    """Scales are powers of two and biases small multiples of them: nothing is rounded but where that is said."""
    draw = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for name, tensor in program.tensors.items():
        if name == "point":
            found[name] = draw.integers(3, 120, tensor.dims).astype(tensor.dtype)
        elif "scale" in name or name == "other":
            found[name] = np.exp2(draw.integers(-4, 0, tensor.dims)).astype(np.float32) * (8 if name == "other" else 1)
        elif name == "w":
            found[name] = draw.integers(-128, 128, tensor.dims).astype(np.int8)
        else:
            found[name] = (draw.integers(-400, 400, tensor.dims) / 16).astype(np.float32)
    return found


def _sums(program: Program) -> list[str]:
    return [term.access.dtype for term in postorder(program.term) if is_product(term)]


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("activation", ["uint8", "int8"])
def test_equal_where_nothing_is_rounded(zero: bool, activation: str, groups: int) -> None:
    program = _network(zero, activation, groups)
    found = integer_sums(program)
    assert _sums(program) == ["float32"]
    assert _sums(found) == ["int32"]
    for seed in range(3):
        values = _values(program, seed)
        (want,), (got,) = gl.evaluate([program.term], values), gl.evaluate([found.term], values)
        assert np.array_equal(want, got)
        assert np.unique(want).size > 4


def test_checked_exactly_in_a_prime_field() -> None:
    program = _network(True)
    result = gl.optimize(program, gl.CPU())
    assert _sums(result.program) == ["int32"]
    assert result.check().ok


def _products(item: int, scale_dims: tuple[int, ...], dtype: str = "int8", kind: str = "float32") -> Program:
    """(5)(item) x (3)(item), both scaled: rows as scale_dims say."""
    b = gl.Builder("p")
    x, w = b.input("x", (5, item), dtype=dtype), b.constant("w", (3, item), dtype="int8")
    scale = layout.reshape(b.constant("scale", scale_dims, dtype=kind), scale_dims)
    one = _one(b, "other", kind)
    real, weights = quantization.dequantize(x, one, None), quantization.dequantize(w, scale, None)
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
    program = _network(True)
    before = next(term for term in postorder(program.term) if is_product(term))
    both = Program(build("construct-tuple", program.term, layout.split_at(before, 0)))
    found = integer_sums(both)
    values = _values(program, 0)
    want, got = gl.evaluate([both.term], values)[0], gl.evaluate([found.term], values)[0]
    assert all(np.array_equal(a, b) for a, b in zip(want, got, strict=True))


def test_lowest_around_bytes_is_no_sum() -> None:
    b = gl.Builder("p")
    one = _one(b, "one", "float32")
    x = layout.pad(
        quantization.dequantize(b.input("x", (4, 6), dtype="int8"), one, None), [(0, 0), (1, 1)], "min-padding"
    )
    w = quantization.dequantize(b.constant("w", (3, 8), dtype="int8"), one, None)
    pair = build("access-product", layout.split_at(x, 1), layout.split_at(w, 1), 0)
    program = b.finish(build("compute", "dot-product", pair))
    assert integer_sums(program) is program
