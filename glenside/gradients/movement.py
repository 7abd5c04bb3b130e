"""Builds movement terms of adjoints, of whole tensors ()(dims), simplified where possible.

Numbers are folded, and a slice of a pad or of a concatenation is its operand, since adjoints of slices and pads meet
such terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from glenside.builder import layout, pointwise
from glenside.builder import windows as windowing
from glenside.ir.rational import exact
from glenside.ir.term import Term, build
from glenside.ir.types import Dims


def whole(x: Term) -> Term:
    """Returns x as one item."""
    while x.operator.name in ("access", "access-shift-right"):
        x = x.children[0]
    return layout.split_at(x, 0)


def at(x: Term, split: int) -> Term:
    """Returns x with its first `split` axes as the shape."""
    return layout.split_at(whole(x), split) if x.access.split != split else x


def number(x: Term) -> Fraction | None:
    """Returns the number that a term repeats everywhere, or None."""
    while x.operator.moves and len(x.children) == 1 and x.operator.name not in ("access-pad", "access-dilate"):
        if x.operator.index_map is None:
            return None
        x = x.children[0]
    if x.operator.name == "full":
        return exact(str(x.attributes[1]))
    return exact(str(x.attributes[0])) if x.operator.name == "access-literal" else None


def full(dims: Sequence[int], value: object, dtype: str) -> Term:
    """Returns one repeated number."""
    return build("full", dims, value, dtype)


def filled(x: Term, value: object) -> Term:
    """Returns one number in the dims of x."""
    return full(x.access.dims, value, x.access.dtype)


def iota(n: int, dtype: str) -> Term:
    """Returns 0 to n - 1."""
    return build("iota", n, dtype)


def cast(x: Term, dtype: str) -> Term:
    """Casts x to another dtype."""
    return pointwise.cast(whole(x), dtype)


def reshape(x: Term, dims: Sequence[int]) -> Term:
    """Reshapes x in row-major order; a reshape of a reshape is one."""
    x = whole(x)
    if x.access.dims == tuple(dims):
        return x
    if x.operator.name == "full":
        return full(dims, x.attributes[1], x.access.dtype)
    while x.operator.name in ("access-reshape", "access-flatten", "access-insert-axis", "access-squeeze"):
        x = whole(x.children[0])
    return layout.reshape(x, dims)


def transpose(x: Term, order: Sequence[int]) -> Term:
    """Transposes x: axis i of the result is axis order[i]."""
    x = whole(x)
    dims = x.access.dims
    if x.operator.name == "full":
        return full(dims.permute(order), x.attributes[1], x.access.dtype)
    moved = [axis for axis in order if dims[axis] != 1]
    return layout.transpose(x, order) if moved != sorted(moved) else reshape(x, dims.permute(order))


def untransposed(x: Term, order: Sequence[int]) -> Term:
    """Inverts transpose(.., order)."""
    return transpose(x, sorted(range(len(order)), key=list(order).__getitem__))


def broadcast(x: Term, dims: Sequence[int]) -> Term:
    """Repeats x along axes of size 1, to dims of as many axes."""
    x = whole(x)
    return full(dims, x.attributes[1], x.access.dtype) if x.operator.name == "full" else layout.broadcast(x, dims)


def slice(x: Term, axis: int, lo: int, hi: int) -> Term:
    """Returns elements lo to hi - 1 of one axis; for a slice that is an operand of a
    concatenation, the operand itself.
    """
    x = whole(x)
    while (lo, hi) != (0, x.access.dims[axis]):
        operator, attributes = x.operator.name, x.attributes
        if operator == "access-concatenate" and attributes == (axis,):
            a, b = x.children
            first = a.access.dims[axis]
            if lo < first < hi:
                break
            x, lo, hi = (whole(a), lo, hi) if hi <= first else (whole(b), lo - first, hi - first)
        elif operator == "access-pad" and attributes[1] == axis:
            before, (inner,) = int(str(attributes[2])), x.children
            if lo < before or before + inner.access.dims[axis] < hi:
                break
            x, lo, hi = whole(inner), lo - before, hi - before
        elif operator == "full":
            return full(x.access.dims.set(axis, hi - lo), attributes[1], x.access.dtype)
        else:
            break
    return _slice_of_overlap_add(x, axis, lo, hi) or layout.slice_axis(x, axis, lo, hi)


def _slice_of_overlap_add(x: Term, axis: int, lo: int, hi: int) -> Term | None:
    """Slices windows that are added up at the sum, below any movement since; None for other terms.

    The term that adds up windows then shows which part is kept.
    """
    operator, dims = x.operator.name, x.access.dims
    if operator == "access-overlap-add":
        return layout.slice_axis(x, axis, lo, hi)
    if operator not in ("access", "access-slice", "access-transpose", "access-reshape"):
        return None
    below = x.children[0]
    if operator == "access-transpose":
        (order,) = (a for a in x.attributes if isinstance(a, Dims))
        cut = _slice_of_overlap_add(below, order[axis], lo, hi)
        return None if cut is None else transpose(cut, order)
    if operator == "access-reshape":
        sizes, own = below.access.dims, (dims[axis], dims.drop(axis + 1).product())
        same = [i for i, size in enumerate(sizes) if (size, sizes.drop(i + 1).product()) == own]
        cut = _slice_of_overlap_add(below, same[0], lo, hi) if len(same) == 1 else None
        return None if cut is None else reshape(cut, dims.set(axis, hi - lo))
    cut = _slice_of_overlap_add(below, axis, lo, hi)
    if cut is None or operator == "access":
        return None if cut is None else whole(cut)
    return layout.slice_axis(x, axis, lo, hi)


def element(x: Term, axis: int, position: int) -> Term:
    """Selects one element of one axis, and drops the axis."""
    return reshape(slice(x, axis, position, position + 1), x.access.dims.remove(axis))


def pad(x: Term, axis: int, before: int, after: int) -> Term:
    """Pads one axis with zeros before and after."""
    return layout.pad(whole(x), [(before, after) if i == axis else (0, 0) for i in range(x.access.rank)])


def pad_or_crop(x: Term, padding: Sequence[tuple[int, int]]) -> Term:
    """Pads each axis with zeros, or crops it if a number is negative."""
    return layout.pad_or_crop(whole(x), padding)


def flip(x: Term, axis: int) -> Term:
    """Reverses one axis."""
    return layout.flip(whole(x), axis)


def strided(x: Term, steps: Sequence[int]) -> Term:
    """Returns every step-th element of each axis."""
    return layout.strided(whole(x), steps)


def windows(x: Term, window: Sequence[int], strides: Sequence[int]) -> Term:
    """Returns every window of the item, (S)(I) -> ()(S counts window)."""
    return whole(build("access-windows", x, window, strides)) if len(window) else whole(x)


def dilated_windows(x: Term, window: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Term:
    """Returns dilated windows, with `dilations` from one element of a window to the next."""
    return whole(windowing.windows(x, window, strides, dilations))


def overlap_add(x: Term, out: Sequence[int], strides: Sequence[int]) -> Term:
    """Adds windows at their origin, (S counts)(window) -> ()(S out).

    Axes with a single full window, such as channels, add nothing up: they are moved to S.
    """
    n, shape, item = len(out), x.access.shape, x.access.item
    first = len(shape) - n
    alone = [i for i in range(n) if shape[first + i] == 1 and item[i] == out[i]]
    added = [i for i in range(n) if i not in alone]
    if not alone:
        return whole(build("access-overlap-add", x, out, strides)) if n else whole(x)
    lead, counts = [*range(first)], [*range(first, first + len(added))]
    windows = range(first + len(added), first + len(added) + n)
    x = reshape(x, (*shape[:first], *(shape[first + i] for i in added), *item))
    x = transpose(x, [*lead, *(windows[i] for i in alone), *counts, *(windows[i] for i in added)])
    if added:
        own = at(x, first + n)
        x = build("access-overlap-add", own, [out[i] for i in added], [strides[i] for i in added])
    order = [*alone, *added]
    return transpose(x, [*lead, *(first + order.index(i) for i in range(n))])


def linear_map(x: Term, axis: int, rows: int, coefficients: str) -> Term:
    """Multiplies one axis by a constant matrix."""
    return build("linear-map", whole(x), axis, rows, coefficients)


def gather_nd(x: Term, indices: Term, shared: int) -> Term:
    """Gathers elements at computed indices."""
    return build("access-gather-nd", whole(x), whole(indices), shared)


def scatter_nd(x: Term, indices: Term, updates: Term, shared: int, reduction: str) -> Term:
    """Scatters updates into x at computed indices."""
    return build("access-scatter-nd", whole(x), whole(indices), whole(updates), shared, reduction)


def stack(found: Sequence[Term], axis: int) -> Term:
    """Stacks terms of equal dims along a new axis."""
    return layout.concatenate([reshape(part, part.access.dims.insert(axis, 1)) for part in found], axis)
