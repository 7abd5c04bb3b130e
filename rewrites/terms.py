"""Variables, vectors, and the terms and facts that several rules share."""

from __future__ import annotations

from typing import Any

from glenside.egraph.pattern import Variable, gcd, variables, vec, vec_range
from glenside.rewrites import operators as op
from glenside.rewrites.declare import ROOT, Facts, V
from glenside.rewrites.facts import dims, split

__all__ = ["Variable", "ceil_div", "diagonal", "dot", "gcd", "is_dot", "padded", "rearranged", "reshaped", "sided"]
__all__ += ["sized", "transposed", "under", "variables", "vec", "vec_range", "whole"]


def dot(a: Any, b: Any, shared: Any = 1) -> Any:
    """Returns the dot product of the items of a and b."""
    return op.dot_product(op.product(a, b, shared))


def is_dot(a: V, b: V, n: V) -> Facts:
    """Matches root as the product of a and b."""
    return (ROOT == dot(a, b, n),)


def sided(x: V, dx: V, sx: V) -> Facts:
    """Matches the dims of x and their split."""
    return dx == dims(x), sx == split(x)


def sized(a: V, b: V, n: V, g: V, m: V, k: V, o: V) -> Facts:
    """Matches root as the product of a and b: g shared, m rows of a, o rows of b, items of k; no size is 0."""
    da, sa, db, sb, pa, pb = variables("da sa db sb pa pb")
    return (
        is_dot(a, b, n),
        sided(a, da, sa),
        sided(b, db, sb),
        pa == da.prefixes(),
        pb == db.prefixes(),
        g == pa[n],
        m == pa[sa] // g,
        k == pa[da.length] // pa[sa],
        o == pb[sb] // g,
    )


def reshaped(x: Any, sizes: Any, split: Any) -> Any:
    """Returns x in row-major order with the dims `sizes`, a vector, of which the first `split` are the shape."""
    return op.access(op.reshape(op.access(x, 0), vec(), sizes), split)


def transposed(x: Any, *order: Any) -> Any:
    """Reorders axes: axis i of the result is axis order[i] of x."""
    return op.transpose(x, vec(*order))


def padded(x: Any, axis: Any, after: Any, before: Any = 0) -> Any:
    """Returns x with zeros at the ends of one axis."""
    return op.pad(x, "zero-padding", axis, before, after)


def diagonal(blocks: Any, g: Any, p: Any, o: Any, k: Any) -> Any:
    """Returns matrices (g, p o)(p k) with the blocks ()(g p o k) on their diagonals and zeros elsewhere.

    p zeros between neighbours put block i at index i (p + 1) of p p: row i, column i of p x p blocks.
    """
    apart = reshaped(op.dilate(op.access(blocks, 0), 1, p), vec(g, p, p, o, k), 0)
    return reshaped(transposed(apart, 0, 1, 3, 2, 4), vec(g, p * o, p * k), 2)


def ceil_div(a: V, b: V | int) -> V:
    """Returns a / b, rounded up."""
    return (a + (b - 1)) // b


def rearranged(x: Any, parts: Any, order: Any, shape: Any, item: Any) -> Any:
    """Returns the elements of x, cut into parts, in that order of the parts, as (shape)(item)."""
    return op.rearrange(x, parts, order, shape, item)


def under(x: Any, size: Any, shape: Any, item: Any = ()) -> Any:
    """Returns x, which has that many elements, as (shape)(item), in the same order."""
    return rearranged(x, vec(size), vec(0), shape, item)


def whole(x: Any, size: Any, dims: Any) -> Any:
    """Returns x, which has that many elements, as ()(dims)."""
    return under(x, size, vec(), dims)
