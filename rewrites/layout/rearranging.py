"""Tables that compute the parts and order of a result from those of a rearranged operand.

Throughout, an operand c is `rearrange(b; parts, order)` with dims d. Acting on axes of c means acting on parts of b,
after the parts are cut so that each lies within one axis of c (`Cut`). A table has no row for an axis whose parts are
apart in b, so that its rule does not fire there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from glenside.ir.rearrangement import Rearrangement, canonical_axes, identity, of_transpose, refined, runs_of
from glenside.ir.types import Dims
from glenside.rewrites.facts import table


@dataclass(frozen=True)
class Cut:
    """A rearrangement whose result is cut at the axes of d: `axes[a]` are the parts of axis a, numbered as in b."""

    parts: tuple[int, ...]
    order: tuple[int, ...]
    axes: tuple[tuple[int, ...], ...]

    def kind(self, split: int) -> list[bool]:
        """For each part, True if it is in the item of d."""
        item = {part for axis in self.axes[split:] for part in axis}
        return [part in item for part in range(len(self.parts))]


def _cut(r: Rearrangement, dims: Sequence[int]) -> tuple[Rearrangement, Sequence[Sequence[int]]] | None:
    """Returns a rearrangement whose result is cut at these dims, and its axes for each dim; None if it cannot be cut
    there.
    """
    sizes = refined(r.result, dims)
    fine = None if sizes is None else r.cut_result(sizes)
    runs = None if fine is None else runs_of(dims, fine.result)
    return None if fine is None or runs is None else (fine, runs)


def cut_at_axes(parts: Sequence[int], order: Sequence[int], d: Sequence[int]) -> Cut | None:
    """Returns the parts of a rearrangement, cut at the axes d of its result; None if they cannot be cut."""
    if 0 in d:
        return None
    if (found := _cut(Rearrangement(tuple(parts), tuple(order)), d)) is None:
        return None
    fine, runs = found
    return Cut(fine.parts, fine.order, tuple(tuple(fine.order[i] for i in run) for run in runs))


def canonical_pair(r: Rearrangement) -> tuple[Dims, Dims]:
    """Returns the parts and the order of the canonical form."""
    small = r.canonical()
    return Dims(small.parts), Dims(small.order)


def _still(order: Dims) -> bool:
    return len(order) <= 1


@table(parts=Dims, order=Dims)
def transposing(d: Dims, p: Dims) -> tuple[Dims, Dims] | None:
    """Returns the rearrangement that equals a transpose of dims d."""
    return None if 0 in d else canonical_pair(of_transpose(d, p))


@table(parts=Dims, order=Dims)
def composed(p: Dims, o: Dims, q: Dims, r: Dims) -> tuple[Dims, Dims] | None:
    """Returns the rearrangement (p, o) followed by (q, r)."""
    both = Rearrangement(tuple(p), tuple(o)).then(Rearrangement(tuple(q), tuple(r)))
    return None if both is None else canonical_pair(both)


@table(parts=Dims, order=Dims)
def undone(p: Dims, o: Dims) -> tuple[Dims, Dims] | None:
    """Returns the inverse of (p, o)."""
    return canonical_pair(Rearrangement(tuple(p), tuple(o)).inverse())


@table(at=int, parts=Dims, after=Dims, order=Dims)
def one_axis(p: Dims, o: Dims, d: Dims, axis: int, size: int) -> tuple[int, Dims, Dims, Dims] | None:
    """Returns parts of b such that part `at` is the given axis of c, and the parts after that axis has changed its
    size.
    """
    cut = None if _still(o) else cut_at_axes(p, o, d)
    if cut is None or len(cut.axes[axis]) > 1:
        return None
    if cut.axes[axis]:
        parts, order, at = list(cut.parts), cut.order, cut.axes[axis][0]
    else:
        parts, wide, places = _with_ones(cut, [axis])
        order, at = tuple(wide), places[axis]
    after = [size if part == at else n for part, n in enumerate(parts)]
    return at, Dims(parts), *canonical_pair(Rearrangement(tuple(after), order))


def _with_ones(cut: Cut, axes: Sequence[int]) -> tuple[list[int], list[int], dict[int, int]]:
    """Returns the parts with another of size 1 for each of these axes, which have none, and their positions.

    Each new part follows the part before it in the result, except that the last one stays last: the mean of each pixel
    is repeated along its channels in every order of the pixels, and not between two of their coordinates.
    """
    keys: list[tuple[int, int]] = [(part, 0) for part in range(len(cut.parts))]
    ordered: list[tuple[int, int]] = []
    last = max((axis for axis, run in enumerate(cut.axes) if run), default=-1)
    for axis, run in enumerate(cut.axes):
        if axis in axes:
            before = ordered[-1] if ordered else (-1, 0)
            if axis > last >= 0:
                before = max(keys[-1], before)
            new = (before[0], before[1] + 1)
            keys.append(new)
            ordered.append(new)
        else:
            ordered += [(part, 0) for part in run]
    keys.sort()
    place = {key: i for i, key in enumerate(keys)}
    sizes = [cut.parts[key[0]] if key[1] == 0 else 1 for key in keys]
    order = [place[key] for key in ordered]
    at: dict[int, int] = {}
    i = 0
    for axis, run in enumerate(cut.axes):
        if axis in axes:
            at[axis] = order[i]
            i += 1
        else:
            i += len(run)
    return sizes, order, at


@table(parts=Dims, axes=Dims)
def places_before(p: Dims, o: Dims, u: Dims, v: Dims) -> tuple[Dims, Dims] | None:
    """Returns the parts and axes of b that precede those of (p, o), along the axes v of the parts u of b."""
    if not v:
        return u, v
    if (found := _cut(Rearrangement(tuple(p), tuple(o)), u)) is None:
        return None
    fine, runs = found
    parts, axes = canonical_axes(fine.parts, [fine.order[i] for axis in v for i in runs[axis]])
    return Dims(parts), Dims(axes)


@table(ones=Dims, parts=Dims, after=Dims, order=Dims)
def broadcasting(p: Dims, o: Dims, d: Dims, wide: Dims) -> tuple[Dims, Dims, Dims, Dims] | None:
    """Repeats c to `wide`: returns the dims of b with parts of size 1, the dims with these parts repeated, and the
    rearrangement to the result.
    """
    if _still(o) or 0 in wide:
        return None
    cut = cut_at_axes(p, o, d)
    repeated = [axis for axis, (have, want) in enumerate(zip(d, wide, strict=True)) if have != want]
    if cut is None or any(cut.axes[axis] for axis in repeated):
        return None
    ones, order, places = _with_ones(cut, repeated)
    parts = list(ones)
    for axis, place in places.items():
        parts[place] = wide[axis]
    return Dims(ones), Dims(parts), *canonical_pair(Rearrangement(tuple(parts), tuple(order)))


@table(parts=Dims, order=Dims, small=Dims, large=Dims)
def before_broadcast(p: Dims, o: Dims, narrow: Dims, wide: Dims) -> tuple[Dims, Dims, Dims, Dims] | None:
    """Moves (p, o) before a broadcast(z: narrow -> wide): the rearrangement of z, and the dims it is repeated from and
    to.

    In the fewest dims, so that equal terms have one form; None if it already has this form.
    """
    if 0 in wide:
        return None
    sizes = refined(p, wide)
    fine = None if sizes is None else Rearrangement(tuple(p), tuple(o)).cut_parts(sizes)
    runs = None if fine is None else runs_of(wide, fine.parts)
    if fine is None or runs is None:
        return None
    own = list(fine.parts)
    for axis, run in enumerate(runs):
        for part in run:
            own[part] = own[part] if narrow[axis] == wide[axis] else 1
    moved = canonical_pair(Rearrangement(tuple(own), fine.order))
    small, large = _fewest([own[i] for i in fine.order], list(fine.result))
    if _still(o) and (small, large) == (narrow, wide):
        return None
    return *moved, small, large


def _fewest(narrow: Sequence[int], wide: Sequence[int]) -> tuple[Dims, Dims]:
    """Returns a broadcast in the fewest dims: adjacent repeated axes are merged, and so are adjacent axes that are
    not.
    """
    small, large = [1], [1]
    for few, many in zip(narrow, wide, strict=True):
        if many == 1:
            continue
        if large != [1] and (few == many) != (small[-1] == large[-1]):
            small.append(1)
            large.append(1)
        small[-1] *= few
        large[-1] *= many
    return Dims(small), Dims(large)


@table(parts=Dims, other_parts=Dims, other_order=Dims, other=Dims, at=int, after=Dims, order=Dims)
def concatenating(
    p: Dims, o: Dims, d: Dims, e: Dims, axis: int
) -> tuple[Dims, Dims, Dims, Dims, int, Dims, Dims] | None:
    """Returns how to rearrange the other operand, of dims e, to match b along part `at`, and the parts of the
    result.
    """
    if _still(o) or 0 in e:
        return None
    cut = cut_at_axes(p, o, d)
    if cut is None or len(cut.axes[axis]) != 1:
        return None
    (at,) = cut.axes[axis]
    other, both = list(cut.parts), list(cut.parts)
    other[at], both[at] = e[axis], d[axis] + e[axis]
    back = canonical_pair(Rearrangement(tuple(other), cut.order).inverse())
    return Dims(cut.parts), *back, Dims(other), at, *canonical_pair(Rearrangement(tuple(both), cut.order))


@table(parts=Dims, window=Dims, strides=Dims, after=Dims, order=Dims)
def windowing(p: Dims, o: Dims, d: Dims, split: int, k: Dims, t: Dims) -> tuple[Dims, Dims, Dims, Dims, Dims] | None:
    """Returns windows(c; k, t) as windows of the parts of b, and their rearrangement: all counts, then all windows."""
    if _still(o):
        return None
    cut = cut_at_axes(p, o, d)
    if cut is None:
        return None
    window, strides = [1] * len(cut.parts), [1] * len(cut.parts)
    for axis, run in enumerate(cut.axes[split:]):
        if k[axis] == d[split + axis]:
            for part in run:
                window[part] = cut.parts[part]
        elif (k[axis], t[axis]) != (1, 1):
            if len(run) != 1:
                return None
            window[run[0]], strides[run[0]] = k[axis], t[axis]
    counts = [(n - w) // s + 1 for n, w, s in zip(cut.parts, window, strides, strict=True)]
    rank, item = len(cut.parts), cut.kind(split)
    inside = [rank + part for part in cut.order if item[part]]
    outside = [rank + part for part in cut.order if not item[part]]
    after, order = canonical_pair(Rearrangement((*counts, *window), (*cut.order, *inside, *outside)))
    return Dims(cut.parts), Dims(window), Dims(strides), after, order


@table(shape=Dims, item=Dims, parts=Dims, order=Dims)
def reducing(p: Dims, o: Dims, d: Dims, split: int) -> tuple[Dims, Dims, Dims, Dims] | None:
    """Returns the item of c as the last parts of b, if they are equal, and the order of the other parts."""
    found = None if _still(o) else _apart(p, o, d, split)
    if found is None:
        return None
    cut, item = found
    if item != sorted(item):
        return None
    shape = Dims(n for n, inside in zip(cut.parts, item, strict=True) if not inside)
    return shape, Dims(cut.parts[len(shape) :]), *canonical_pair(_of_shape(cut, item))


@table(whole=Dims, window=Dims, strides=Dims, parts=Dims, order=Dims)
def reducing_windows(p: Dims, o: Dims, d: Dims, split: int) -> tuple[Dims, Dims, Dims, Dims, Dims] | None:
    """Returns the item of c as one window of b that spans its parts, if they are not the last ones."""
    found = None if _still(o) else _apart(p, o, d, split)
    if found is None:
        return None
    cut, item = found
    if item == sorted(item):
        return None
    window = Dims(n if inside else 1 for n, inside in zip(cut.parts, item, strict=True))
    return Dims(cut.parts), window, Dims(1 for _ in window), *canonical_pair(_of_shape(cut, item))


def _apart(p: Dims, o: Dims, d: Dims, split: int) -> tuple[Cut, list[bool]] | None:
    """Returns the parts, cut where the item of c begins, and which of them are in it."""
    cut = cut_at_axes(p, o, (math.prod(d[:split]), math.prod(d[split:])))
    return None if cut is None else (cut, cut.kind(1))


def _of_shape(cut: Cut, item: Sequence[bool]) -> Rearrangement:
    """Returns the order of the parts outside of the item, numbered without those in it."""
    kept = [part for part, inside in enumerate(item) if not inside]
    place = {part: i for i, part in enumerate(kept)}
    order = tuple(place[part] for part in cut.order if not item[part])
    return Rearrangement(tuple(cut.parts[part] for part in kept), order) if kept else identity(1)


@table(shape=Dims, item=Dims)
def normalizing(p: Dims, o: Dims, d: Dims, split: int) -> tuple[Dims, Dims] | None:
    """Returns the item of c as the last parts of b, if it is those, in any order: a reduction ignores the order."""
    found = reducing.function(p, o, d, split)
    return None if found is None else (found[0], found[1])


@table(narrow=Dims, wide=Dims, size=int)
def weight_scale(few: Dims, many: Dims, dd: Dims, sa: int, n: int, db: Dims, sb: int) -> tuple[Dims, Dims, int] | None:
    """Returns a scale of the results of a product, repeated from `few` to `many`, as a scale of the weights, of dims
    db.

    None if it differs between rows of the other operand. One number is the same in any shape.
    """
    few, many = (Dims((1,)), Dims((math.prod(dd),))) if math.prod(few) == 1 else (few, many)
    sizes = refined(many, dd) if 0 not in (*many, *dd, *db) else None
    of_scale, of_product = (None, None) if sizes is None else (runs_of(many, sizes), runs_of(dd, sizes))
    if sizes is None or of_scale is None or of_product is None:
        return None
    kept = [few[axis] == many[axis] for axis, run in enumerate(of_scale) for _ in run]
    if any(kept[part] for run in of_product[n:sa] for part in run):
        return None
    own = [part for run in (*of_product[:n], *of_product[sa:]) for part in run]
    narrow = (*(sizes[part] if kept[part] else 1 for part in own), *(1 for _ in db[sb:]))
    return Dims(narrow), Dims((*(sizes[part] for part in own), *db[sb:])), math.prod(narrow)
