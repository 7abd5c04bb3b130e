"""Programs with an open axis, of every kind of computation, as functions of a size; with values from a seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import glenside as gl
from glenside.builder import layout, pointwise
from glenside.ir.program import Program
from glenside.ir.term import Term, build


def _weight(b: gl.Builder, name: str, *dims: int) -> Term:
    value = np.random.default_rng(len(name) + sum(dims)).standard_normal(dims) / np.sqrt(dims[-1])
    return b.constant(name, dims, value=value.astype("float32"))


def mlp(n: int) -> Program:
    b = gl.Builder("mlp")
    x = b.input("x", (n, 40))
    hidden = b.relu(b.linear(x, _weight(b, "w", 72, 40), _weight(b, "bias", 72)))
    return b.finish(b.linear(hidden, _weight(b, "u", 7, 72)))


def attention(n: int) -> Program:
    b = gl.Builder("attention")
    x, mask = b.input("x", (1, n, 32)), b.input("mask", (1, 1, n, n))
    q, k, v = (
        layout.transpose(layout.reshape(b.linear(x, _weight(b, name, 32, 32)), (1, n, 4, 8)), (0, 2, 1, 3))
        for name in ("q", "key", "value")
    )
    scores = pointwise.add(b.matmul(q, layout.transpose(k, (0, 1, 3, 2))), b.broadcast(mask, (1, 4, n, n)))
    y = b.matmul(b.softmax(scores), v)
    return b.finish(b.linear(layout.reshape(layout.transpose(y, (0, 2, 1, 3)), (1, n, 32)), _weight(b, "out", 32, 32)))


def convolution(n: int) -> Program:
    b = gl.Builder("convolution")
    x = b.input("x", (2, 3, 2 * n + 4, 2 * n + 4))
    y = b.relu(b.conv(x, _weight(b, "w", 8, 3, 3, 3), padding=1))
    y = b.conv(y, _weight(b, "u", 4, 8, 3, 3), strides=2, padding=1)
    return b.finish(y)


def pools(n: int) -> Program:
    b = gl.Builder("pools")
    x = b.input("x", (1, 5, n + 2, 9))
    return b.finish(pointwise.add(b.max_pool(x, 3, strides=1), b.average_pool(x, 3, strides=1)))


def norm(n: int) -> Program:
    b = gl.Builder("norm")
    x = b.input("x", (n, 24))
    normed, _, _ = pointwise.standardized(x, 1)
    return b.finish(normed)


def mean_over(n: int) -> Program:
    b = gl.Builder("mean")
    return b.finish(pointwise.mean_from(b.input("x", (3, n)), 1))


def sum_of_products(n: int) -> Program:
    b = gl.Builder("sums")
    return b.finish(b.matmul(b.input("x", (5, n)), b.input("y", (n, 33))))


def columns(n: int) -> Program:
    b = gl.Builder("columns")
    return b.finish(b.matmul(b.input("x", (6, 20)), b.input("y", (20, n))))


def cache(n: int) -> Program:
    b = gl.Builder("cache")
    x, past = b.input("x", (1, 2, 16)), b.input("past", (1, n, 16))
    keys = layout.concatenate([past, b.linear(x, _weight(b, "w", 16, 16))], 1)
    y = b.matmul(b.softmax(b.matmul(x, layout.transpose(keys, (0, 2, 1)))), keys)
    return b.finish(build("construct-tuple", y, keys))


def embeddings(n: int) -> Program:
    b = gl.Builder("embeddings")
    tokens = b.input("tokens", (1, n), "int64")
    return b.finish(layout.gather(_weight(b, "table", 11, 20), tokens, 0))


def moved(n: int) -> Program:
    b = gl.Builder("moved")
    x = b.input("x", (n, 6, 3))
    return b.finish(b.tanh(layout.transpose(x, (2, 0, 1))))


def short_softmax(n: int) -> Program:
    b = gl.Builder("short_softmax")
    return b.finish(b.softmax(b.linear(b.input("x", (n, 16)), _weight(b, "w", 4, 16))))


def positions(n: int) -> Program:
    b = gl.Builder("positions")
    x = b.input("x", (n, 12, 8))
    places = pointwise.add(
        b.constant("ones", (n,), "int64", np.ones(n, np.int64)), b.constant("n", (n,), "int64", np.arange(n))
    )
    picked = layout.gather(x, b.constant("at", (1,), "int64", np.array([-2])), 1)
    return b.finish(b.multiply(picked, layout.reshape(pointwise.cast(places, "float32"), (n, 1, 1))))


PROGRAMS: dict[str, Callable[[int], Program]] = {
    own.__name__: own
    for own in (
        mlp,
        attention,
        convolution,
        pools,
        norm,
        mean_over,
        sum_of_products,
        columns,
        cache,
        embeddings,
        moved,
        short_softmax,
        positions,
    )
}


def drawn(program: Program, seed: int) -> dict[str, Any]:
    """Returns random inputs of a program."""
    draw = np.random.default_rng(seed)
    return {
        name: draw.integers(0, 5, t.dims) if t.dtype == "int64" else draw.standard_normal(t.dims).astype(t.dtype)
        for name, t in program.inputs.items()
    }
