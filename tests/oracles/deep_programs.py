"""Deep programs whose blocks are one program with other weights, for tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

import glenside as gl
from glenside.builder.layout import transpose
from glenside.builder.pointwise import mean_from
from glenside.ir.term import Term, build

WIDTH = 16


def deep(
    rows: int,
    blocks: int = 4,
    *,
    scale: Callable[[int], float] = lambda _: 0.5,
    weights: Callable[[int], int] = lambda block: block,
    skip: bool = False,
    past: int | None = None,
) -> gl.Program:
    """Returns x (rows)(16) through residual blocks, and a product at the end.

    scale    a number of each block
    weights  the number of the weights of each block
    skip     the last block adds the result of the first one
    past     rows of a cache of each block, which is returned with the block's rows appended
    """
    b = gl.Builder("deep")
    x = first = b.multiply(b.input("x", (rows, WIDTH)), b.input("gain", (rows, WIDTH)))
    shift = b.sigmoid(b.input("shift", (rows, 1)))
    results: list[Term] = []

    @cache
    def matrix(name: str, of: int) -> Term:
        draw = np.random.default_rng(len(name) + 100 * of)
        value = (draw.standard_normal((WIDTH, WIDTH)) / 4).astype(np.float32)
        return b.constant(f"{name}.{of}", (WIDTH, WIDTH), value=value)

    for block in range(blocks):
        inner = b.linear(b.multiply(x, b.broadcast(shift, (rows, WIDTH))), matrix("up", weights(block)))
        inner = b.linear(b.relu(inner), matrix("down", weights(block)))
        factor = b.constant(f"scale.{block}", (1,), value=np.array([scale(block)], np.float32))
        inner = b.multiply(inner, b.broadcast(factor, (rows, WIDTH)))
        if past is not None:
            earlier = b.input(f"past.{block}", (past, WIDTH))
            results.append(b.concatenate([earlier, inner], 0))
            inner = b.add(inner, b.broadcast(mean_from(results[-1], 0), (rows, WIDTH)))
        x = b.add(x, inner)
        first = x if block == 0 else first
    if skip:
        x = b.add(b.relu(x), first)
    draw = np.random.default_rng(9)
    last = b.linear(x, b.constant("last", (3, WIDTH), value=draw.standard_normal((3, WIDTH)).astype(np.float32)))
    return b.finish(build("construct-tuple", last, *results) if results else last)


def encoder_decoder(rows: int, length: int, encoded: bool, layers: int = 4) -> gl.Program:
    """Returns x (rows)(16) through layers that attend to a source (length)(16), and a product at the end.

    encoded  True: the layers attend to what layers of an encoder make of the source
    """
    b = gl.Builder("encoder-decoder")

    @cache
    def matrix(name: str) -> Term:
        value = np.random.default_rng([*name.encode()]).standard_normal((WIDTH, WIDTH)) / 4
        return b.constant(name, (WIDTH, WIDTH), value=value.astype(np.float32))

    source, x = b.input("source", (length, WIDTH)), b.input("x", (rows, WIDTH))
    for layer in range(layers if encoded else 0):
        source = b.add(source, b.relu(b.linear(source, matrix(f"encoder.{layer}"))))
    for layer in range(layers):
        q = b.linear(x, matrix(f"q.{layer}"))
        k, v = (b.linear(source, matrix(f"{name}.{layer}")) for name in "kv")
        read = b.matmul(b.softmax(b.matmul(q, transpose(k, (1, 0)))), v)
        x = b.add(x, b.linear(read, matrix(f"o.{layer}")))
        x = b.add(x, b.relu(b.linear(x, matrix(f"inner.{layer}"))))
    return b.finish(b.linear(x, matrix("last")))
