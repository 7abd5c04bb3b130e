"""What fills a buffer with a term that is not computed where it is read: reductions, products, computed places."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Protocol

from glenside.codegen.formulas import apply, convert, number, sums_in, unflattened, weighted_sum
from glenside.codegen.loops import (
    Buffer,
    Counter,
    For,
    Formula,
    Let,
    Load,
    Local,
    Require,
    Role,
    Sort,
    Statement,
    Store,
    When,
)
from glenside.ir.dtypes import REALS, widen, wider
from glenside.ir.index_map import Axis, Index, Within
from glenside.ir.operator import Category
from glenside.ir.operators.compute import parse_compute
from glenside.ir.primitives import PRIMITIVES
from glenside.ir.rational import exact_numbers
from glenside.ir.term import Term
from glenside.ir.types import Dims

Places = Sequence[Index]


class Source(Protocol):
    """Where the elements of terms come from: `pull` where others read one, `formula` what it is."""

    buffers: dict[Term, Buffer]

    def pull(self, term: Term, places: Places) -> Formula: ...

    def formula(self, term: Term, places: Places) -> Formula: ...


class Filling:
    """The statements that fill one buffer with a term."""

    def __init__(self, source: Source, term: Term, buffer: Buffer) -> None:
        self.source, self.term, self.buffer = source, term, buffer
        self.pull = source.pull
        self.axes, self.locals = count(), count(1)

    def body(self) -> list[Statement]:
        """The loops, by the record's kind; element by element unless something is known of it."""
        term = self.term
        fill = OF_OPERATOR.get(term.operator.name)
        if term.operator.name == "compute":
            fill = OF_CATEGORY.get(parse_compute(str(term.attributes[0]))[0].category)
        if fill is not None:
            return fill(self)
        return self.each(term.access.dims, lambda places: [self.store(places, self._whole(places))])

    def _whole(self, places: Places) -> Formula:
        """An element of the term itself, which is a buffer to others."""
        if self.term.operator.name == "access-tensor":
            return self.source.pull(self.term, places)
        return self.source.formula(self.term, places)

    def each(self, dims: Sequence[int], body: Callable[[Places], list[Statement]]) -> list[Statement]:
        """Loops over dims around what is done at their counters."""
        axes = [Axis(next(self.axes), n) for n in dims]
        inner = body([Index(((axis, 1),)) if axis.size != 1 else Index() for axis in axes])
        for axis in reversed(axes):
            if axis.size != 1:
                inner = [For(axis, tuple(inner))]
        return inner

    def let(self, formula: Formula) -> tuple[Local, Let]:
        """A new variable."""
        local = Local(f"v{next(self.locals)}", formula.dtype)
        return local, Let(local, formula)

    def store(self, places: Places, formula: Formula) -> Store:
        return Store(self.buffer, self.buffer.place(places), convert(formula, self.buffer.dtype))

    def reduced(self) -> list[Statement]:
        """One number of each item, joined by a primitive, or the mean, or where the extreme stands."""
        kind = parse_compute(str(self.term.attributes[0]))[0]
        (child,) = self.term.children
        shape, item, dtype = child.access.shape, child.access.item, child.access.dtype
        if kind.name in ("argmax", "argmin"):
            return self.each(shape, lambda at: self._extreme(child, at, "gt" if kind.name == "argmax" else "lt"))
        mean = kind.name == "reduce-mean"
        combine = "add" if mean else kind.combine.name if kind.combine else ""
        inner = sums_in(dtype) if combine == "add" else dtype

        def one(at: Places) -> list[Statement]:
            neutral = PRIMITIVES[combine].neutral
            first = self.pull(child, (*at, *(Index() for _ in item))) if neutral is None else number(neutral, inner)
            total, let = self.let(first)

            def join(within: Places) -> list[Statement]:
                element = convert(self.pull(child, (*at, *within)), inner)
                return [Let(total, apply(combine, total, element), known=True)]

            found = apply("divide", total, number(item.product(), inner)) if mean else total
            return [let, *self.each(item, join), self.store(at, found)]

        return self.each(shape, one)

    def _extreme(self, child: Term, at: Places, relation: str) -> list[Statement]:
        item = child.access.item
        best, let = self.let(self.pull(child, (*at, *(Index() for _ in item))))
        position, start = self.let(number(0, "int64"))

        def look(within: Places) -> list[Statement]:
            value, here = self.let(self.pull(child, (*at, *within)))
            place = Buffer("", item, "int64", Role.TEMPORARY).place(within)
            better = apply(relation, value, best)
            if child.access.dtype in REALS:  # the first nan is what numpy finds
                nan = apply("logical-and", apply("ne", value, value), apply("eq", best, best))
                better = apply("logical-or", better, nan)
            changes = Let(best, value, known=True), Let(position, Counter(place), known=True)
            return [here, When((), changes, better)]

        return [let, start, *self.each(item, look), self.store(at, position)]

    def contracted(self) -> list[Statement]:
        """A sum of products: of elements along the tuple axis, over all others of the item."""
        (child,) = self.term.children
        split, item, dtype = child.access.split, child.access.item, child.access.dtype

        def one(at: Places, within: Places) -> list[Formula]:
            return [self.pull(child, (*at, Index() + part, *within)) for part in range(item[0])]

        def row(at: Places) -> list[Statement]:
            return self.summed(item.drop(1), dtype, lambda within: one(at, within), lambda sum_: self.store(at, sum_))

        return self.each(child.access.dims.take(split), row)

    def summed(
        self,
        item: Dims,
        dtype: str,
        factors: Callable[[Places], list[Formula]],
        store: Callable[[Formula], Statement],
    ) -> list[Statement]:
        """The sum over an item of products of factors, and what is done with it."""
        inner = sums_in(dtype)
        total, let = self.let(number(0, inner))

        def add(within: Places) -> list[Statement]:
            product: Formula = number(1, inner)
            for place, factor in enumerate(factors(within)):
                product = apply("multiply", product, convert(factor, inner)) if place else convert(factor, inner)
            return [Let(total, apply("add", total, product), known=True)]

        return [let, *self.each(item, add), store(convert(total, widen(dtype)))]

    def normalized(self) -> list[Statement]:
        """softmax and log-softmax: three times over each item; argsort by the library's sort."""
        name = parse_compute(str(self.term.attributes[0]))[0].name
        (child,) = self.term.children
        shape, item, dtype = child.access.shape, child.access.item, child.access.dtype
        if name == "argsort":
            return self._sorted(child)
        inner = wider(dtype)

        def one(at: Places) -> list[Statement]:
            largest, let = self.let(number(None, inner))
            total, start = self.let(number(0, sums_in(dtype)))

            def below(within: Places) -> Formula:
                return apply("subtract", convert(self.pull(child, (*at, *within)), inner), largest)

            def most(within: Places) -> list[Statement]:
                element = convert(self.pull(child, (*at, *within)), inner)
                return [Let(largest, apply("max", largest, element), known=True)]

            def add(within: Places) -> list[Statement]:
                power = convert(apply("exp", below(within)), total.dtype)
                return [Let(total, apply("add", total, power), known=True)]

            def finish(within: Places) -> list[Statement]:
                sum_ = convert(total, inner)
                if name == "softmax":
                    return [self.store((*at, *within), apply("divide", apply("exp", below(within)), sum_))]
                return [self.store((*at, *within), apply("subtract", below(within), apply("log", sum_)))]

            return [let, *self.each(item, most), start, *self.each(item, add), *self.each(item, finish)]

        return self.each(shape, one)

    def _sorted(self, child: Term) -> list[Statement]:
        items = self.source.buffers[child]
        length = child.access.item.product()
        descending = "descending" in str(self.term.attributes[0])

        def one(at: Places) -> list[Statement]:
            place = items.place((*at, *(Index() for _ in child.access.item)))
            return [Sort(items, self.buffer, place, length, descending)]

        return self.each(child.access.shape, one)

    def mapped(self) -> list[Statement]:
        """A constant matrix along an axis: each row a sum of whole multiples over one denominator."""
        child, axis, rows, coefficients = self.term.arguments()
        dims, values = child.access.dims, exact_numbers(str(coefficients)) or ()
        columns, dtype = dims[axis], child.access.dtype

        def one(places: Places) -> list[Statement]:
            made: list[Statement] = []
            for row in range(rows):
                own = values[row * columns : (row + 1) * columns]
                elements = [self.pull(child, (*places[:axis], Index() + i, *places[axis:])) for i in range(columns)]
                made.append(
                    self.store((*places[:axis], Index() + row, *places[axis:]), weighted_sum(own, elements, dtype))
                )
            return made

        return self.each(dims.remove(axis), one)

    def overlapped(self) -> list[Statement]:
        """Windows added up where they lie."""
        child, out, strides = self.term.arguments()
        axes, dims = len(out), child.access.dims
        lead = len(dims) - 2 * axes

        def add(at: Places) -> list[Statement]:
            counts, within = at[lead : lead + axes], at[lead + axes :]
            places = [*at[:lead], *(c * t + w for c, t, w in zip(counts, strides, within, strict=True))]
            place = self.buffer.place(places)
            return [Store(self.buffer, place, apply("add", Load(self.buffer, place), self.pull(child, at)))]

        return [*self._zero(), *self.each(dims, add)]

    def _zero(self) -> list[Statement]:
        zero = number(0, self.buffer.dtype)
        return self.each(self.buffer.dims, lambda places: [self.store(places, zero)])

    def gathered(self) -> list[Statement]:
        """Elements of one axis at computed indices."""
        a, indices, axis = self.term.arguments()
        source, count_ = self.source.buffers[a], indices.access.rank
        step = a.access.dims.drop(axis + 1).product()

        def one(places: Places) -> list[Statement]:
            index, let = self.let(convert(self.pull(indices, places[axis : axis + count_]), "int64"))
            place = source.place((*places[:axis], Index(), *places[axis + count_ :]))
            held = Require(index, a.access.dims[axis], "access-gather")
            return [let, held, self.store(places, Load(source, place, ((index, step),)))]

        return self.each(self.buffer.dims, one)

    def _picked(self, a: Term, indices: Term, at: Places, shared: int) -> tuple[list[Statement], Any]:
        """The variables that say where in the axes behind the shared ones to look, and by how much each moves."""
        statements: list[Statement] = []
        picked = []
        for axis in range(indices.access.dims[-1]):
            size = a.access.dims[shared + axis]
            index, let = self.let(convert(self.pull(indices, (*at, Index() + axis)), "int64"))
            statements += [let, Require(index, size, self.term.operator.name)]
            picked.append((index, a.access.dims.drop(shared + axis + 1).product()))
        return statements, tuple(picked)

    def gathered_nd(self) -> list[Statement]:
        """Elements at places of several numbers."""
        a, indices, shared = self.term.arguments()
        source, lead, numbers = self.source.buffers[a], indices.access.rank - 1, indices.access.dims[-1]

        def one(places: Places) -> list[Statement]:
            statements, picked = self._picked(a, indices, places[:lead], shared)
            place = source.place((*places[:shared], *(Index() for _ in range(numbers)), *places[lead:]))
            return [*statements, self.store(places, Load(source, place, picked))]

        return self.each(self.buffer.dims, one)

    def scattered(self) -> list[Statement]:
        """A copy, with updates put into it one after the other."""
        a, indices, updates, shared, reduction = self.term.arguments()
        lead, numbers = indices.access.rank - 1, indices.access.dims[-1]
        name = {"add": "add", "mul": "multiply", "min": "min", "max": "max"}.get(str(reduction))

        def put(places: Places) -> list[Statement]:
            statements, picked = self._picked(a, indices, places[:lead], shared)
            place = self.buffer.place((*places[:shared], *(Index() for _ in range(numbers)), *places[lead:]))
            new = self.pull(updates, places)
            value = new if name is None else apply(name, Load(self.buffer, place, picked), new)
            return [*statements, Store(self.buffer, place, value, picked)]

        copied = self.each(self.buffer.dims, lambda places: [self.store(places, self.pull(a, places))])
        return [*copied, *self.each(updates.access.dims, put)]

    def tiled(self) -> list[Statement]:
        """(G, A)(I) x (G, B)(I) -> (G, A, B)."""
        a, b, shared, *_ = self.term.arguments()
        rows = a.access.split

        def row(at: Places) -> list[Statement]:
            left, right = at[:rows], (*at[:shared], *at[rows:])
            return self.summed(
                a.access.item,
                a.access.dtype,
                lambda within: [self.pull(a, (*left, *within)), self.pull(b, (*right, *within))],
                lambda total: self.store(at, total),
            )

        return self.each(self.buffer.dims, row)

    def tile_product(self) -> list[Statement]:
        """(G, M)(K) x (G)(K, N) -> (G, M, N), or (G)(K) -> (G, N)."""
        a, b = self.term.children
        groups, columns = b.access.split, len(self.buffer.dims) - 1

        def row(at: Places) -> list[Statement]:
            return self.summed(
                a.access.item,
                a.access.dtype,
                lambda k: [self.pull(a, (*at[:columns], *k)), self.pull(b, (*at[:groups], *k, at[columns]))],
                lambda total: self.store(at, total),
            )

        return self.each(self.buffer.dims, row)

    def overlapped_product(self) -> list[Statement]:
        """(G, A, positions)(I) x (G, B, window)(I): each product is added where its window lies."""
        a, b, shared, out, strides, dilations, starts, _ = self.term.arguments()
        axes, rows = len(out), a.access.split
        moves = list(zip(strides, dilations, starts, out, strict=True))

        def one(at: Places) -> list[Statement]:
            left, right = at[:rows], (*at[:shared], *at[rows:])
            positions, window = at[rows - axes : rows], at[len(at) - axes :]
            places = [p * t + w * d - s for p, w, (t, d, s, _) in zip(positions, window, moves, strict=True)]
            where = (*at[: rows - axes], *at[rows : len(at) - axes], *places)
            inside = tuple(Within(place, 0, n) for place, (*_, n) in zip(places, moves, strict=True))
            place = self.buffer.place(where)

            def add(total: Formula) -> Statement:
                stored = Store(self.buffer, place, apply("add", Load(self.buffer, place), total))
                return When(tuple(g for g in inside if not g.always), (stored,))

            return self.summed(
                a.access.item,
                a.access.dtype,
                lambda within: [self.pull(a, (*left, *within)), self.pull(b, (*right, *within))],
                add,
            )

        return [*self._zero(), *self.each(a.access.shape.append(b.access.shape.drop(shared)), one)]

    def unit(self) -> list[Statement]:
        """A product of operands that are read, and a result that is stored, in other orders of their parts."""
        shared, a, ap, ao, a_split, b, bp, bo, b_split, parts, order = self.term.arguments()

        def read(term: Term, sizes: Dims, turned: Dims, at: Places) -> Formula:
            own = [at[turned.index(i)] for i in range(len(sizes))]
            flat = Buffer("", sizes, "", Role.TEMPORARY).place(own)
            return self.pull(term, unflattened(flat, term.access.dims))

        left, right = ap.permute(ao), bp.permute(bo)
        dims = left.take(a_split).append(right.take(b_split).drop(shared))

        def row(at: Places) -> list[Statement]:
            flat = Buffer("", dims, "", Role.TEMPORARY).place(at)
            cut = unflattened(flat, parts)
            where = [cut[i] for i in order]
            return self.summed(
                left.drop(a_split),
                a.access.dtype,
                lambda k: [
                    read(a, ap, ao, (*at[:a_split], *k)),
                    read(b, bp, bo, (*at[:shared], *at[a_split:], *k)),
                ],
                lambda total: self.store(where, total),
            )

        return self.each(dims, row)


OF_CATEGORY: Mapping[Category, Callable[[Filling], list[Statement]]] = {
    Category.REDUCTION: Filling.reduced,
    Category.CONTRACTION: Filling.contracted,
    Category.NORMALIZATION: Filling.normalized,
}
OF_OPERATOR: Mapping[str, Callable[[Filling], list[Statement]]] = {
    "linear-map": Filling.mapped,
    "access-overlap-add": Filling.overlapped,
    "access-gather": Filling.gathered,
    "access-gather-nd": Filling.gathered_nd,
    "access-scatter-nd": Filling.scattered,
    "tiled-product": Filling.tiled,
    "systolic-array": Filling.tile_product,
    "systolic-array-output-stationary": Filling.tile_product,
    "systolic-array-with-blocking": Filling.tile_product,
    "overlap-add-product": Filling.overlapped_product,
    "product-unit": Filling.unit,
}
