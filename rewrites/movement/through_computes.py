"""Moves data movement past computations on items: each item is computed by itself, so moves of whole items can go
outside.

concatenate, pad, reshape and transpose rise only where the program itself has them, not where tiling put them; slices
sink, because only a product's demand creates them.
"""

from __future__ import annotations

from glenside.rewrites import examples as ex
from glenside.rewrites import operators as op
from glenside.rewrites.declare import Clauses, Example, Facts, V, rewrite, rule
from glenside.rewrites.facts import access_at, category, dims, keeps_zero, source, split
from glenside.rewrites.movement.algebra import tiled
from glenside.rewrites.terms import padded, variables, vec, vec_range

FAMILY = "through-computes"
_X = ex.access("x", 2)
_TILED = [tiled(access_at("x2"))]


def _apart(f: V, a: V, x: V) -> tuple[Facts, Facts]:
    """Matches axes x of a along which f computes each index separately: shape axes, and for
    pointwise f also item axes.
    """
    c, s = variables("c s")
    return (
        (category(f, c), c != "contraction", s == split(a), x < s),
        (category(f, "pointwise"), s == split(a), x >= s),
    )


@rule(
    FAMILY,
    Example(f"(compute relu (access-concatenate {_X} {_X} 2))", {"x": "m n k"}),
    Example(f"(compute reduce-max (access-concatenate {_X} {_X} 1))", {"x": "m n k"}),
    Example(f"(compute softmax (access-concatenate {_X} {_X} 0))", {"x": "m n k"}),
)
def concatenate_leaves_compute(a: V, b: V, x: V, f: V) -> Clauses:
    """f(concatenate(a, b)) = concatenate(f(a), f(b)), on a shape axis for every f, on any axis for a pointwise one.

    Sound because f reads one item, or one element, at a time, and each of them is in one part.
    """
    return tuple(
        rewrite(
            op.compute(f, op.concatenate(a, b, x)),
            op.concatenate(op.compute(f, a), op.compute(f, b), x),
            *(source(a), source(b), apart),
        )
        for apart in _apart(f, a, x)
    )


@rule(
    FAMILY,
    Example(f"(access-slice (compute relu {_X}) 2 1 3)", {"x": "m n 5"}, wants=_TILED),
    Example(f"(access-slice (compute reduce-sum {_X}) 1 1 3)", {"x": "m 5 k"}, wants=_TILED),
)
def slice_sinks_into_compute(a: V, x: V, lo: V, hi: V, f: V) -> Clauses:
    """slice(f(a)) = f(slice(a)), on a shape axis for every f but a product, on any axis for a pointwise one.

    Sound because f reads one item, or one element, at a time. Products are left out: their slices are the tiles.
    """
    return tuple(
        rewrite(op.slice(op.compute(f, a), x, lo, hi), op.compute(f, op.slice(a, x, lo, hi)), tiled(a), apart)
        for apart in _apart(f, a, x)
    )


@rule(
    FAMILY,
    Example(f"(compute relu (access-pad {_X} zero-padding 2 1 2))", {"x": "m n k"}),
    Example(f"(compute reduce-sum (access-pad {_X} zero-padding 1 1 2))", {"x": "m n k"}),
)
def pad_leaves_compute(a: V, x: V, before: V, after: V, f: V, d: V, s: V, item: V, n: V) -> Clauses:
    """f(pad(a)) = pad(f(a)) with zeros, for pointwise f with f(0) = 0, and for reductions on a shape axis.

    Sound because f maps the padding to zero: an element 0, or an item of zeros, whose sum, mean, maximum and minimum
    are 0. Not for softmax, which maps an item of zeros to 1/n, and not on an item that a reduction reads.
    """
    left, right = op.compute(f, padded(a, x, after, before)), padded(op.compute(f, a), x, after, before)
    whole_items = (category(f, "reduction"), s == split(a), x < s)
    no_empty_item = (d == dims(a), item == d.drop(s), n == item.product(), n > 0)
    return (
        rewrite(left, right, source(a), category(f, "pointwise"), keeps_zero(f)),
        rewrite(left, right, source(a), whole_items, no_empty_item),
    )


@rule(
    FAMILY,
    Example(f"(compute relu {ex.reshaped(_X, '6', '1 $k')})", {"x": "2 3 k"}),
    Example(f"(compute reduce-max {ex.reshaped(_X, '6', '$k')})", {"x": "2 3 k"}),
    Example(f"(compute softmax {ex.reshaped(_X, '3 2', '$k')})", {"x": "2 3 k"}),
)
def reshape_leaves_compute(a: V, shape: V, item: V, f: V, d: V, s: V, item_of_a: V) -> Clauses:
    """f(reshape(a)) = reshape(f(a)), for pointwise f; for every other f, if the reshape keeps the items.

    Sound because the same elements, or the same items, are computed in the same order.
    """
    left = op.compute(f, op.reshape(a, shape, item))
    same_items = (d == dims(a), s == split(a), item_of_a == d.drop(s), item_of_a == item)
    reshaped = op.reshape(op.compute(f, a), shape, item)
    return (
        rewrite(left, reshaped, source(a), category(f, "pointwise")),
        rewrite(left, op.reshape(op.compute(f, a), shape, vec()), source(a), category(f, "reduction"), same_items),
        rewrite(left, reshaped, source(a), category(f, "normalization"), same_items),
    )


@rule(
    FAMILY,
    Example(f"(compute relu (access-transpose {_X} (list 2 0 1)))", {"x": "m n k"}),
    Example(f"(compute reduce-max (access-transpose {_X} (list 1 0 2)))", {"x": "m n k"}),
)
def transpose_leaves_compute(a: V, p: V, f: V, s: V, shape: V, item: V, axes: V, unmoved: V) -> Clauses:
    """f(transpose(a)) = transpose(f(a)), for pointwise f; for reductions, if only shape axes are permuted.

    Sound because the same elements, or the same items, are computed; only their indices differ.
    """
    left = op.compute(f, op.transpose(a, p))
    item_stays = (
        *(s == split(a), shape == p.take(s), item == p.drop(s)),
        *(axes == vec_range(p.length), unmoved == axes.drop(s), item == unmoved),
    )
    return (
        rewrite(left, op.transpose(op.compute(f, a), p), source(a), category(f, "pointwise")),
        rewrite(left, op.transpose(op.compute(f, a), shape), source(a), category(f, "reduction"), item_stays),
    )


@rule(
    FAMILY,
    Example(f"(compute reduce-sum (access-transpose {ex.X} (list 0 2 1)))", {"x": "m n k"}),
    Example(f"(compute reduce-max {ex.reshaped(ex.X, '$m', '6')})", {"x": "m 2 3"}),
)
def reductions_ignore_order(a: V, p: V, sizes: V, item: V, f: V, d: V, s: V, shape: V, unmoved: V) -> Clauses:
    """reduce(transpose(a)) = reduce(a) and reduce(reshape(a)) = reduce(a), if only the item is rearranged.

    Sound because a sum, product, mean, maximum or minimum over the whole item does not depend on the order of its
    elements. The index of a maximum does, so argmax and argmin are left out.
    """
    any_order = (category(f, "reduction"), f != "argmax", f != "argmin")
    shape_stays = (s == split(a), shape == p.take(s), unmoved == vec_range(s), shape == unmoved)
    same_shape = (d == dims(a), s == split(a), shape == d.take(s), shape == sizes)
    return (
        rewrite(op.compute(f, op.transpose(a, p)), op.compute(f, a), any_order, shape_stays),
        rewrite(op.compute(f, op.reshape(a, sizes, item)), op.compute(f, a), any_order, same_shape),
    )


@rule(
    FAMILY,
    Example(f"(compute reduce-sum (access-concatenate {ex.X} {ex.X} 2))", {"x": "m n k"}),
    Example(f"(compute reduce-sum (access-pad {ex.X} zero-padding 2 1 2))", {"x": "m n k"}),
)
def sum_of_parts_is_a_sum(a: V, b: V, x: V, before: V, after: V, s: V) -> Clauses:
    """reduce-sum(concatenate(a, b, item axis)) = reduce-sum(a) + reduce-sum(b); of a zero pad of the item,
    reduce-sum(a).

    Sound because a sum over two parts is the sum of their sums, and zeros add nothing. Not for reduce-mean, which
    counts the zeros, and not for reduce-max, for which a zero may be the largest.
    """
    return (
        rewrite(
            op.reduce_sum(op.concatenate(a, b, x)),
            op.elementwise_add(op.product(op.reduce_sum(a), op.reduce_sum(b), s)),
            *(source(a), source(b), s == split(a), x >= s),
        ),
        rewrite(op.reduce_sum(padded(a, x, after, before)), op.reduce_sum(a), s == split(a), x >= s),
    )
