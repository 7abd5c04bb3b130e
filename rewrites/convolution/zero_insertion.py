"""Turns windows that a program adds up itself into a convolution of an input with zeros between its elements.

The windows are columns of a product: their axis i is its axis order[i], with elements spread[i] apart. Zeros are
inserted, axis by axis, into the first operand of the product along the axes that are added up, and the windows of the
second operand are reversed.
"""

from __future__ import annotations

from glenside.ir.types import Dims
from glenside.rewrites import examples as ex
from glenside.rewrites import operators as op
from glenside.rewrites.convolution.recipes import recipe
from glenside.rewrites.convolution.transposed import ANALYSES, FAMILY, unfolding
from glenside.rewrites.convolution.windows_over_gaps import section, want_section
from glenside.rewrites.declare import ROOT, Clauses, Example, V, analysis, let, rule, set_, union, when
from glenside.rewrites.facts import ACCESS, INT, INTS, dims, function, relation, source, split, table
from glenside.rewrites.terms import dot, reshaped, sided, variables

columns = relation("columns", y=ACCESS, product=ACCESS, order=INTS, spread=INTS)
# Positions of overlap-add(y), after that many cuts: along each axis `sizes` from `starts` on.
cropped = relation("cropped", sums=ACCESS, y=ACCESS, strides=INTS, starts=INTS, sizes=INTS, cuts=INT)
most_cuts = function("most-cuts", INT, "max", y=ACCESS)
# x is the operand a with zeros along `done` axes, w is b with as many axes reversed; a product may also have operands
inserting = relation("inserting", sums=ACCESS, product=ACCESS, a=ACCESS, b=ACCESS, x=ACCESS, w=ACCESS, done=INT)


@table(order=Dims, spread=Dims)
def as_it_stands(rank: int) -> tuple[Dims, Dims]:
    """Returns every axis in its place, with consecutive elements."""
    return Dims(range(rank)), Dims((1,) * rank)


@table(starts=Dims)
def from_the_first(sizes: Dims) -> tuple[Dims]:
    """Returns the first position of each axis."""
    return (Dims((0,) * len(sizes)),)


@table(turn=Dims)
def axes_of_one(new: Dims, old: Dims) -> tuple[Dims] | None:
    """Returns the order of axes that equals a reshape which only moves axes of size 1."""

    def axes(dims: Dims, alone: bool) -> list[int]:
        return [i for i, size in enumerate(dims) if (size == 1) == alone]

    if len(new) != len(old) or new.permute(axes(new, False)) != old.permute(axes(old, False)):
        return None
    ones, others = iter(axes(old, True)), iter(axes(old, False))
    return (Dims(next(ones if size == 1 else others) for size in new),)


@table(places=Dims, rows=Dims, reach=Dims)
def windows_of_product(
    order: Dims, spread: Dims, axes: int, da: Dims, sa: int, m: int, db: Dims, sb: int
) -> tuple[Dims, Dims, Dims] | None:
    """Returns the axes of a that are positions, those of b that are windows, and the length of each window less 1.

    None if positions or windows belong to another operand, or anything else is spread.
    """
    split = len(order) - axes
    places, rows = order[split - axes : split], [axis - sa + m for axis in order[split:]]
    if not all(m <= axis < sa for axis in places) or not all(m <= axis < sb for axis in rows):
        return None
    if any(n != 1 for n in spread[:split]) or any(db[row] == 0 for row in rows):
        return None
    reach = Dims((db[row] - 1) * d for row, d in zip(rows, spread[split:], strict=True))
    return Dims(places), Dims(rows), reach


@table(turned=Dims, spans=Dims, ones=Dims, apart=Dims, sizes=Dims, back=Dims, weights=Dims, result=Dims)
def inserted(
    order: Dims, spread: Dims, out: Dims, da: Dims, sa: int, m: int, db: Dims, sb: int, places: Dims, rows: Dims
) -> tuple[Dims, Dims, Dims, Dims, Dims, Dims, Dims, Dims]:
    """Describes the windows of the first operand with zeros, the operands of the product, and the order of its result.

    Returns the order that moves positions into the item; the windows, with elements `apart`; the dims after that, and
    their order as an operand; the order of the second operand; and that of the result.
    """
    axes, rank = len(out), len(da)
    first = [axis for axis in range(rank) if axis not in places]
    apart = spread[len(order) - axes :]
    spans = [(db[row] - 1) * d + 1 for row, d in zip(rows, apart, strict=True)]
    turned = (*first, *places)
    dims = (*(da[axis] for axis in first), *out, *(db[row] for row in rows))
    back = (*(turned.index(axis) for axis in range(rank)), *range(rank, rank + axes))
    own = [axis for axis in range(sb) if axis not in rows]
    kept = [sa + row - m for row in own if row >= m]
    lead = [axis if axis < sa else sa + kept.index(axis) for axis in order[: len(order) - 2 * axes]]
    return (
        Dims(turned),
        Dims(spans),
        Dims((1,) * axes),
        Dims(apart),
        Dims(dims),
        Dims(back),
        Dims((*own, *range(sb, len(db)), *rows)),
        Dims((*lead, *places)),
    )


def _columns(split: int, shared: int) -> str:
    return ex.dot(ex.access("x", split), ex.access("w", split), shared)


_ON_LINE = f"(access (access-transpose (access-dilate {_columns(2, 0)} 3 1) (list 0 2 1 3)) 3)"
_ON_PLANE = f"(access (access-transpose {_columns(4, 1)} (list 0 1 4 3 2 6 5)) 5)"
_LINE = Example(
    f"(access-slice (access-overlap-add {_ON_LINE} (shape 14) (shape 3)) 2 1 12)", {"x": "n 4 c", "w": "o 3 c"}
)
_PLANE = Example(f"(access-overlap-add {_ON_PLANE} (shape 8 5) (shape 2 1))", {"x": "2 n 4 3 c", "w": "2 o 2 3 c"})
_CROPPED = Example(
    f"(access-slice (access (access-slice (access-overlap-add {_ON_PLANE} (shape 8 5) (shape 2 1)) 4 1 5) 0) 3 2 7)",
    {"x": "2 n 4 3 c", "w": "2 o 2 3 c"},
)
_OF_ONES = ex.reshaped(f"(access {_columns(4, 1)} 0)", "", "2 $n 1 4 3 2 3")
_DEPTHWISE = Example(
    f"(access-overlap-add (access {_OF_ONES} 5) (shape 8 5) (shape 2 1))", {"x": "2 n 4 3 1", "w": "2 1 2 3 1"}
)


@analysis(ANALYSES, _LINE, _PLANE, _DEPTHWISE)
def columns_are_known(
    a: V, p: V, turn: V, d: V, rank: V, product: V, order: V, spread: V, s: V, x: V, n: V, moved: V, moved_spread: V
) -> Clauses:
    """Finds which axes of the added tensor are those of a product of the program.

    A reshape that only moves axes of size 1 counts as a transpose.

    An analysis: it adds no e-node. Sound because it only reads facts that hold.
    """
    of_a = columns(a, product, order, spread)
    of_shape, of_item, own = variables("of-shape of-item own")
    return (
        when(
            *(source(ROOT), ROOT == op.dot_product(p), d == dims(ROOT), rank == d.length),
            as_it_stands.facts(rank, order=order, spread=spread),
        ).then(columns(ROOT, ROOT, order, spread)),
        when(of_a, ROOT == op.access(a, s), source(ROOT)).then(columns(ROOT, product, order, spread)),
        when(
            *(of_a, ROOT == op.transpose(a, turn), source(ROOT)),
            *(moved == order.permute(turn), moved_spread == spread.permute(turn)),
        ).then(columns(ROOT, product, moved, moved_spread)),
        when(
            *(of_a, ROOT == op.reshape(a, of_shape, of_item), source(ROOT), d == dims(ROOT), own == dims(a)),
            axes_of_one.facts(d, own, turn=turn),
            *(moved == order.permute(turn), moved_spread == spread.permute(turn)),
        ).then(columns(ROOT, product, moved, moved_spread)),
        when(of_a, ROOT == op.dilate(a, x, n), source(ROOT), spread[x] == 1).then(
            columns(ROOT, product, order, spread.set(x, n + 1))
        ),
    )


@analysis(ANALYSES, _LINE, _CROPPED)
def crops_are_known(a: V, y: V, out: V, strides: V, starts: V, sizes: V, cuts: V) -> Clauses:
    """Finds the positions that a program keeps of its sums of windows.

    An analysis: it adds no e-node. Sound because it only reads facts that hold.
    """
    product, order, spread, axis, lo, hi, s, d, i = variables("product order spread axis lo hi s d i")
    of_a = (cropped(a, y, strides, starts, sizes, cuts), source(ROOT))
    cut = (ROOT == op.slice(a, axis, lo, hi), d == dims(ROOT), i == axis - (d.length - starts.length), i >= 0, hi > lo)
    one = (starts.set(i, starts[i] + lo), sizes.set(i, hi - lo), cuts + 1)
    return (
        when(
            *(source(ROOT), ROOT == op.overlap_add(y, out, strides), columns(y, product, order, spread)),
            from_the_first.facts(out, starts=starts),
        ).then(cropped(ROOT, y, strides, starts, out, 0), set_(most_cuts(y), 0)),
        when(*of_a, ROOT == op.access(a, s)).then(cropped(ROOT, y, strides, starts, sizes, cuts)),
        when(*of_a, cut).then(cropped(ROOT, y, strides, *one), set_(most_cuts(y), cuts + 1)),
    )


@rule(FAMILY, _LINE, _PLANE, _CROPPED, _DEPTHWISE)
def zeros_are_put_between(a: V, b: V, m: V, y: V, out: V, strides: V, product: V, order: V, spread: V) -> Clauses:
    """slice(overlap-add(dot(x x w))) = dot(windows(pad(dilate(x))) x flip(w)).

    A program that adds up windows itself computes a transposed convolution, so it gets all forms of one, at the
    positions that it keeps. Only for sums and products of the program, since other forms are derived from such a
    convolution. Sound because element u of the window at position m is added to position t m + d u, where window t m +
    d u of the spread input has position m at element k - 1 - u.
    """
    da, sa, db, sb, axes, places, rows, reach = variables("da sa db sb axes places rows reach")
    starts, cuts = variables("starts cuts")
    sums = (
        *(cropped(ROOT, y, strides, starts, out, cuts), cuts == most_cuts(y), columns(y, product, order, spread)),
        *(product == dot(a, b, m), sided(a, da, sa), sided(b, db, sb), axes == out.length),
        windows_of_product.facts(order, spread, axes, da, sa, m, db, sb, places=places, rows=rows, reach=reach),
    )
    x, w, done, axis, size, begin, zeros, wide, longer = variables("x w done axis size begin zeros wide longer")
    step = (
        *(inserting(ROOT, product, a, b, x, w, done), sums, done < axes),
        *(axis == places[done], size == out[done] + reach[done], begin == starts[done] - reach[done]),
    )
    turned, spans, ones, apart, sizes, back = variables("turned spans ones apart sizes back")
    of_weights, of_result, first, lead = variables("of-weights of-result first lead")
    turn = inserted.facts(
        *(order, spread, out, da, sa, m, db, sb, places, rows),
        **{"turned": turned, "spans": spans, "ones": ones, "apart": apart},
        **{"sizes": sizes, "back": back, "weights": of_weights, "result": of_result},
    )
    operand, weights, convolved = variables("operand weights convolved")
    neighbours = op.windows(op.access(op.transpose(x, turned), first), spans, ones)
    return (
        when(sums).then(inserting(ROOT, product, a, b, a, b, 0)),
        when(step).then(want_section(op.dilate(x, axis, strides[done] - 1), axis, begin, size)),
        when(
            *(step, zeros == strides[done] - 1),
            *(wide == op.dilate(x, axis, zeros), longer == section(wide, axis, begin, size)),
        ).then(inserting(ROOT, product, a, b, longer, op.flip(w, rows[done]), done + 1)),
        when(
            sums, inserting(ROOT, product, a, b, x, w, axes), turn, first == da.length - axes, lead == split(ROOT)
        ).then(
            let(operand, op.access(op.transpose(reshaped(op.windows(neighbours, ones, apart), sizes, 0), back), sa)),
            let(weights, op.access(op.transpose(w, of_weights), sb - axes)),
            let(convolved, dot(operand, weights, m)),
            union(ROOT, op.access(op.transpose(convolved, of_result), lead)),
            unfolding(convolved, 0, 1),
            recipe(convolved, "zeros"),
        ),
    )
