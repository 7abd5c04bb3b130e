"""Random programs of convolutions, pools, paddings, slices, strides, resizes and sums of images."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import glenside as gl
from glenside.builder.layout import broadcast
from glenside.ir.program import Program
from glenside.ir.term import Term

Dims = tuple[int, ...]
WAYS = (
    *("add", "subtract", "scale", "channels", "conv", "conv", "grouped", "pool"),
    *("pad", "slice", "stride", "upsample", "gather", "resize", "concatenate", "divide"),
)


@dataclass
class DrawnImages:
    """Random terms of images (N C H W), with their operands."""

    pick: random.Random
    builder: gl.Builder
    count: int = 0
    known: list[Term] = field(default_factory=list)

    def leaf(self, dims: Dims, constant: float = 0.3) -> Term:
        """Returns a new input, or a constant."""
        self.count += 1
        make = self.builder.constant if self.pick.random() < constant else self.builder.input
        return make(f"t{self.count}", dims)

    def image(self, dims: Dims, depth: int) -> Term:
        """Returns an image of these sizes, or a known one."""
        alike = [term for term in self.known if tuple(term.access.dims) == dims]
        if alike and self.pick.random() < 0.5:
            return self.pick.choice(alike)
        made = (
            self._computed(dims, depth - 1, self.pick.choice((*WAYS, "gather", "resize"))) if depth else self.leaf(dims)
        )
        self.known.append(made)
        return made

    def _computed(self, dims: Dims, depth: int, way: str) -> Term:
        b, pick = self.builder, self.pick
        n, c, h, w = dims
        if way in ("add", "subtract", "scale", "divide"):
            return self._elementwise(dims, depth, way)
        if way == "channels":
            inner = pick.choice((1, 2, 3))
            return b.conv(self.image((n, inner, h, w), depth), self.leaf((c, inner, 1, 1), 0.8))
        if way in ("conv", "grouped", "pool"):
            return self._windowed(dims, depth, way)
        if way == "upsample" and h % 2 == w % 2 == 0:
            return b.upsample(self.image((n, c, h // 2, w // 2), depth), 2)
        if way == "concatenate" and c > 1:
            first = pick.randrange(1, c)
            return b.concatenate([self.image((n, part, h, w), depth) for part in (first, c - first)], 1)
        axis = pick.choice((1, 2, 3))
        size = dims[axis]
        if way == "pad" and size > 1:
            before = pick.randrange(size)
            after = pick.randrange(size - before)
            edges = [(0, 0)] * 4
            edges[axis] = (before, after)
            return b.pad(self.image(_with(dims, axis, size - before - after), depth), edges)
        if way == "slice":
            more = size + pick.randrange(4)
            start = pick.randrange(more - size + 1)
            return b.slice_axis(self.image(_with(dims, axis, more), depth), axis, start, start + size)
        if way == "stride":
            steps = _with((1, 1, 1, 1), axis, pick.choice((2, 3)))
            return b.strided(
                self.image(_with(dims, axis, (size - 1) * steps[axis] + pick.choice((1, 2))), depth), steps
            )
        have = pick.choice((1, 2, 4))
        taps = 2 if way == "resize" else 1
        table = [[pick.randrange(have) for _ in range(taps)] for _ in range(size)]
        return gathered(b, self.image(_with(dims, axis, have), depth), axis, table)

    def _elementwise(self, dims: Dims, depth: int, way: str) -> Term:
        b, x = self.builder, self.image(dims, depth)
        if way == "scale":
            small = tuple(self.pick.choice((1, size)) for size in dims)
            return self.pick.choice((b.add, b.multiply))(x, self.leaf(small, 0.6))
        if way == "divide":
            return b.divide(x, self._positive(dims))
        return (b.add if way == "add" else b.subtract)(x, self.image(dims, depth))

    def _positive(self, dims: Dims) -> Term:
        """Returns moved or concatenated positive numbers, or one number for each element of some axes."""
        b, pick = self.builder, self.pick
        axis = pick.randrange(4)
        if (size := dims[axis]) > 1 and pick.random() < 0.5:
            first = pick.randrange(1, size)
            parts = [self._positive(_with(dims, axis, part)) for part in (first, size - first)]
            return b.concatenate(parts, axis)
        if pick.random() < 0.5:
            more = size + pick.randrange(3)
            start = pick.randrange(more - size + 1)
            return b.slice_axis(self._positive(_with(dims, axis, more)), axis, start, start + size)
        return broadcast(b.compute("exp", self.leaf(tuple(pick.choice((1, n)) for n in dims))), dims)

    def _windowed(self, dims: Dims, depth: int, way: str) -> Term:
        b, pick = self.builder, self.pick
        n, c, h, w = dims
        window, strides, padding, dilations, sizes = [], [], [], [], []
        for size in (h, w):
            k, step = pick.choice((1, 2, 3)), pick.choice((1, 1, 2))
            spread = pick.choice((1, 1, 2)) if way != "pool" else 1
            span = (k - 1) * spread + 1
            before, after = pick.randrange(span), pick.randrange(span)
            whole = (size - 1) * step + span
            if whole - before - after < 1:
                before = after = 0
            for found, value in zip(
                (window, strides, padding, dilations, sizes),
                (k, step, (before, after), spread, whole - before - after),
                strict=True,
            ):
                found.append(value)  # type: ignore[attr-defined]
        if way == "pool":
            x = self.image((n, c, *sizes), depth)
            return b.average_pool(x, window, strides=strides, padding=padding, count_padding=pick.random() < 0.7)
        groups = pick.choice([g for g in (1, 2, 3, 4) if c % g == 0]) if way == "grouped" else 1
        inner = groups * pick.choice((1, 2))
        x = self.image((n, inner, *sizes), depth)
        filters = self.leaf((c, inner // groups, *window), 0.8)
        return b.conv(x, filters, strides=strides, padding=padding, dilations=dilations, groups=groups)


def gathered(b: gl.Builder, x: Term, axis: int, table: list[list[int]]) -> Term:
    """Returns for each row of a table the sum of these elements of an axis, with new weights if there are several."""
    taps = len(table[0])
    numbers = b.concatenate([b.full((1,), i, "int64") for row in table for i in row], 0)
    found = b.gather(x, b.reshape(numbers, (len(table), taps)), axis)
    if taps == 1:
        return b.reshape(found, [*x.access.dims[:axis], len(table), *x.access.dims[axis + 1 :]])
    shape = [1] * (x.access.rank + 1)
    shape[axis], shape[axis + 1] = len(table), taps
    weights = b.constant(f"taps{len(b.tensors)}", (len(table), taps))
    return b.reduce_axes("reduce-sum", b.multiply(found, b.reshape(weights, shape)), [axis + 1])


def _with(dims: Dims, axis: int, size: int) -> Dims:
    return (*dims[:axis], size, *dims[axis + 1 :])


def random_images(seed: int, height: int | None = None) -> Program:
    """Returns a random program of images, whose result has a given height."""
    pick = random.Random(seed)
    drawn = DrawnImages(pick, gl.Builder(f"images {seed}"))
    dims = (pick.choice((1, 1, 2)), pick.choice((1, 2, 4)), pick.choice((1, 2, 3, 4)), pick.choice((1, 2, 4)))
    dims = dims if height is None else _with(dims, 2, height)
    return drawn.builder.finish(drawn.image(dims, pick.choice((2, 3, 4))))
