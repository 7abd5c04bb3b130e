"""Tests `gl.quantize_weights`: products with weights of few bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import glenside as gl
from glenside.ir.errors import BadInput


def network(depth: int = 128) -> gl.Program:
    """Returns two products with a norm's gain and a bias between them."""
    rng, b = np.random.default_rng(0), gl.Builder()

    def weights(name: str, *dims: int) -> Any:
        return b.constant(name, dims, value=rng.standard_normal(dims).astype(np.float32))

    x = b.relu(b.linear(b.input("x", (3, depth)), weights("w", 96, depth), name="first"))
    return b.finish(b.linear(b.add(x, weights("c", 96)), weights("v", 64, 96), name="second"))


def value(program: gl.Program, x: np.ndarray) -> np.ndarray:
    return np.asarray(gl.evaluate([program.term], {**program.constants, "x": x})[0])


@pytest.mark.parametrize(("dtype", "error"), [("int4", 0.2), ("int8", 0.02)])
@pytest.mark.parametrize("block", [8, 32])
def test_products_are_near_those_of_floats(dtype: str, error: float, block: int) -> None:
    program = network()
    rounded = gl.quantize_weights(program, dtype, block=block)
    assert sorted(tensor.dtype for tensor in rounded.tensors.values()) == sorted([*2 * [dtype, "float16", "float32"]])
    assert [*rounded.names] == [*program.names]
    x = np.random.default_rng(1).standard_normal((3, 128)).astype(np.float32)
    wanted, found = value(program, x), value(rounded, x)
    assert 0 < np.abs(found - wanted).max() < error * np.abs(wanted).max()


@pytest.mark.needs_compiler
def test_compiled_products_read_the_integers() -> None:
    rounded = gl.quantize_weights(network(), block=16)
    function = gl.compile(rounded, check=True)
    assert sum(b.bytes for b in function.loops.buffers if b.dtype == "int4") == (96 * 128 + 64 * 96) // 2
    x = np.random.default_rng(1).standard_normal((3, 128)).astype(np.float32)
    np.testing.assert_allclose(function(x), value(rounded, x), rtol=1e-4, atol=1e-4)


def test_weights_that_integers_hold_are_equal() -> None:
    b, rng = gl.Builder(), np.random.default_rng(0)
    exact = (rng.integers(-7, 8, (64, 2, 32)) * rng.choice([0.25, 1, 8], (64, 2, 1))).astype(np.float32)
    exact[..., 0] = 7 * np.float32(0.25)
    exact[:, 1, :] = 0  # a block of zeros
    program = b.finish(b.linear(b.input("x", (2, 64)), b.constant("w", (64, 64), value=exact.reshape(64, 64))))
    x = rng.integers(-4, 5, (2, 64)).astype(np.float32)
    ours = gl.quantize_weights(program)
    largest = np.abs(exact).max(-1, keepdims=True)
    np.testing.assert_allclose(value(ours, x), value(program, x), atol=float((largest / 14).sum(1).max()) * 4 * 32)
    assert not ours.constants["w.integers"].reshape(64, 2, 32)[:, 1].any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int3"}, "weights are rounded to int4 or int8, got 'int3'"),
        ({"block": 0}, "a block has at least 8 steps, got 0"),
        ({"block": True}, "a block has at least 8 steps, got True"),
        ({"block": 48}, "a block of 48 does not divide the 128 steps of the product with w"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        gl.quantize_weights(network(), **options)


def test_programs_without_such_products_are_refused() -> None:
    with pytest.raises(BadInput, match="quantize_weights takes a program, got str"):
        gl.quantize_weights("net.onnx")  # type: ignore[arg-type]
    b = gl.Builder("small")
    with pytest.raises(BadInput, match="small has no product with constant weights of 4,096 elements or more"):
        gl.quantize_weights(b.finish(b.relu(b.input("x", (3,)))))
    with pytest.raises(BadInput, match="got none of w"):
        gl.quantize_weights(b.finish(b.linear(b.input("y", (3, 64)), b.constant("w", (64, 64)))))
