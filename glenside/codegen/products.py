"""Sums of products: dot products, arrays and units, overlapped products."""

from __future__ import annotations

from glenside.codegen.filling import Filling, Places
from glenside.codegen.formulas import apply
from glenside.codegen.loops import Formula, Load, Statement, Store, When
from glenside.ir.index_map import Index, Within, reshaped
from glenside.ir.term import Term
from glenside.ir.types import Dims


def contracted(nest: Filling) -> list[Statement]:
    """A sum of products: of elements along the tuple axis, over all others of the item."""
    (child,) = nest.term.children
    split, item, dtype = child.access.split, child.access.item, child.access.dtype

    def one(at: Places, within: Places) -> list[Formula]:
        return [nest.pull(child, (*at, Index() + part, *within)) for part in range(item[0])]

    def row(at: Places) -> list[Statement]:
        return nest.summed(item.drop(1), dtype, lambda within: one(at, within), lambda sum_: nest.store(at, sum_))

    return nest.each(child.access.dims.take(split), row)


def tiled(nest: Filling) -> list[Statement]:
    """(G, A)(I) x (G, B)(I) -> (G, A, B)."""
    a, b, shared, *_ = nest.term.arguments()
    rows = a.access.split

    def row(at: Places) -> list[Statement]:
        left, right = at[:rows], (*at[:shared], *at[rows:])
        return nest.summed(
            a.access.item,
            a.access.dtype,
            lambda within: [nest.pull(a, (*left, *within)), nest.pull(b, (*right, *within))],
            lambda total: nest.store(at, total),
        )

    return nest.each(nest.buffer.dims, row)


def tile_product(nest: Filling) -> list[Statement]:
    """(G, M)(K) x (G)(K, N) -> (G, M, N), or (G)(K) -> (G, N)."""
    a, b = nest.term.children
    groups, columns = b.access.split, len(nest.buffer.dims) - 1

    def row(at: Places) -> list[Statement]:
        return nest.summed(
            a.access.item,
            a.access.dtype,
            lambda k: [nest.pull(a, (*at[:columns], *k)), nest.pull(b, (*at[:groups], *k, at[columns]))],
            lambda total: nest.store(at, total),
        )

    return nest.each(nest.buffer.dims, row)


def overlapped_product(nest: Filling) -> list[Statement]:
    """(G, A, positions)(I) x (G, B, window)(I): each product is added where its window lies."""
    a, b, shared, out, strides, dilations, starts, _ = nest.term.arguments()
    axes, rows = len(out), a.access.split
    moves = list(zip(strides, dilations, starts, out, strict=True))

    def one(at: Places) -> list[Statement]:
        left, right = at[:rows], (*at[:shared], *at[rows:])
        positions, window = at[rows - axes : rows], at[len(at) - axes :]
        places = [p * t + w * d - s for p, w, (t, d, s, _) in zip(positions, window, moves, strict=True)]
        where = (*at[: rows - axes], *at[rows : len(at) - axes], *places)
        inside = tuple(Within(place, 0, n) for place, (*_, n) in zip(places, moves, strict=True))
        place = nest.buffer.place(where)

        def add(total: Formula) -> Statement:
            stored = Store(nest.buffer, place, apply("add", Load(nest.buffer, place), total))
            return When(tuple(g for g in inside if not g.always), (stored,))

        return nest.summed(
            a.access.item,
            a.access.dtype,
            lambda within: [nest.pull(a, (*left, *within)), nest.pull(b, (*right, *within))],
            add,
        )

    return [*nest.zero(), *nest.each(a.access.shape.append(b.access.shape.drop(shared)), one)]


def unit(nest: Filling) -> list[Statement]:
    """A product of operands that are read, and a result that is stored, in other orders of their parts."""
    shared, a, ap, ao, a_split, b, bp, bo, b_split, parts, order = nest.term.arguments()

    def read(term: Term, sizes: Dims, turned: Dims, at: Places) -> Formula:
        own = [at[turned.index(i)] for i in range(len(sizes))]
        return nest.pull(term, _under(term.access.dims, sizes, own))

    left, right = ap.permute(ao), bp.permute(bo)
    dims = left.take(a_split).append(right.take(b_split).drop(shared))

    def row(at: Places) -> list[Statement]:
        cut = _under(parts, dims, at)
        where = [cut[i] for i in order]
        return nest.summed(
            left.drop(a_split),
            a.access.dtype,
            lambda k: [
                read(a, ap, ao, (*at[:a_split], *k)),
                read(b, bp, bo, (*at[:shared], *at[a_split:], *k)),
            ],
            lambda total: nest.store(where, total),
        )

    return nest.each(dims, row)


def _under(dims: Dims, other: Dims, indices: Places) -> Places:
    """Where in dims the element is that has those indices in other dims."""
    (piece,) = reshaped(dims, other).pieces
    return piece.at(indices).indices
