"""Compares the builder's network blocks, each of several operators, with numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glenside.builder import Builder
from glenside.check import check
from glenside.ir.errors import TypeMismatch
from glenside.ir.term import Term, postorder
from glenside.semantics.interpreter import evaluate

Floats = NDArray[Any]


def run(term: Term, **values: Floats) -> Floats:
    result: Floats = evaluate([term], values)[0]
    assert result.shape == term.access.dims
    assert result.dtype.name == term.access.dtype
    return result


def normal(seed: int, *dims: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(dims)


def leaf(b: Builder, name: str, value: Floats) -> Term:
    return b.input(name, value.shape, value.dtype.name)


def operators(term: Term) -> list[str]:
    return [t.operator.name for t in postorder(term)]


ACTIVATIONS: dict[str, Callable[[float], float]] = {
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "tanh": math.tanh,
    "hard_sigmoid": lambda x: min(max(x / 6 + 0.5, 0), 1),
    "hard_swish": lambda x: x * min(max(x / 6 + 0.5, 0), 1),
    "gelu": lambda x: x * 0.5 * math.erfc(-x / math.sqrt(2)),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dims", [(3, 5), (7,), ()])
def test_activations(name: str, dims: tuple[int, ...]) -> None:
    x = 4 * np.asarray(normal(0, *dims))
    b = Builder()
    got = run(getattr(b, name)(leaf(b, "x", x)), x=x)
    np.testing.assert_allclose(got, np.vectorize(ACTIVATIONS[name])(x), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dims", [(2, 3, 5), (4, 6), (7,)])
def test_layer_norm(dims: tuple[int, ...]) -> None:
    x, gamma, beta = 3 * normal(0, *dims) + 1, normal(1, dims[-1]), normal(2, dims[-1])
    b = Builder()
    y = b.layer_norm(leaf(b, "x", x), leaf(b, "gamma", gamma), leaf(b, "beta", beta), eps="1e-3")
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3) * gamma + beta
    np.testing.assert_allclose(run(y, x=x, gamma=gamma, beta=beta), expected)


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_upsample_repeats_what_is_nearest(factor: int) -> None:
    x = normal(0, 2, 3, 4, 5)
    b = Builder()
    expected = x.repeat(factor, 2).repeat(factor, 3)
    np.testing.assert_array_equal(run(b.upsample(leaf(b, "x", x), factor), x=x), expected)
    line = b.input("line", (1, 2, 3), "float64")
    np.testing.assert_array_equal(run(b.upsample(line), line=x[:1, :2, 0, :3]), x[:1, :2, 0, :3].repeat(2, 2))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concatenate_and_slices(axis: int) -> None:
    x = normal(0, 3, 4, 5)
    b = Builder()
    term = leaf(b, "x", x)
    assert b.concatenate([term], axis) is term
    np.testing.assert_array_equal(run(b.concatenate([term] * 3, axis), x=x), np.concatenate([x] * 3, axis))
    np.testing.assert_array_equal(run(b.slice_axis(term, axis, 1, 3), x=x), np.take(x, [1, 2], axis))
    assert b.slice_axis(term, axis, 0, x.shape[axis]) is term


def test_gather_looks_up_an_embedding() -> None:
    table, ids = normal(0, 11, 4), np.random.default_rng(1).integers(0, 11, (2, 3))
    b = Builder()
    found = b.gather(leaf(b, "table", table), leaf(b, "ids", ids))
    np.testing.assert_array_equal(run(found, table=table, ids=ids), table[ids])


def test_two_transposes_are_one() -> None:
    x = normal(0, 2, 3, 4)
    b = Builder()
    term = leaf(b, "x", x)
    twice = b.transpose(b.transpose(term, (1, 2, 0)), (0, 2, 1))
    assert operators(twice) == ["access-tensor", "access-transpose"]
    np.testing.assert_array_equal(run(twice, x=x), x.transpose(1, 2, 0).transpose(0, 2, 1))
    assert b.transpose(b.transpose(term, (1, 2, 0)), (2, 0, 1)) is term


def attended(q: Floats, k: Floats, v: Floats, mask: Floats, heads: int) -> Floats:
    """One image, head and query after the other."""
    depth, width = q.shape[2] // heads, v.shape[2] // heads
    result = np.zeros((*q.shape[:2], v.shape[2]))
    for n, h, i in np.ndindex(q.shape[0], heads, q.shape[1]):
        part = slice(h * depth, (h + 1) * depth)
        powers = np.exp(k[n, :, part] @ q[n, i, part] / math.sqrt(depth) + mask[n])
        result[n, i, h * width : (h + 1) * width] = powers / powers.sum() @ v[n, :, h * width : (h + 1) * width]
    return result


@pytest.mark.parametrize(("heads", "depth", "width"), [(1, 4, 4), (2, 8, 6), (3, 15, 3), (4, 4, 8)])
@pytest.mark.parametrize("masked", [False, True])
def test_attention(heads: int, depth: int, width: int, masked: bool) -> None:
    q, k, v = normal(0, 2, 5, depth), normal(1, 2, 7, depth), normal(2, 2, 7, width)
    mask = np.where(normal(3, 2, 7) > 1, -1e9, 0) * masked
    b = Builder()
    added = b.reshape(leaf(b, "mask", mask), (2, 1, 1, 7)) if masked else None
    y = b.attention(leaf(b, "q", q), leaf(b, "k", k), leaf(b, "v", v), added, heads=heads, name="it")
    program = b.finish(y)
    assert list(program.layers) == ["it.scores", "it.context"]
    np.testing.assert_allclose(run(y, q=q, k=k, v=v, mask=mask), attended(q, k, v, mask, heads))


def test_the_products_of_attention_have_one_transpose_each_side() -> None:
    b = Builder()
    q, k, v = (b.input(name, (2, 5, 8)) for name in "qkv")
    b.attention(q, k, v, heads=2)
    program = b.finish(b.attention(q, k, v, heads=2, name="it"))
    for product, types in {
        "it.scores": ["(2 2 5)(4) float32", "(2 2 5)(4) float32"],
        "it.context": ["(2 2 5)(5) float32", "(2 2 4)(5) float32"],
    }.items():
        sides = program.layers[product].children[0].children
        assert [str(side.access) for side in sides] == types
    one, other = program.layers["it.scores"].children[0].children
    for side in (one, other):
        assert operators(side) == ["access-tensor", "access-reshape", "access-transpose", "access"]


@pytest.mark.slow
def test_blocks_are_checked_exactly() -> None:
    def program(swapped: bool) -> Any:
        b = Builder()
        x, y = b.input("x", (1, 3, 6)), b.input("y", (1, 3, 6))
        gamma, beta = b.constant("gamma", (6,)), b.constant("beta", (6,))
        first = b.gelu(b.layer_norm(b.add(y, x) if swapped else b.add(x, y), gamma, beta, "1e-12"))
        return b.finish(b.hard_swish(b.attention(first, x, y, heads=3, name="it")))

    assert check(program(False), program(True)).ok


REFUSED: dict[str, Callable[[Any, Any], object]] = {
    "layer norm requires gamma and beta": lambda b, x: b.layer_norm(x, b.input("g", (3,)), b.input("h", (3,))),
    "upsample requires x of ": lambda b, x: b.upsample(b.reshape(x, (2, -1))),
    "concatenate requires at least one part": lambda b, x: b.concatenate([], 0),
    "concatenate requires -3 <= axis < 3, got 3": lambda b, x: b.concatenate([x, x], 3),
    "access-concatenate requires operands": lambda b, x: b.concatenate([x, b.input("y", (2, 5, 4))], 0),
    "access-slice requires 0 <= lo": lambda b, x: b.slice_axis(x, 1, 2, 9),
    "access-gather requires indices of an integer": lambda b, x: b.gather(x, x),
    "access-transpose requires an order": lambda b, x: b.transpose(b.transpose(x, (2, 1, 0)), (0, 1)),
    "attention requires q, k and v of ": lambda b, x: b.attention(x, x, b.reshape(x, (2, -1)), heads=1),
    "attention requires q, k and v that agree": lambda b, x: b.attention(x, x, b.input("y", (2, 4, 6)), heads=1),
    "attention requires heads that divide": lambda b, x: b.attention(x, x, x, heads=4),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_does_not_fit_is_refused_in_a_sentence(message: str) -> None:
    b = Builder()
    with pytest.raises(TypeMismatch) as error:
        REFUSED[message](b, b.input("x", (2, 5, 6)))
    assert str(error.value).startswith(message)
