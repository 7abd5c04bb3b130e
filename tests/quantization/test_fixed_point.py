"""Tests softmax and layer norms in fixed point: errors stay within their stated bounds."""

from __future__ import annotations

import numpy as np
import pytest

import glenside as gl
from glenside.builder.layout import split_at
from glenside.ir.operand import Array
from glenside.quantization.affine import Affine, one_number
from glenside.quantization.building import Network
from glenside.quantization.normalizing import Standard, changed, softmax_of, standardised
from glenside.quantization.products import known_values
from glenside.quantization.values import Product, standing_for


def _made(x: Array, scale: float, kind: str, eps: float = 1e-5, added: bool = False) -> Array:
    """What is made of bytes of a scale, (items)(n), in real numbers."""
    network = Network(set(), frozenset())
    tensor = gl.Builder("p").input("x", x.shape, "int8").attributes[0]
    bytes_ = network.input(tensor, 1.0, 0)  # type: ignore[arg-type]
    value = Affine(standing_for(bytes_, x.shape), "float32", scale=one_number(scale))
    own = Standard(value.moved.term, x.shape, 1, eps, kind == "layer-norm", added)
    made = softmax_of(value, 1, "own") if kind == "softmax" else standardised(value, own, "own")
    (product,) = made.moved.leaves.values()
    assert isinstance(product, Product)
    assert product.normalised is not None
    table = product.normalised.table
    sums = network.sums(product)
    powers = None if table is None else network.constant("table", table)
    values = {**known_values(product.b), **network.constants, "x": x}
    (found,) = gl.evaluate([changed(split_at(sums, 0), product.normalised, powers)], values)
    return np.asarray(found).reshape(x.shape) * float(made.scale)


@pytest.mark.parametrize("n", [1, 2, 7, 64, 300])
@pytest.mark.parametrize("scale", [0.001, 0.03, 0.5])
def test_a_softmax_is_as_near_as_it_is_said_to_be(n: int, scale: float) -> None:
    draw = np.random.default_rng(n)
    x = np.concatenate(
        [draw.integers(-128, 128, (40, n)), draw.normal(0, 20, (40, n)).clip(-128, 127), np.full((1, n), -128)]
    ).astype(np.int8)
    powers = np.exp((x.astype(float) - x.max(axis=1, keepdims=True)) * scale)
    want = powers / powers.sum(axis=1, keepdims=True)
    apart = np.abs(_made(x, scale, "softmax") - want)
    assert apart.max() < (n + 3) / 65536


@pytest.mark.parametrize("n", [2, 7, 64, 300])
@pytest.mark.parametrize("scale", [0.001, 0.03, 0.5])
def test_a_layer_norm_is_as_near_as_it_is_said_to_be(n: int, scale: float) -> None:
    draw, eps = np.random.default_rng(n), 1e-5
    deviations = np.geomspace(1, 90, 60)[:, None]
    x = draw.normal(draw.integers(-60, 60, (60, 1)), deviations, (60, n)).clip(-128, 127).astype(np.int8)
    real = x.astype(float) * scale
    centred = real - real.mean(axis=1, keepdims=True)
    deviation = np.sqrt(np.square(centred).mean(axis=1, keepdims=True) + eps)
    made = _made(x, scale, "layer-norm", eps)
    rounding = 2.0 ** -np.floor(np.log2(32767 / np.sqrt(n))) / 2
    # The mean is off by 1/128 of a step, which is also in the deviation; so is eps, to a part of 64^2 n steps squared.
    more = np.abs(centred / deviation) * 0.5 * ((1 / 128) ** 2 + 1 / (64 * 64 * n)) * scale**2 / deviation**2
    assert (np.abs(made - centred / deviation) <= scale / 128 / deviation * 1.001 + rounding + more + 1e-5).all()


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("n", [1, 2, 7, 64, 300])
@pytest.mark.parametrize("scale", [0.001, 0.03, 0.5])
def test_what_is_divided_by_a_root_of_squares_is_as_near_as_it_is_said_to_be(n: int, scale: float, added: bool) -> None:
    draw, eps = np.random.default_rng(n), 1e-5
    x = draw.normal(draw.integers(-60, 60, (60, 1)), np.geomspace(0.1, 90, 60)[:, None], (60, n))
    x = np.concatenate([x.clip(-128, 127), np.zeros((1, n)), np.full((1, n), -128)]).astype(np.int8)
    real = x.astype(float) * scale
    squares = np.square(real)
    root = np.sqrt((squares.sum if added else squares.mean)(axis=1, keepdims=True) + eps)
    rounding = 2.0 ** -np.floor(np.log2(32767 / (1 if added else np.sqrt(n)))) / 2
    # What is added is in parts of 64^2 steps squared, and in each sum at least one of them.
    part = (1 if added else n) * (scale / 64) ** 2 / (1 if added else n)
    more = np.abs(real / root) * part / np.maximum(np.square(real).sum(axis=1, keepdims=True), scale**2)
    assert (np.abs(_made(x, scale, "rms-norm", eps, added) - real / root) <= rounding + more + 1e-5).all()
