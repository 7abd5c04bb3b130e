"""Turns products into the form that a matrix unit needs: one axis on each side, and depth and width that are multiples
of the unit's.

A flat product is dot(a x b) with a = (M)(K), b = (N)(K), or with one shared axis (G, M)(K), (G, N)(K). Each demand
below starts at a product, and only once the previous one is met: flatten, pad the width, pad the depth, cut the width,
cut the depth. With one order each tile is found in one way only, so that the search grows linearly with the number of
tiles.
"""

from __future__ import annotations

from glenside.ir.types import smallest
from glenside.rewrites import examples as ex
from glenside.rewrites import operators as op
from glenside.rewrites.declare import ROOT, Clauses, Example, V, analysis, rule, union, when
from glenside.rewrites.facts import ACCESS, INT, access_at, dims, relation, split
from glenside.rewrites.parameters import columns, rows
from glenside.rewrites.terms import is_dot, sided, variables, vec

flat = relation("flat", product=ACCESS, a=ACCESS, b=ACCESS, shared=INT, depth=INT, width=INT)
want_flat = relation("want-flat", operand=ACCESS, shared=INT)
want_pad = relation("want-pad", operand=ACCESS, axis=INT, more=INT)
want_depth = relation("want-depth", pairs=ACCESS, more=INT)
want_slices = relation("want-slices", access=ACCESS, axis=INT, size=INT)

_CONV = Example(ex.pairs("dot-product", ex.access("x", 2), ex.W), {"x": "m n k l", "w": "o k l"})
_GROUPED = Example(ex.dot(ex.access("x", 3), ex.W, 1), {"x": "g m n k l", "w": "g k l"})
_TWO_SHARED = Example(ex.dot(ex.access("x", 3), ex.access("w", 3), 2), {"x": "g h m k", "w": "g h n k"})


@rule("products", _CONV, _GROUPED, _TWO_SHARED)
def operands_are_flattened(a: V, b: V, n: V, d: V, s: V, shape: V, item: V, shared: V, rest: V, g: V) -> Clauses:
    """a = reshape(reshape(a; (M)(K)); dims of a), for both operands of a product that is not flat.

    A matrix unit knows one row axis and one depth; with shared axes, one axis for all of them. Sound because reshape
    keeps the elements of shape and item in row-major order, so the way back restores every axis.
    """
    da, sa, db, sb, m, depth = variables("da sa db sb m depth")
    sides = (is_dot(a, b, n), sided(a, da, sa), sided(b, db, sb))
    uneven = (da.length - sa != 1, sa != smallest(n, 1) + 1, sb != smallest(n, 1) + 1, n > 1)
    operand = (want_flat(ROOT, n), sided(ROOT, d, s), shape == d.take(s), item == d.drop(s))
    own_axes = (shared == shape.take(n), rest == shape.drop(n), g == shared.product(), m == rest.product())
    there = op.reshape(ROOT, vec(m), vec(depth))
    there_in_groups = op.reshape(ROOT, vec(g, m), vec(depth))
    return (
        *(when(sides, why).then(want_flat(a, n), want_flat(b, n)) for why in uneven),
        when(operand, n == 0, m == shape.product(), depth == item.product()).then(
            union(ROOT, op.reshape(there, shape, item))
        ),
        when(operand, n > 0, own_axes, depth == item.product()).then(
            union(ROOT, op.reshape(there_in_groups, shape, item))
        ),
    )


def _on_array(text: str, x: str, w: str) -> Example:
    """Returns an example with such operands, for an array of 3 rows and 2 columns."""
    return Example(text, {"x": x, "w": w}, parameters={"rows": 3, "columns": 2})


@analysis("analyses", _on_array(ex.MATMUL, "m k", "n k"), _on_array(ex.MATMULS, "g m k", "g n k"))
def flat_products_are_known(a: V, b: V, n: V, da: V, sa: V, db: V, sb: V, depth: V, width: V) -> Clauses:
    """dot(a x b) is flat when a = (M)(K), b = (N)(K), or (G, M)(K), (G, N)(K) with one shared axis.

    An analysis: it adds no e-node. Sound because it only reads types.
    """
    one_axis_each = (n <= 1, sa == n + 1, sb == n + 1, da.length == n + 2)
    sizes = (depth == da[n + 1], width == db[n], depth > 0, width > 0)
    return when(is_dot(a, b, n), sided(a, da, sa), sided(b, db, sb), one_axis_each, sizes).then(
        flat(ROOT, a, b, n, depth, width)
    )


@rule("products", _on_array(ex.MATMUL, "m 4", "5 4"), _on_array(ex.MATMULS, "g m 4", "g 5 4"))
def width_is_padded_to_a_multiple(a: V, b: V, n: V, depth: V, width: V, axis: V, more: V, d: V, size: V) -> Clauses:
    """b = slice(pad(b, N, 0, p), N, 0, size): the width of a product becomes a multiple of the array's columns.

    Sound because the slice exactly undoes the pad.
    """
    return (
        when(flat(ROOT, a, b, n, depth, width), width % columns != 0).then(
            want_pad(b, axis=n, more=columns - width % columns)
        ),
        when(want_pad(ROOT, axis, more), d == dims(ROOT), size == d[axis]).then(
            union(ROOT, op.slice(op.pad(ROOT, "zero-padding", axis, 0, more), axis, 0, size))
        ),
    )


@rule("products", _on_array(ex.MATMUL, "m 4", "8 4"), _on_array(ex.MATMULS, "g m 7", "g 2 7"))
def depth_is_padded_to_a_multiple(a: V, b: V, n: V, depth: V, width: V, p: V, more: V, s: V) -> Clauses:
    """dot(p) = dot(pad(p, K, 0, q)) with zeros: the depth becomes a multiple of the array's rows.

    Sound because every pair added is 0 * 0, which the sum ignores; the axis lies behind the tuple axis, whose padding
    would make every product 0.
    """
    uneven = (width % columns == 0, depth % rows != 0)
    return (
        when(flat(ROOT, a, b, n, depth, width), uneven, p == op.product(a, b, n)).then(
            want_depth(p, more=rows - depth % rows)
        ),
        when(want_depth(p, more), ROOT == op.dot_product(p), s == split(p)).then(
            union(ROOT, op.dot_product(op.pad(p, "zero-padding", s + 1, 0, more)))
        ),
    )


@rule(
    "products",
    Example(ex.X, {"x": "6 5 k"}, [want_slices(access_at("root"), axis=0, size=2)], {"rows": 3, "columns": 2}),
    _on_array(ex.MATMUL, "m 6", "8 6"),
    _on_array(ex.MATMULS, "g m 9", "g 2 9"),
)
def access_is_sliced_once(a: V, b: V, n: V, depth: V, width: V, axis: V, size: V, d: V, whole: V, half: V) -> Clauses:
    """a = concatenate(slice(a, axis, 0, h), slice(a, axis, h, size)), where a product wants a cut; h is near the
    middle.

    Cutting in two leaves ceil(log2 n) levels for n tiles and 2n - 1 slices. Sound because the two slices cover the axis
    without overlap. The width is cut before the depth, so that a tile is reached in one way.
    """
    product = flat(ROOT, a, b, n, depth, width)
    parts = op.concatenate(op.slice(ROOT, axis, 0, half), op.slice(ROOT, axis, half, whole), axis)
    return (
        when(product, width % columns == 0, depth % rows == 0, width > columns).then(
            want_slices(b, axis=n, size=columns)
        ),
        when(product, width == columns, depth % rows == 0, depth > rows).then(
            want_slices(a, axis=n + 1, size=rows), want_slices(b, axis=n + 1, size=rows)
        ),
        when(
            want_slices(ROOT, axis, size),
            *(d == dims(ROOT), whole == d[axis], whole > size),
            half == size * ((1 + whole // size) // 2),
        ).then(union(ROOT, parts)),
    )


@rule("systolic-array", _on_array(ex.MATMUL, "m 3", "2 3"), _on_array(ex.MATMULS, "g m 3", "g 2 3"))
def product_is_a_systolic_array_call(a: V, b: V, n: V) -> Clauses:
    """dot(a x b) = systolic-array(a, transpose(b)) for a = (G.., M)(R), b = (G.., C)(R): one instruction for each of G.

    Sound because both sides are sum over k of a[g, m, k] * b[g, c, k]; the instruction takes its weights as (R, C).
    """

    def fits(shared: int, *order: int) -> Clauses:
        weights = op.access(op.transpose(b, vec(*order)), n)
        return when(flat(ROOT, a, b, n, depth=rows, width=columns), n == shared).then(
            union(ROOT, op.systolic_array(rows, columns, a, weights))
        )

    return fits(0, 1, 0), fits(1, 0, 2, 1)
