"""The same elements in other places, in the words of adjoints: whole tensors, ()(dims), where nothing is left to undo.

Numbers are folded, and what is taken from where it was just put is what was put: adjoints of slices and pads meet their
own kind.
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
    """x as one item."""
    while x.operator.name in ("access", "access-shift-right"):
        x = x.children[0]
    return layout.split_at(x, 0)


def at(x: Term, split: int) -> Term:
    """x with its first `split` axes as the shape."""
    return layout.split_at(whole(x), split) if x.access.split != split else x


def number(x: Term) -> Fraction | None:
    """The number that a term is everywhere; None where it is more than one, or not known."""
    while x.operator.moves and len(x.children) == 1 and x.operator.name not in ("access-pad", "access-dilate"):
        if x.operator.index_map is None:
            return None
        x = x.children[0]
    if x.operator.name == "full":
        return exact(str(x.attributes[1]))
    return exact(str(x.attributes[0])) if x.operator.name == "access-literal" else None


def full(dims: Sequence[int], value: object, dtype: str) -> Term:
    """One number everywhere."""
    return build("full", dims, value, dtype)


def filled(x: Term, value: object) -> Term:
    """One number in the dims of x."""
    return full(x.access.dims, value, x.access.dtype)


def iota(n: int, dtype: str) -> Term:
    """0 to n - 1."""
    return build("iota", n, dtype)


def cast(x: Term, dtype: str) -> Term:
    """x in another dtype."""
    return pointwise.cast(whole(x), dtype)


def reshape(x: Term, dims: Sequence[int]) -> Term:
    """x in row-major order under other dims; a reshape of a reshape is one."""
    x = whole(x)
    if x.access.dims == tuple(dims):
        return x
    if x.operator.name == "full":
        return full(dims, x.attributes[1], x.access.dtype)
    while x.operator.name in ("access-reshape", "access-flatten", "access-insert-axis", "access-squeeze"):
        x = whole(x.children[0])
    return layout.reshape(x, dims)


def transpose(x: Term, order: Sequence[int]) -> Term:
    """Axis i of the result is axis order[i] of x."""
    x = whole(x)
    dims = x.access.dims
    if x.operator.name == "full":
        return full(dims.permute(order), x.attributes[1], x.access.dtype)
    moved = [axis for axis in order if dims[axis] != 1]
    return layout.transpose(x, order) if moved != sorted(moved) else reshape(x, dims.permute(order))


def untransposed(x: Term, order: Sequence[int]) -> Term:
    """What transpose(.., order) gave, with the axes where they were before."""
    return transpose(x, sorted(range(len(order)), key=list(order).__getitem__))


def broadcast(x: Term, dims: Sequence[int]) -> Term:
    """x repeated along axes of size 1, to dims of as many axes."""
    x = whole(x)
    return full(dims, x.attributes[1], x.access.dtype) if x.operator.name == "full" else layout.broadcast(x, dims)


def slice(x: Term, axis: int, lo: int, hi: int) -> Term:
    """Elements lo to hi - 1 of one axis: of what was put together there, the part."""
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
    return _of_sums(x, axis, lo, hi) or layout.slice_axis(x, axis, lo, hi)


def _of_sums(x: Term, axis: int, lo: int, hi: int) -> Term | None:
    """The same of windows that are added up, cut where that is done, wherever they were moved since: so that whoever
    adds them up sees what is kept. None where x is nothing of the kind.
    """
    operator, dims = x.operator.name, x.access.dims
    if operator == "access-overlap-add":
        return layout.slice_axis(x, axis, lo, hi)
    if operator not in ("access", "access-slice", "access-transpose", "access-reshape"):
        return None
    below = x.children[0]
    if operator == "access-transpose":
        (order,) = (a for a in x.attributes if isinstance(a, Dims))
        cut = _of_sums(below, order[axis], lo, hi)
        return None if cut is None else transpose(cut, order)
    if operator == "access-reshape":
        sizes, own = below.access.dims, (dims[axis], dims.drop(axis + 1).product())
        same = [i for i, size in enumerate(sizes) if (size, sizes.drop(i + 1).product()) == own]
        cut = _of_sums(below, same[0], lo, hi) if len(same) == 1 else None
        return None if cut is None else reshape(cut, dims.set(axis, hi - lo))
    cut = _of_sums(below, axis, lo, hi)
    if cut is None or operator == "access":
        return None if cut is None else whole(cut)
    return layout.slice_axis(x, axis, lo, hi)


def element(x: Term, axis: int, position: int) -> Term:
    """One element of one axis, without that axis."""
    return reshape(slice(x, axis, position, position + 1), x.access.dims.remove(axis))


def pad(x: Term, axis: int, before: int, after: int) -> Term:
    """Zeros before and after along one axis."""
    return layout.pad(whole(x), [(before, after) if i == axis else (0, 0) for i in range(x.access.rank)])


def pad_or_crop(x: Term, padding: Sequence[tuple[int, int]]) -> Term:
    """Zeros on each axis, or less of it where a number is below 0."""
    return layout.pad_or_crop(whole(x), padding)


def flip(x: Term, axis: int) -> Term:
    """One axis in reverse order."""
    return layout.flip(whole(x), axis)


def strided(x: Term, steps: Sequence[int]) -> Term:
    """Every step-th element of each axis."""
    return layout.strided(whole(x), steps)


def windows(x: Term, window: Sequence[int], strides: Sequence[int]) -> Term:
    """Every window of the item, (S)(I) -> ()(S counts window)."""
    return whole(build("access-windows", x, window, strides)) if len(window) else whole(x)


def dilated_windows(x: Term, window: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Term:
    """The same with `dilations` from one element of a window to the next."""
    return whole(windowing.windows(x, window, strides, dilations))


def overlap_add(x: Term, out: Sequence[int], strides: Sequence[int]) -> Term:
    """Every window added where it came from, (S counts)(window) -> ()(S out).

    Axes with one window, which is all of them, as channels are, have nothing to add: they stand beside S.
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
    """A constant matrix times one axis."""
    return build("linear-map", whole(x), axis, rows, coefficients)


def gather_nd(x: Term, indices: Term, shared: int) -> Term:
    """Elements at computed places."""
    return build("access-gather-nd", whole(x), whole(indices), shared)


def scatter_nd(x: Term, indices: Term, updates: Term, shared: int, reduction: str) -> Term:
    """x with updates at computed places."""
    return build("access-scatter-nd", whole(x), whole(indices), whole(updates), shared, reduction)


def stack(found: Sequence[Term], axis: int) -> Term:
    """Terms of equal dims along a new axis."""
    return layout.concatenate([reshape(part, part.access.dims.insert(axis, 1)) for part in found], axis)
