"""Draws programs of about a megabyte, to test predicted memory: small networks of every kind."""

from __future__ import annotations

import random
from collections.abc import Callable

import glenside as gl
from glenside.builder import layout, pointwise, reductions, windows
from glenside.ir.program import Program
from glenside.ir.term import Term

MOST = 1 << 18
"""Maximum number of elements of a tensor."""
ACTIVATIONS = (pointwise.relu, pointwise.sigmoid, pointwise.tanh, pointwise.hard_swish, pointwise.gelu)
REDUCTIONS = ("reduce-sum", "reduce-max", "reduce-mean", "reduce-min")


class Networks:
    """Draws networks; each method returns a term of ()(N C d..) or fewer axes."""

    def __init__(self, seed: int) -> None:
        self.random, self.b, self.weights = random.Random(seed), gl.Builder(f"drawn-{seed}"), 0

    def program(self) -> Program:
        """Draws one program of a random kind."""
        kinds: tuple[Callable[[], Term], ...] = (
            *(self.convolutions, self.transposed, self.transposed, self.skips, self.attention),
            *(self.reductions, self.chains, self.concatenations),
        )
        return self.b.finish(self.random.choice(kinds)())

    def convolutions(self) -> Term:
        x = self.images()
        for _ in range(self.random.randint(1, 3)):
            x = self.convolve(x)
            x = self.random.choice((self.activate, self.pool, lambda t: t))(x)
        return x

    def transposed(self) -> Term:
        return self.spread(self.images(most=MOST >> 2))

    def skips(self) -> Term:
        """Downsamples and upsamples, with a skip connection."""
        x = self.images(rank=2, even=True, most=MOST >> 1)
        skip = self.activate(self.convolve(x, same=True))
        down = self.activate(self.convolve(windows.max_pool(skip, 2), same=True))
        up = layout.upsample(down, 2) if self.random.random() < 0.5 else self.doubled(down)
        return self.convolve(layout.concatenate([skip, up], 1), same=True)

    def attention(self) -> Term:
        heads = self.random.choice((1, 2, 4))
        dims = (self.random.randint(1, 2), self.random.randint(40, 150), heads * self.random.randint(8, 24))
        x = self.b.input("x", dims)
        q, k, v = (self.b.linear(x, self.weight((dims[2], dims[2]))) for _ in range(3))
        return self.b.linear(self.b.attention(q, k, v, heads=heads), self.weight((dims[2], dims[2])))

    def reductions(self) -> Term:
        x = self.activate(self.images())
        axes = self.random.sample(range(x.access.rank), self.random.randint(1, 2))
        total = reductions.reduce_axes(self.random.choice(REDUCTIONS), x, sorted(axes), keep=True)
        return pointwise.subtract(x, total) if self.random.random() < 0.5 else self.activate(total)

    def chains(self) -> Term:
        x = self.images()
        if self.random.random() < 0.5:
            order = self.random.sample(range(x.access.rank), x.access.rank)
            x = pointwise.add(
                layout.transpose(self.activate(x), order), self.b.input("y", [x.access.dims[i] for i in order])
            )
        for _ in range(self.random.randint(1, 5)):
            other = self.activate(x)
            x = (
                self.random.choice((pointwise.add, pointwise.multiply))(x, other)
                if self.random.random() < 0.4
                else other
            )
        return pointwise.softmax(x) if self.random.random() < 0.3 else x

    def concatenations(self) -> Term:
        x = self.images()
        parts = [self.random.choice((self.activate, lambda t: t))(x) for _ in range(self.random.randint(2, 4))]
        joined = layout.concatenate(parts, self.random.randrange(x.access.rank))
        return self.random.choice((self.activate, self.convolve, self.padded))(joined)

    def images(self, rank: int | None = None, even: bool = False, most: int = MOST) -> Term:
        rank = rank or self.random.choice((1, 2, 2, 2, 3))
        n, c = self.random.choice((1, 1, 2)), self.random.randint(2, 48)
        side = (self.random.uniform(0.1, 1) * most / (n * c)) ** (1 / rank)
        sizes = [max(6, int(side * self.random.uniform(0.7, 1.3))) for _ in range(rank)]
        return self.b.input("x", (n, c, *(size - size % 2 if even else size for size in sizes)))

    def convolve(self, x: Term, same: bool = False) -> Term:
        _, c, *sizes = x.access.dims
        window = 3 if same else self.random.randint(1, min(4, *sizes))
        groups = self.random.choice((1, 1, 1, c))
        filters = groups * (1 if groups > 1 else self.random.randint(2, 48))
        w = self.weight((filters, c // groups, *([window] * len(sizes))))
        if same:
            return self.b.conv(x, w, padding=1, groups=groups)
        return self.b.conv(
            x, w, strides=self.random.randint(1, 2), padding=self.random.randint(0, window // 2), groups=groups
        )

    def spread(self, x: Term) -> Term:
        _, c, *sizes = x.access.dims
        window, stride = self.random.randint(2, 5), self.random.randint(1, 3)
        w = self.weight((c, self.random.randint(2, 32), *([window] * len(sizes))))
        return self.b.conv_transpose(x, w, strides=stride, padding=self.random.randint(0, window // 2))

    def doubled(self, x: Term) -> Term:
        c = x.access.dims[1]
        return self.b.conv_transpose(x, self.weight((c, c, 2, 2)), strides=2)

    def pool(self, x: Term) -> Term:
        _, _, *sizes = x.access.dims
        window = self.random.randint(1, min(3, *sizes))
        pool = self.random.choice((windows.max_pool, windows.average_pool))
        return pool(x, window, strides=self.random.randint(1, 2), padding=self.random.randint(0, window // 2))

    def padded(self, x: Term) -> Term:
        return layout.pad(x, [(self.random.randint(0, 2), self.random.randint(0, 2)) for _ in x.access.dims])

    def activate(self, x: Term) -> Term:
        return self.random.choice(ACTIVATIONS)(x)

    def weight(self, dims: tuple[int, ...]) -> Term:
        self.weights += 1
        return self.b.constant(f"w{self.weights}", dims)
