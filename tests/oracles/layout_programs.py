"""Draws programs in which a change of layout meets an access that is not affine.

The layouts: rows whose bytes are multiples of 2,048, which a lowering may pad, and rows beside those; axes in another
order, borders, parts of a concatenation, packed operands. The accesses: gathers, scatters, sorts, resizing, reversed
sequences, one-hot, windows that are added up. `program(seed)` draws one; every tensor is small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

import numpy as np

import glenside as gl
from glenside.builder import indexing, layout, pointwise
from glenside.ir.dtypes import COMPUTED, FLOATS, RECORDS
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term, build

SET = 2048
"""Row bytes from whose multiples on rows are padded."""
_MOST = 1 << 14
"""Approximate maximum number of elements of a tensor."""
_DTYPES = (*["float32"] * 6, *COMPUTED)


class _Draw:
    """A program under construction: its builder, the limits of its index inputs, and the dtype of its elements."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.builder = gl.Builder(f"p{seed}")
        self.limits: dict[str, int] = {}
        self.dtype = self.random.choice(_DTYPES)
        self.names = 0

    def name(self, kind: str) -> str:
        self.names += 1
        return f"{kind}{self.names}"

    def width(self) -> int:
        """Draws a size whose rows are padded, a size next to it, or a small one."""
        whole = SET // RECORDS[self.dtype].numpy.itemsize
        sizes = (whole, whole, whole, 2 * whole, whole + 1, whole - 1, self.random.choice((1, 3, 7, 16, 33)))
        return self.random.choice(sizes)

    def dims(self) -> tuple[int, ...]:
        """Draws one long axis, often the last one, among short ones."""
        width = self.width()
        rank = self.random.randint(2, 4)
        found = [self.random.choice((1, 2, 3, 4, 5)) for _ in range(rank - 1)]
        while np.prod(found) * width > _MOST:
            found[found.index(max(found))] -= 1
        at = rank - 1 if self.random.random() < 0.6 else self.random.randrange(rank)
        return (*found[:at], width, *found[at:])

    def leaf(self, dims: tuple[int, ...], dtype: str | None = None) -> Term:
        constant = self.random.random() < 0.25
        make = self.builder.constant if constant else self.builder.input
        return make(self.name("w" if constant else "x"), dims, dtype or self.dtype)

    # What is computed: each is in memory, in a layout that its reader may have to know.

    def source(self, dims: tuple[int, ...]) -> Term:
        ways = [self.pointwise, self.pointwise, self.transposed, self.joined, self.padded, self.sliced, self.sum]
        if self.dtype in FLOATS:
            ways += [self.softmax, self.product, self.product, self.convolution, self.normalized]
        elif self.dtype != "bool":
            ways += [self.folded]
        found: Term = self.random.choice(ways)(dims)
        assert tuple(found.access.dims) == dims
        return found

    def pointwise(self, dims: tuple[int, ...]) -> Term:
        return self.changed(self.leaf(dims))

    def changed(self, x: Term) -> Term:
        """Applies an elementwise function."""
        if x.access.dtype == "bool":
            return pointwise.compute("logical-not", x)
        if x.access.dtype not in FLOATS:
            return pointwise.add(x, pointwise.filled(x, 1))
        return pointwise.compute(self.random.choice(("relu", "abs", "tanh", "negative")), x)

    def transposed(self, dims: tuple[int, ...]) -> Term:
        order = self.random.sample(range(len(dims)), len(dims))
        x = self.changed(self.leaf(tuple(dims[i] for i in order)))
        return layout.untransposed(x, order)

    def joined(self, dims: tuple[int, ...]) -> Term:
        """Concatenates parts, one or all of which are computed."""
        long = [axis for axis, n in enumerate(dims) if n > 1]
        if not long:
            return self.pointwise(dims)
        axis = self.random.choice(long)
        cut = self.random.randint(1, dims[axis] - 1)
        parts = [(*dims[:axis], n, *dims[axis + 1 :]) for n in (cut, dims[axis] - cut)]
        return layout.concatenate([self.changed(self.leaf(parts[0])), self.leaf(parts[1])], axis)

    def padded(self, dims: tuple[int, ...]) -> Term:
        around = [(int(n > 2 and self.random.random() < 0.5), int(n > 2)) for n in dims]
        inner = tuple(n - a - b for n, (a, b) in zip(dims, around, strict=True))
        return layout.pad(self.changed(self.leaf(inner)), around)

    def sliced(self, dims: tuple[int, ...]) -> Term:
        axis = self.random.randrange(len(dims))
        x = self.changed(self.leaf((*dims[:axis], dims[axis] + 2, *dims[axis + 1 :])))
        return layout.slice_axis(x, axis, 1, dims[axis] + 1)

    def sum(self, dims: tuple[int, ...]) -> Term:
        a, b = self.leaf(dims), self.leaf((*(1,) * (len(dims) - 1), dims[-1]))
        if self.dtype == "bool":
            return pointwise.combine("logical-or", a, layout.broadcast(b, dims))
        return pointwise.combine(
            self.random.choice(("elementwise-add", "maximum", "subtract")), a, layout.broadcast(b, dims)
        )

    def softmax(self, dims: tuple[int, ...]) -> Term:
        return pointwise.softmax(self.leaf(dims), self.random.choice((len(dims) - 1, self.random.randrange(len(dims)))))

    def normalized(self, dims: tuple[int, ...]) -> Term:
        return pointwise.layer_norm(self.leaf(dims), self.leaf(dims[-1:]), self.leaf(dims[-1:]))

    def product(self, dims: tuple[int, ...]) -> Term:
        depth = self.random.choice((1, 3, 8, 17))
        found = self.builder.matmul(self.leaf((*dims[:-1], depth)), self.leaf((depth, dims[-1])))
        return self.changed(found) if self.random.random() < 0.5 else found

    def convolution(self, dims: tuple[int, ...]) -> Term:
        if len(dims) != 4:
            return self.product(dims)
        channels = self.random.choice((1, 3))
        x = self.leaf((dims[0], channels, *dims[2:]))
        return self.builder.conv(x, self.leaf((dims[1], channels, 3, 3)), padding=1)

    def folded(self, dims: tuple[int, ...]) -> Term:
        x = self.leaf((*dims, 9))
        return layout.reshape(build("compute", "reduce-max", layout.split_at(x, len(dims))), dims)

    # Indices: numbers that are known, an input, or what is computed of one.

    def indices(self, dims: tuple[int, ...], size: int) -> Term:
        count = int(np.prod(dims))
        way = self.random.randrange(3)
        if way == 0:
            values = " ".join(str(self.random.randint(-size, size - 1)) for _ in range(count))
            return build("numbers", dims, values, self.random.choice(("int64", "int32")))
        name = self.name("i")
        found = self.builder.input(name, dims, self.random.choice(("int64", "int32", "uint8", "uint64")))
        self.limits[name] = min(size, 255)
        if way == 1:
            return found
        wide = pointwise.cast(found, "int64")
        return pointwise.combine("minimum", wide, pointwise.filled(wide, size - 1))

    # Accesses that are not affine.

    def gather(self, x: Term) -> Term:
        axis = self.random.randrange(x.access.rank)
        dims = tuple(self.random.choice((1, 2, 3)) for _ in range(self.random.randint(0, 2)))
        return layout.gather(x, self.indices(dims, x.access.dims[axis]), axis)

    def gather_nd(self, x: Term) -> Term:
        shared = self.random.randint(0, min(1, x.access.rank - 1))
        numbers = self.random.randint(1, x.access.rank - shared)
        lead = (*x.access.dims[:shared], self.random.choice((1, 2, 3)))
        parts = [self.indices((*lead, 1), x.access.dims[shared + i]) for i in range(numbers)]
        return indexing.gather_nd(x, layout.concatenate([pointwise.cast(i, "int64") for i in parts], len(lead)), shared)

    def gather_elements(self, x: Term) -> Term:
        axis = self.random.randrange(x.access.rank)
        dims = tuple(min(n, 3) for n in x.access.dims)
        return indexing.gather_elements(x, self.indices(dims, x.access.dims[axis]), axis)

    def reduction(self) -> str:
        if self.dtype == "bool":
            return "replace"
        return self.random.choice(("replace", "add", "mul", "min", "max"))

    def scatter_nd(self, x: Term) -> Term:
        shared = self.random.randint(0, min(1, x.access.rank - 1))
        numbers = self.random.randint(1, x.access.rank - shared)
        lead = (*x.access.dims[:shared], self.random.choice((1, 2, 3)))
        parts = [self.indices((*lead, 1), x.access.dims[shared + i]) for i in range(numbers)]
        at = layout.concatenate([pointwise.cast(i, "int64") for i in parts], len(lead))
        updates = self.source((*lead, *x.access.dims[shared + numbers :]))
        return indexing.scatter_nd(x, at, updates, shared, self.reduction())

    def scatter_elements(self, x: Term) -> Term:
        axis = self.random.randrange(x.access.rank)
        dims = tuple(min(n, 3) for n in x.access.dims)
        at = self.indices(dims, x.access.dims[axis])
        return indexing.scatter_elements(x, at, self.leaf(dims), axis, self.reduction())

    def top(self, x: Term) -> Term:
        axis = self.random.randrange(x.access.rank)
        k = self.random.randint(1, x.access.dims[axis])
        values, places = indexing.top(x, k, axis, largest=self.random.random() < 0.5)
        return values if self.random.random() < 0.5 else places

    def order(self, x: Term) -> Term:
        """Sorts items of several axes as one."""
        split = self.random.randrange(x.access.rank)
        way = self.random.choice(("ascending", "descending"))
        return layout.split_at(build("compute", f"(argsort {way})", layout.split_at(x, split)), 0)

    def largest(self, x: Term) -> Term:
        kind = self.random.choice(("argmax", "argmin"))
        return layout.split_at(build("compute", kind, layout.split_at(x, self.random.randrange(x.access.rank))), 0)

    def reverse(self, x: Term) -> Term:
        """Reverses the first elements of each row; a tensor has their number."""
        rows, longest = x.access.dims[:2]
        lengths = layout.reshape(pointwise.cast(self.indices((rows,), longest), "int64"), (rows, 1))
        lengths = layout.broadcast(lengths, (rows, longest))
        places = layout.broadcast(indexing.iota(longest, 1, 2), (rows, longest))
        mirrored = pointwise.subtract(lengths, places)
        within = pointwise.compare("le", places, lengths)
        at = pointwise.select(within, mirrored, places)
        return indexing.gather_nd(x, layout.reshape(at, (rows, longest, 1)), 1)

    def resize(self, x: Term) -> Term:
        """Resizes an axis: interpolates between neighbouring elements."""
        axis = self.random.randrange(x.access.rank)
        size, new = x.access.dims[axis], self.random.choice((1, 2, 5, 16))
        at = np.linspace(0, size - 1, new)
        low = build("numbers", (new,), " ".join(str(int(n)) for n in at), "int64")
        if self.dtype not in FLOATS or self.random.random() < 0.3:
            return layout.gather(x, low, axis)
        high = build("numbers", (new,), " ".join(str(min(int(n) + 1, size - 1)) for n in at), "int64")
        parts = " ".join(str(int(4 * (n - int(n)))) + "/4" for n in at)
        shape = tuple(new if i == axis else 1 for i in range(x.access.rank))
        weight = layout.reshape(build("numbers", (new,), parts, self.dtype), shape)
        below, above = layout.gather(x, low, axis), layout.gather(x, high, axis)
        weight = layout.broadcast(weight, below.access.dims)
        return pointwise.add(below, pointwise.multiply(weight, pointwise.subtract(above, below)))

    def one_hot(self, x: Term) -> Term:
        """Selects rows by a product with a one-hot matrix."""
        depth = x.access.dims[0]
        at = layout.reshape(pointwise.cast(self.indices((3,), depth), "int64"), (3, 1))
        hot = pointwise.compare(
            "eq", layout.broadcast(at, (3, depth)), layout.broadcast(indexing.iota(depth, 1, 2), (3, depth))
        )
        if self.dtype not in FLOATS:
            return hot
        flat = layout.reshape(x, (depth, x.access.size // depth))
        return self.builder.matmul(pointwise.cast(hot, self.dtype), flat)

    def windows(self, x: Term) -> Term:
        """Adds up overlapping windows of the last two axes."""
        if self.dtype == "bool" or x.access.rank < 2:
            return self.gather(x)
        *lead, count, width = x.access.dims
        stride = self.random.randint(1, width)
        out = (count - 1) * stride + width
        split = layout.split_at(x, len(lead) + 1)
        return layout.split_at(build("access-overlap-add", split, (out,), (stride,)), 0)

    def embedded(self, x: Term) -> Term:
        """Adds rows of a table to a computed tensor."""
        table = self.builder.constant(self.name("w"), (5, x.access.dims[-1]), self.dtype)
        rows = layout.gather(table, self.indices((), 5), 0)
        rows = layout.broadcast(layout.reshape(rows, (*(1,) * (x.access.rank - 1), x.access.dims[-1])), x.access.dims)
        kind = "logical-or" if self.dtype == "bool" else "elementwise-add"
        return self.gather(pointwise.combine(kind, x, rows))

    def last(self, y: Term) -> Term:
        """Applies an operation to the result of an access."""
        if y.access.dtype == self.dtype and y.access.rank > 1 and y.access.size and self.random.random() < 0.4:
            if self.dtype in FLOATS and self.random.random() < 0.5:
                return self.builder.matmul(y, self.leaf((y.access.dims[-1], 5)))
            order = self.random.sample(range(y.access.rank), y.access.rank)
            return layout.transpose(self.changed(y), order)
        return y


ACCESSES: Mapping[str, Callable[[_Draw, Term], Term]] = {
    name: getattr(_Draw, name)
    for name in (
        *("gather", "gather_nd", "gather_elements", "scatter_nd", "scatter_elements", "top", "order", "largest"),
        *("reverse", "resize", "one_hot", "windows", "embedded"),
    )
}


def program(seed: int) -> tuple[Program, dict[str, int]]:
    """Draws a program of one or two accesses; also returns the exclusive limit of each index input."""
    draw = _Draw(seed)
    x = draw.source(draw.dims())
    results = []
    for _ in range(draw.random.choice((1, 1, 2))):
        y = ACCESSES[draw.random.choice(list(ACCESSES))](draw, x)
        if draw.random.random() < 0.3 and y.access.dtype == draw.dtype and y.access.rank > 1 and y.access.size:
            y = ACCESSES[draw.random.choice(list(ACCESSES))](draw, draw.changed(y))
        results.append(draw.last(y))
    if draw.random.random() < 0.2:
        results.append(x)
    term = results[0] if len(results) == 1 else build("construct-tuple", *results)
    found = draw.builder.finish(term)
    return found.seeded_constants(seed), draw.limits


def values(made: Program, limits: Mapping[str, int], seed: int) -> dict[str, Array]:
    """Draws arrays for the inputs: small integers, also as floats; indices within their axes."""
    draw = np.random.default_rng(seed)
    found = {}
    for name, tensor in made.tensors.items():
        if tensor.constant:
            continue
        low, high = (0, limits[name]) if name in limits else (0, 2) if tensor.dtype == "bool" else (-2, 3)
        if tensor.dtype.startswith("u"):
            low = 0
        found[name] = draw.integers(low, high, tensor.dims).astype(RECORDS[tensor.dtype].numpy)
    return found


def appended(seed: int) -> Program:
    """Stores a product of few strided rows into a larger tensor: a cache, or a frame of zeros."""
    random = Random(seed)
    b = gl.Builder(f"appended{seed}")
    dtype = random.choice(
        ("bfloat16", "bfloat16", "bfloat16", "float16", "float32", "float64", "int8", "uint8", "int32")
    )
    depth, heads = random.choice((1, 2, 3, 16, 17, 64, 100, 256)), random.choice((1, 2, 3, 8, 12))
    size, rows, kept = (random.choice(of) for of in ((1, 3, 8, 16, 32, 64, 80), (1, 1, 1, 2, 4, 7), (0, 1, 3, 64)))
    x = b.input("x", (rows, depth), dtype)
    make = b.constant if random.random() < 0.7 else b.input
    w = make("w", (heads * size, depth), "int8" if dtype == "uint8" else dtype)
    if dtype == "uint8":
        x, w = pointwise.cast(x, "int32"), pointwise.cast(w, "int32")
    y = b.linear(x, w)
    if random.random() < 0.4:
        bias = b.input("b", (heads * size,), y.access.dtype)
        y = pointwise.add(y, layout.broadcast(bias, y.access.dims))
    if random.random() < 0.3 and y.access.dtype in ("float32", "float64"):
        y = pointwise.cast(y, "bfloat16")
    y = layout.transpose(layout.reshape(y, (rows, heads, size)), random.sample(range(3), 3))
    axis, dims = random.randrange(3), list(y.access.dims)
    if kept and random.random() < 0.8:
        dims[axis] = kept
        parts = [b.input("c", dims, y.access.dtype), y]
        random.shuffle(parts)
        y = layout.concatenate(parts, axis)
    elif random.random() < 0.5:
        y = layout.pad(y, [(random.randint(0, 1), random.randint(0, 2)) for _ in dims])
    return b.finish(y).seeded_constants(seed)
