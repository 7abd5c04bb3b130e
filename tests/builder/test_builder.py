"""Compares terms of the builder with plain numpy loops; products have the form that rules match."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from glenside.builder import Builder
from glenside.check.input_generators import declared
from glenside.ir.errors import BadInput, TypeMismatch
from glenside.ir.program import Program
from glenside.ir.term import Term, postorder
from glenside.semantics.interpreter import evaluate


def run(term: Term, **values: object) -> NDArray[Any]:
    result: NDArray[Any] = evaluate([term], {name: np.asarray(v) for name, v in values.items()})[0]
    assert result.shape == term.access.dims
    assert result.dtype.name == term.access.dtype
    return result


def integers(seed: int, *dims: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(-9, 10, dims)


def operators(term: Term) -> list[str]:
    return [t.operator.name for t in postorder(term)]


@dataclass(frozen=True)
class Convolution:
    batch: int
    groups: int
    channels: int  # of each group
    filters: int  # of each group
    sizes: tuple[int, ...]
    window: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]

    def naive(self, x: NDArray[np.int64], w: NDArray[np.int64]) -> NDArray[np.int64]:
        x = np.pad(x, [(0, 0), (0, 0), *self.padding])
        axes = list(zip(x.shape[2:], self.window, self.strides, self.dilations, strict=True))
        out = [(n - (k - 1) * d - 1) // t + 1 for n, k, t, d in axes]
        result = np.zeros((self.batch, self.groups * self.filters, *out), np.int64)
        for n, o in itertools.product(range(self.batch), range(result.shape[1])):
            group = o // self.filters
            image = x[n, group * self.channels : (group + 1) * self.channels]
            for place in np.ndindex(*out):
                parts = [slice(p * t, p * t + (k - 1) * d + 1, d) for p, (_, k, t, d) in zip(place, axes, strict=True)]
                result[(n, o, *place)] = (image[(slice(None), *parts)] * w[o]).sum()
        return result


@st.composite
def convolutions(draw: st.DrawFn) -> Convolution:
    axes = draw(st.integers(1, 3))
    small = st.integers(1, 3)
    per_axis = [
        draw(st.tuples(small, small, st.integers(1, 2), st.integers(0, 2), st.integers(0, 2))) for _ in range(axes)
    ]
    window, strides, dilations, before, after = zip(*per_axis, strict=True)
    spans = [(k - 1) * d + 1 for k, d in zip(window, dilations, strict=True)]
    least = [max(1, s - lo - hi) for s, lo, hi in zip(spans, before, after, strict=True)]
    sizes = tuple(n + draw(st.integers(0, 4)) for n in least)
    batch, groups, channels, filters = (draw(small) for _ in range(4))
    return Convolution(
        batch, groups, channels, filters, sizes, window, strides, dilations, tuple(zip(before, after, strict=True))
    )


@given(convolutions(), st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_conv_equals_a_loop(c: Convolution, seed: int) -> None:
    x = integers(seed, c.batch, c.groups * c.channels, *c.sizes)
    w = integers(seed + 1, c.groups * c.filters, c.channels, *c.window)
    b = Builder()
    y = b.conv(
        b.input("x", x.shape, "int64"),
        b.constant("w", w.shape, "int64"),
        strides=c.strides,
        padding=c.padding,
        dilations=c.dilations,
        groups=c.groups,
    )
    np.testing.assert_array_equal(run(y, x=x, w=w), c.naive(x, w))


def layer(program: Program) -> Term:
    (dot,) = program.layers.values()
    return dot


CONVOLUTIONS: dict[str, tuple[Any, ...]] = {
    "conv 3x2/2": ((2, 6, 7, 9), (4, 6, 3, 2), 2, 1, 0, "(2 3 4)(6 3 2)", "(4)(6 3 2)"),
    "conv 1x1/2": ((2, 6, 7, 9), (4, 6, 1, 1), 2, 1, 0, "(2 4 5)(6 1 1)", "(4)(6 1 1)"),
    "pointwise 1x1": ((2, 6, 7, 9), (4, 6, 1, 1), 1, 1, 0, "(2 7 9)(6)", "(4)(6)"),
    "depthwise 3x3/2x1": ((2, 6, 7, 9), (6, 1, 3, 3), (2, 1), 6, 1, "(6 2 4 9)(1 3 3)", "(6 1)(1 3 3)"),
    "grouped 5/1": ((2, 6, 8), (8, 3, 5), 1, 2, 0, "(2 2 4)(3 5)", "(2 4)(3 5)"),
    "grouped 1/1": ((2, 6, 8), (8, 3, 1), 1, 2, 0, "(2 2 8)(3)", "(2 4)(3)"),
}


@pytest.mark.parametrize("label", CONVOLUTIONS)
def test_a_convolution_is_one_product_with_the_activations_first(label: str) -> None:
    x, w, strides, groups, padding, left, right = CONVOLUTIONS[label]
    b = Builder()
    y = b.conv(b.input("x", x), b.constant("w", w), strides=strides, groups=groups, padding=padding, name="it")
    program = b.finish(y)
    product = layer(program).children[0]
    a, c = product.children
    assert dict(program.labels) == {"it": label}
    assert layer(program).attributes == ("dot-product",)
    assert product.attributes == (int(groups > 1),)
    assert (str(a.access), str(c.access)) == (f"{left} float32", f"{right} float32")
    assert list(declared(a, c)) == ["x", "w"]
    assert y.access.dims[:2] == (x[0], w[0])


def test_useless_nodes_are_left_out() -> None:
    b = Builder()
    x, w = b.input("x", (1, 5, 3, 4)), b.constant("w", (2, 5, 1, 1))
    expected = ["access-tensor", "access-transpose", "access", "access-tensor", "access-reshape", "access"]
    assert operators(b.conv(x, w)) == [*expected, "access-product", "compute", "access", "access-transpose"]
    assert b.reshape(x, (1, 5, -1, 4)) is x
    assert b.transpose(x, (0, 1, 2, 3)) is x
    assert b.pad(x, [(0, 0)] * 4) is x
    assert operators(b.add(x, x)) == ["access-tensor", "access-product", "compute"]
    depthwise = operators(b.conv(x, b.constant("v", (5, 1, 3, 3)), groups=5, padding=1))
    assert "access-transpose" not in depthwise, "with one image only axes of size 1 would move"


@pytest.mark.parametrize(
    ("x", "y"),
    [
        *(((4, 3), (3, 5)), ((3,), (3, 5)), ((4, 3), (3,)), ((3,), (3,)), ((2, 4, 3), (3, 5)), ((2, 4, 3), (2, 3, 5))),
        *(((6, 1, 4, 3), (2, 3, 5)), ((3,), (2, 3, 5)), ((4, 3), (2, 6, 3, 5)), ((2, 4, 3), (3,))),
    ],
)
def test_matmul_is_numpys(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    a, c = integers(0, *x), integers(1, *y)
    b = Builder()
    product = b.matmul(b.input("x", x, "int64"), b.input("y", y, "int64"))
    np.testing.assert_array_equal(run(product, x=a, y=c), a @ c)


def test_one_matrix_serves_a_batch_without_being_repeated() -> None:
    b = Builder()
    program = b.finish(b.matmul(b.input("x", (2, 4, 3)), b.constant("w", (3, 5)), name="m"))
    product = layer(program).children[0]
    assert [str(c.access) for c in product.children] == ["(2 4)(3) float32", "(5)(3) float32"]


@pytest.mark.parametrize("lead", [(), (4,), (2, 4)])
def test_linear(lead: tuple[int, ...]) -> None:
    x, w, bias = integers(0, *lead, 3), integers(1, 5, 3), integers(2, 5)
    b = Builder()
    y = b.linear(
        b.input("x", x.shape, "int64"), b.constant("w", (5, 3), "int64"), b.constant("bias", (5,), "int64"), name="fc"
    )
    np.testing.assert_array_equal(run(y, x=x, w=w, bias=bias), x @ w.T + bias)
    assert b.finish(y).labels == {"fc": "dense"}


POOLS = [
    {"window": 2},
    {"window": (3, 2), "strides": (2, 1)},
    {"window": 3, "strides": 2, "padding": ((1, 0), (2, 1))},
    {"window": (2, 3), "strides": 1, "padding": 1, "dilations": (3, 1)},
]


def pooled(x: NDArray[np.float64], reduce: Any, filler: float, **pool: Any) -> NDArray[np.float64]:
    """Returns a loop over windows; elements that are padding hold `filler`."""

    def pair(value: Any) -> tuple[int, ...]:
        return (value, value) if isinstance(value, int) else tuple(value)

    window, dilations = pair(pool["window"]), pair(pool.get("dilations", 1))
    strides = pair(pool.get("strides", window))
    padding = pool.get("padding", 0)
    pairs = ((padding, padding),) * 2 if isinstance(padding, int) else padding
    x = np.pad(x, ((0, 0), (0, 0), *pairs), constant_values=filler)
    spans = [(k - 1) * d + 1 for k, d in zip(window, dilations, strict=True)]
    out = [(n - s) // t + 1 for n, s, t in zip(x.shape[2:], spans, strides, strict=True)]
    result = np.zeros((*x.shape[:2], *out))
    for i, j in np.ndindex(*out):
        rows = slice(i * strides[0], i * strides[0] + spans[0], dilations[0])
        columns = slice(j * strides[1], j * strides[1] + spans[1], dilations[1])
        result[:, :, i, j] = reduce(x[:, :, rows, columns], axis=(2, 3))
    return result


@pytest.mark.parametrize("pool", POOLS)
def test_pools(pool: dict[str, Any]) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 7, 8)) - 3  # below 0: padding with zeros would win a maximum
    b = Builder()
    leaf = b.input("x", x.shape, "float64")
    np.testing.assert_array_equal(run(b.max_pool(leaf, **pool), x=x), pooled(x, np.max, -np.inf, **pool))
    np.testing.assert_allclose(run(b.average_pool(leaf, **pool), x=x), pooled(x, np.mean, 0, **pool))
    inside = run(b.average_pool(leaf, count_padding=False, **pool), x=x)
    np.testing.assert_allclose(inside, pooled(x, np.nanmean, np.nan, **pool))


def test_global_average_pool() -> None:
    x = integers(0, 2, 5, 3, 4).astype(np.float64)
    b = Builder()
    np.testing.assert_allclose(run(b.global_average_pool(b.input("x", x.shape, "float64")), x=x), x.mean((2, 3)))


def test_batch_norm_has_its_scale_and_shift_as_constant_terms() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 4, 5))
    gamma, beta, mean, var = rng.uniform(0.5, 2, (4, 3))
    b = Builder()
    g, h, m, v = (b.constant(name, (3,), "float64") for name in ("gamma", "beta", "mean", "var"))
    y = b.batch_norm(b.input("x", x.shape, "float64"), g, h, m, v, eps=1e-3)
    expected = (x - mean.reshape(3, 1, 1)) / np.sqrt(var + 1e-3).reshape(3, 1, 1) * gamma.reshape(3, 1, 1)
    got = run(y, x=x, gamma=gamma, beta=beta, mean=mean, var=var)
    np.testing.assert_allclose(got, expected + beta.reshape(3, 1, 1))
    assert operators(y).count("access-broadcast") == 2, "x is scaled and shifted, nothing else is of its size"


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_softmax(axis: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4))
    b = Builder()
    powers = np.exp(x)
    got = run(b.softmax(b.input("x", x.shape, "float64"), axis), x=x)
    np.testing.assert_allclose(got, powers / powers.sum(axis, keepdims=True))


@pytest.mark.parametrize(("x", "y"), [((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1, 3), (4, 1)), ((), (2, 3))])
def test_arithmetic_broadcasts_as_in_numpy(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    a, c = integers(0, *x), integers(1, *y)
    b = Builder()
    left, right = b.input("x", x, "int64"), b.input("y", y, "int64")
    np.testing.assert_array_equal(run(b.add(left, right), x=a, y=c), a + c)
    np.testing.assert_array_equal(run(b.subtract(left, right), x=a, y=c), a - c)
    np.testing.assert_array_equal(run(b.multiply(left, right), x=a, y=c), a * c)
    np.testing.assert_array_equal(run(b.combine("maximum", left, right), x=a, y=c), np.maximum(a, c))


def test_layout_and_activations() -> None:
    x = integers(0, 2, 3, 4)
    b = Builder()
    leaf = b.input("x", x.shape, "int64")
    np.testing.assert_array_equal(run(b.reshape(leaf, (4, -1)), x=x), x.reshape(4, 6))
    np.testing.assert_array_equal(run(b.transpose(leaf, (2, 0, 1)), x=x), x.transpose(2, 0, 1))
    np.testing.assert_array_equal(run(b.pad(leaf, [(0, 1), (2, 0), (0, 0)]), x=x), np.pad(x, [(0, 1), (2, 0), (0, 0)]))
    np.testing.assert_array_equal(run(b.relu(leaf), x=x), x.clip(0))
    np.testing.assert_array_equal(run(b.relu6(leaf), x=x), x.clip(0, 6))


def test_layers_keep_their_order_and_get_names() -> None:
    b = Builder("two")
    x = b.conv(b.input("x", (1, 2, 5)), b.constant("w", (3, 2, 3)), b.constant("bias", (3,)))
    program = b.finish(b.linear(b.reshape(x, (1, 9)), b.constant("v", (4, 9)), name="last"))
    assert program.name == "two"
    assert list(program.layers) == ["conv1", "last"]
    assert list(program.labels.values()) == ["conv 3/1", "dense"]


def test_values_of_constants_are_made_once_when_read_and_checked() -> None:
    made: list[int] = []

    def make() -> NDArray[np.float32]:
        made.append(1)
        return np.ones(3, np.float32)

    b = Builder()
    good, wrong = b.constant("good", (3,), value=make), b.constant("wrong", (4,), value=make)
    program = b.finish(b.add(good, b.reshape(b.pad(wrong, [(0, 2)]), (2, 3))))
    assert made == []
    assert program.constants["good"] is program.constants["good"]
    assert made == [1]
    with pytest.raises(BadInput, match=r"^constant wrong requires an array of \(4,\) float32, got \(3,\) float32$"):
        program.constants["wrong"]
    with pytest.raises(BadInput, match="constant eager requires an array"):
        b.constant("eager", (3,), value=np.ones(3))


REFUSED: dict[str, Callable[[Any, Any], object]] = {
    "conv requires x of ": lambda b, x: b.conv(x, b.constant("w", (4, 6, 3))),
    "conv requires w over 6 / 2 channels, got ": lambda b, x: b.conv(x, b.constant("w", (4, 6, 3, 3)), groups=2),
    "conv requires groups >= 1, got 0": lambda b, x: b.conv(x, b.constant("w", (4, 6, 3, 3)), groups=0),
    "conv requires a multiple of 2 filters, got 5": lambda b, x: b.conv(x, b.constant("w", (5, 3, 3, 3)), groups=2),
    "conv requires strides of at least 1": lambda b, x: b.conv(x, b.constant("w", (4, 6, 3, 3)), strides=(2, 0)),
    "conv requires padding of at least 0": lambda b, x: b.conv(x, b.constant("w", (4, 6, 3, 3)), padding=-1),
    "access-windows requires a window within": lambda b, x: b.conv(x, b.constant("w", (4, 6, 9, 9))),
    "linear requires x of ": lambda b, x: b.linear(x, b.constant("w", (4, 5))),
    "matmul requires the last axis of x": lambda b, x: b.matmul(x, b.constant("w", (4, 5))),
    "elementwise-add requires sizes that agree": lambda b, x: b.add(x, b.constant("w", (4, 5))),
    "channel vector requires ": lambda b, x: b.conv(x, b.constant("w", (4, 6, 1, 1)), b.constant("b", (6,))),
    "reshape requires dims that divide 504": lambda b, x: b.reshape(x, (-1, 11)),
    "softmax requires -4 <= axis < 4, got 4": lambda b, x: b.softmax(x, 4),
    "pad requires 4 pairs, got 1": lambda b, x: b.pad(x, [(1, 1)]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_does_not_fit_is_refused_in_a_sentence(message: str) -> None:
    b = Builder()
    with pytest.raises(TypeMismatch) as error:
        REFUSED[message](b, b.input("x", (1, 6, 7, 12)))
    assert str(error.value).startswith(message)


def test_names_are_used_once() -> None:
    b = Builder()
    x = b.input("x", (2, 3))
    with pytest.raises(BadInput, match="tensors of different names, got x twice"):
        b.constant("x", (2, 3))
    b.linear(x, x, name="fc")
    with pytest.raises(BadInput, match="layers of different names, got fc twice"):
        b.linear(x, x, name="fc")
