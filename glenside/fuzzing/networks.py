"""Generates small networks of layers, for the doors that single operators seldom reach: mappings, tiles, an npu."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import prod

from glenside.builder import Builder
from glenside.ir.errors import GlensideError
from glenside.ir.program import Program
from glenside.ir.term import Term, build

_ACTIVATIONS = ("relu", "sigmoid", "tanh", "(clip 0 6)", "(leaky-relu 1/8)", "abs", "erf", "exp", "negative", "sqrt")
_WIDTHS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 31, 32, 33, 64)
_WIDE = (256, 512, 512, 1024)
"""The last ones are rows, in float32, of multiples of parts of pages, which have a special layout."""
_LIMIT = 1 << 14
_SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17)
_PRODUCTS = 0.15
"""The share of networks that are one product."""


class Networks:
    """Draws one network; layers are chosen by the rank of the last tensor."""

    def __init__(self, pick: random.Random, dtype: str = "float32") -> None:
        self.pick, self.dtype, self.b, self.count = pick, dtype, Builder("network"), 0

    def program(self, inputs_are_images: bool | None = None) -> Program:
        """Draws a network of 1 to 5 layers, or one product of small sizes."""
        pick = self.pick
        if inputs_are_images is None and pick.random() < _PRODUCTS:
            return self.b.finish(self.product())
        images = pick.random() < 0.6 if inputs_are_images is None else inputs_are_images
        x = self.image() if images else self.matrix()
        for _ in range(pick.randint(1, 5)):
            layers = self.of_images() if x.access.rank == 4 else self.of_matrices()
            try:
                new = pick.choice(layers)(x)
            except GlensideError:
                continue
            if 0 < prod(new.access.dims) <= _LIMIT * 4:
                x = new
        return self.b.finish(x)

    def product(self) -> Term:
        """Draws a product of matrices, often of one row or column, whose second operand may be computed."""
        rows, depth, columns = (self.pick.choice(_SIZES) for _ in range(3))
        x, way = self.b.input("x", (rows, depth), self.dtype), self.pick.random()
        if way < 0.4:
            return self.b.matmul(x, self.b.constant("w", (depth, columns), self.dtype))
        other = self.b.input("y", (depth, columns), self.dtype)
        return self.b.matmul(x, self.activation(other) if way < 0.7 else other)

    def of_images(self) -> tuple[Callable[[Term], Term], ...]:
        return (
            *(self.convolution, self.convolution, self.convolution, self.transposed, self.pool, self.activation),
            *(
                self.residual,
                self.norm,
                self.resized,
                self.moved,
                self.flattened,
                self.sliced,
                self.padded,
                self.joined,
            ),
        )

    def of_matrices(self) -> tuple[Callable[[Term], Term], ...]:
        return (
            *(self.linear, self.linear, self.matmul, self.activation, self.softmax, self.residual, self.attention),
            *(self.moved, self.sliced, self.picked, self.picked, self.placed, self.ordered, self.reduced),
            *(self.padded, self.joined, self.scaled),
        )

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def weight(self, *dims: int) -> Term:
        """Returns a constant, or rarely another input."""
        if self.pick.random() < 0.1:
            return self.b.input(self.name("x"), dims, self.dtype)
        return self.b.constant(self.name("w"), dims, self.dtype)

    def image(self) -> Term:
        pick = self.pick
        dims = (pick.choice((1, 1, 2)), pick.choice((1, 2, 3, 4, 8)), pick.randint(1, 11), pick.randint(1, 11))
        return self.b.input("x", dims, self.dtype)

    def matrix(self) -> Term:
        pick = self.pick
        rank = pick.choice((2, 2, 3))
        dims = [pick.choice((1, 2, 3, 5, 8, 16, 17)) for _ in range(rank - 1)]
        wide = pick.random() < 0.4
        return self.b.input("x", (*dims, pick.choice(_WIDE) if wide else pick.choice(_WIDTHS)), self.dtype)

    def convolution(self, x: Term) -> Term:
        pick, (_, channels, *size) = self.pick, x.access.dims
        groups = pick.choice([1, 1, channels, *(g for g in (2, 3, 4) if channels % g == 0)])
        filters = groups * pick.choice((1, 2, 3, 4) if groups > 1 else (1, 2, 4, 5, 8, 16))
        window = [pick.randint(1, min(4, n)) for n in size]
        y = self.b.conv(
            x,
            self.weight(filters, channels // groups, *window),
            strides=tuple(pick.choice((1, 1, 2, 3)) for _ in size),
            dilations=tuple(pick.choice((1, 1, 1, 2, 3)) for _ in size),
            padding=[(pick.randint(0, w - 1), pick.randint(0, w)) for w in window],
            groups=groups,
        )
        if pick.random() < 0.5:
            y = self.b.add(y, self.weight(filters, 1, 1))
        return self.activation(y) if pick.random() < 0.5 else y

    def transposed(self, x: Term) -> Term:
        pick, (_, channels, *size) = self.pick, x.access.dims
        window = [pick.randint(1, 4) for _ in size]
        weight = self.weight(channels, pick.choice((1, 2, 3, 8)), *window)
        return self.b.conv_transpose(x, weight, strides=pick.randint(1, 3), padding=pick.randint(0, min(window) - 1))

    def pool(self, x: Term) -> Term:
        pick, size = self.pick, x.access.dims[2:]
        if pick.random() < 0.2:
            return self.b.global_average_pool(x)
        window = tuple(pick.randint(1, min(3, n)) for n in size)
        pool = pick.choice((self.b.max_pool, self.b.average_pool))
        return pool(x, window, strides=pick.randint(1, 2), padding=pick.randint(0, min(window) // 2))

    def activation(self, x: Term) -> Term:
        return self.b.compute(self.pick.choice(_ACTIVATIONS), x)

    def softmax(self, x: Term) -> Term:
        return self.b.softmax(x, self.pick.randrange(x.access.rank))

    def residual(self, x: Term) -> Term:
        other = self.pick.choice((self.activation(x), self.weight(*x.access.dims), self.weight(x.access.dims[-1])))
        return self.pick.choice((self.b.add, self.b.multiply, self.b.subtract))(x, other)

    def norm(self, x: Term) -> Term:
        channels = x.access.dims[1]
        gamma, beta, mean, variance = (self.weight(channels) for _ in range(4))
        return self.b.batch_norm(x, gamma, beta, mean, variance)

    def scaled(self, x: Term) -> Term:
        return self.b.multiply(x, self.b.full((), self.pick.choice(("1/2", "2", "-3", "1/8")), self.dtype))

    def resized(self, x: Term) -> Term:
        return self.b.upsample(x, self.pick.choice((2, 3)))

    def moved(self, x: Term) -> Term:
        rank = x.access.rank
        return self.b.transpose(x, self.pick.sample(range(rank), rank))

    def flattened(self, x: Term) -> Term:
        first, *rest = x.access.dims
        return self.b.reshape(x, (first, prod(rest)))

    def sliced(self, x: Term) -> Term:
        axis = self.pick.randrange(x.access.rank)
        size = x.access.dims[axis]
        low = self.pick.randint(0, size - 1)
        return build("access-slice", x, axis, low, self.pick.randint(low + 1, size))

    def padded(self, x: Term) -> Term:
        axis = self.pick.randrange(x.access.rank)
        return build("access-pad", x, "zero-padding", axis, self.pick.randint(0, 2), self.pick.randint(0, 2))

    def joined(self, x: Term) -> Term:
        return self.b.concatenate([x, self.activation(x)], self.pick.randrange(x.access.rank))

    def linear(self, x: Term) -> Term:
        pick, width = self.pick, self.pick.choice(_WIDTHS)
        if x.access.dims[0] * width < _LIMIT and pick.random() < 0.25:
            width = 512
        bias = self.weight(width) if pick.random() < 0.5 else None
        return self.b.linear(x, self.weight(width, x.access.dims[-1]), bias)

    def matmul(self, x: Term) -> Term:
        pick, dims = self.pick, tuple(x.access.dims)
        if pick.random() < 0.5:
            return self.b.matmul(x, self.weight(dims[-1], pick.choice(_WIDTHS)))
        order = [*range(len(dims) - 2), len(dims) - 1, len(dims) - 2]
        return self.b.matmul(x, self.b.transpose(x, order))

    def attention(self, x: Term) -> Term:
        width = x.access.dims[-1]
        heads = self.pick.choice([h for h in (1, 2, 4) if width % h == 0])
        if x.access.rank == 2:
            x = self.b.reshape(x, (1, *x.access.dims))
        q, k, v = (self.b.linear(x, self.weight(width, width)) for _ in range(3))
        return self.b.attention(q, k, v, heads=heads)

    def picked(self, x: Term) -> Term:
        """Returns rows at fixed or computed indices."""
        pick, axis = self.pick, self.pick.randrange(x.access.rank)
        size, count = x.access.dims[axis], self.pick.randint(1, 5)
        if pick.random() < 0.5:
            values = " ".join(str(pick.randrange(size)) for _ in range(count))
            return build("access-gather", x, build("numbers", (count,), values, "int64"), axis)
        return build("access-gather", x, self.b.input(self.name("i"), (count,), "int64"), axis)

    def placed(self, x: Term) -> Term:
        """Writes rows over others, or adds them, at fixed or given indices."""
        pick, (size, *row) = self.pick, x.access.dims
        count = pick.randint(1, 4)
        places = self.b.input(self.name("i"), (count, 1), "int64")
        if pick.random() < 0.5:
            places = build("numbers", (count, 1), " ".join(str(pick.randrange(size)) for _ in range(count)), "int64")
        updates = self.weight(count, *row)
        return build("access-scatter-nd", x, places, updates, 0, pick.choice(("add", "max", "replace")))

    def ordered(self, x: Term) -> Term:
        """Returns the largest or smallest elements along an axis, in order."""
        axis = self.pick.randrange(x.access.rank)
        count = self.pick.randint(1, min(x.access.dims[axis], 40))
        return self.b.top(x, count, axis, largest=self.pick.random() < 0.7)[0]

    def reduced(self, x: Term) -> Term:
        kind = self.pick.choice(("reduce-sum", "reduce-max", "reduce-mean", "reduce-min"))
        found = self.b.reduce_axes(kind, x, [self.pick.randrange(x.access.rank)], keep=True)
        return self.b.add(x, found) if self.pick.random() < 0.5 else found
