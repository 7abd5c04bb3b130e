"""Scatter-add: adds windows, or products, to the result at their positions."""

from __future__ import annotations

from glenside.codegen.loop_ir.ir import Formula, Load, Statement, Store, When
from glenside.codegen.loop_ir.nest_builder import Filling, Places
from glenside.codegen.loop_ir.scalar_expr import apply
from glenside.ir.index_map import Within


def overlapped(nest: Filling) -> list[Statement]:
    """Adds windows to the result at their positions (overlap-add)."""
    child, out, strides = nest.term.arguments()
    axes, dims = len(out), child.access.dims
    lead = len(dims) - 2 * axes

    def add(at: Places) -> list[Statement]:
        counts, within = at[lead : lead + axes], at[lead + axes :]
        places = [*at[:lead], *(c * t + w for c, t, w in zip(counts, strides, within, strict=True))]
        place = nest.view.place(places)
        return [Store(nest.buffer, place, apply("add", Load(nest.buffer, place), nest.pull(child, at)))]

    return [*nest.zero(), *nest.each(dims, add)]


def overlapped_product(nest: Filling) -> list[Statement]:
    """(G, A, positions)(I) x (G, B, window)(I): adds each product to the result at the position of its window."""
    a, b, shared, out, strides, dilations, starts, _ = nest.term.arguments()
    axes, rows = len(out), a.access.split
    moves = list(zip(strides, dilations, starts, out, strict=True))

    def one(at: Places) -> list[Statement]:
        left, right = at[:rows], (*at[:shared], *at[rows:])
        positions, window = at[rows - axes : rows], at[len(at) - axes :]
        places = [p * t + w * d - s for p, w, (t, d, s, _) in zip(positions, window, moves, strict=True)]
        where = (*at[: rows - axes], *at[rows : len(at) - axes], *places)
        inside = tuple(Within(place, 0, n) for place, (*_, n) in zip(places, moves, strict=True))
        place = nest.view.place(where)

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
