"""Describes how a unit addresses a product: the layouts of its operands and of its result in memory.

A unit reads operands and stores results through affine addresses, as far as its target allows: `NONE`, those that keep
`RUNS` of neighbors contiguous, or `ALL`. It may require a certain axis to be innermost in memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from glenside.ir.rearrangement import Rearrangement, refined, runs_of
from glenside.ir.types import Dims
from glenside.rewrites.facts import table
from glenside.rewrites.layout.rearranging import canonical_pair, cut_at_axes

ANY, CHANNELS_LAST, CHANNELS_FIRST = 0, 1, 2
"""The axis that a unit requires innermost in memory; 4 and above are blocks of that many channels."""
NONE, RUNS, ALL = 0, 1, 2
"""The addresses that cost nothing."""


@dataclass(frozen=True)
class _Operand:
    """An operand cut into parts, numbered in memory order: those of shared axes, of its own rows, and of its item."""

    parts: tuple[int, ...]
    shared: tuple[int, ...]
    rows: tuple[int, ...]
    item: tuple[int, ...]

    def sizes(self, which: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.parts[i] for i in which)


def _operand(
    p: Sequence[int], o: Sequence[int], shared: Sequence[int], rows: int, item: Sequence[int]
) -> _Operand | None:
    cut = cut_at_axes(p, o, (*shared, rows, *item))
    if cut is None:
        return None
    n = len(shared)
    together = [tuple(part for axis in axes for part in axis) for axes in (cut.axes[:n], cut.axes[n + 1 :])]
    return _Operand(cut.parts, together[0], cut.axes[n], together[1])


def _cut_alike(
    p: Sequence[int], o: Sequence[int], da: Dims, sa: int, q: Dims, r: Dims, db: Dims, sb: int, n: int
) -> tuple[_Operand, _Operand] | None:
    """Cuts both operands so that their shared parts and their items are cut equally."""
    shared: tuple[int, ...] = tuple(da[:n])
    item: tuple[int, ...] = (math.prod(da[sa:]),)
    for _ in range(3):  # each pass cuts both as finely as either was; after three they are equal
        a = _operand(p, o, shared, math.prod(da[n:sa]), item)
        b = _operand(q, r, shared, math.prod(db[n:sb]), item)
        if a is None or b is None:
            return None
        pairs = [(a.sizes(a.shared), b.sizes(b.shared)), (a.sizes(a.item), b.sizes(b.item))]
        if all(x == y for x, y in pairs):
            return a, b
        finer = [refined(x, y) for x, y in pairs]
        if finer[0] is None or finer[1] is None:
            return None
        shared, item = finer[0], finer[1]
    return None


def _accepts(layout: int, a: _Operand, held: Dims, axis: int, windowed: bool) -> bool:
    """True if the layout has the right part innermost: the last one of that axis of the tensor in memory."""
    runs = runs_of(held, a.parts)
    if layout == ANY or runs is None:
        return layout == ANY
    large = [part for part in runs[axis] if a.parts[part] != 1] if runs else []  # a size of 1 has no axis
    if not large or (layout == CHANNELS_FIRST and not windowed):
        return True
    if layout == CHANNELS_FIRST:
        return large[-1] in a.rows
    return large[-1] not in a.rows and (layout == CHANNELS_LAST or a.parts[large[-1]] == layout)


def _free(order: Sequence[int], level: int) -> bool:
    """True if reading or storing in that order costs nothing."""
    still = list(order) == sorted(order)
    return still or level == ALL or (level == RUNS and order[-1] == len(order) - 1)


@table(axis=int)
def innermost(window: Dims, dims: Dims) -> tuple[int] | None:
    """Returns the axis of windows over a tensor that is innermost in memory: the last of the windows, or of their
    counts.
    """
    if not window or window[-1] != dims[-1]:
        return (len(dims) - 1,)
    return (len(dims) + len(window) - 1,)


@table(
    a_parts=Dims, a_order=Dims, a_split=int, b_parts=Dims, b_order=Dims, b_split=int,
    shared=int, stored=Dims, parts=Dims, order=Dims, fixed_parts=Dims, fixed_order=Dims,
)  # fmt: skip
def unit(
    p: Dims, o: Dims, da: Dims, sa: int, q: Dims, r: Dims, db: Dims, sb: int, n: int,
    held: Dims, axis: int, windowed: int, layout: int, loads: int, stores: int, fixed: int,
) -> tuple[Dims, Dims, int, Dims, Dims, int, int, Dims, Dims, Dims, Dims, Dims] | None:  # fmt: skip
    """Describes how a unit reads the operands of a product, the parts of its result, and how they become the product.

    Rows and items are read in memory order, which is given by `held`, with `axis` innermost. Rows are stored in that
    order too, unless all addresses are free: then they are stored in the order of the product itself, since the memory
    order of a would only add more layouts of later terms. A fixed operand b is rearranged at compile time into the
    order in which it is read.
    """
    if 0 in da or 0 in db:
        return None
    sizes = refined(p, held)
    fine = None if sizes is None else Rearrangement(tuple(p), tuple(o)).cut_parts(sizes)
    found = None if fine is None else _cut_alike(fine.parts, fine.order, da, sa, q, r, db, sb, n)
    if found is None:
        return None
    a, b = found
    place = sorted(range(len(a.item)), key=a.item.__getitem__)
    rows = list(a.rows) if loads == stores == ALL else sorted(a.rows)
    a_order = [*a.shared, *rows, *(a.item[i] for i in place)]
    b_order = [*b.shared, *b.rows, *(b.item[i] for i in place)]
    free = _free(a_order, loads) and (fixed or _free(b_order, loads))
    if not free or not _accepts(layout, a, held, axis, bool(windowed)):
        return None
    stored = (*a.sizes(a.shared), *a.sizes(rows), *b.sizes(b.rows)) or (1,)
    count, split = len(a.shared), len(a.shared) + len(rows)
    logical = [*range(count), *(count + rows.index(part) for part in a.rows), *range(split, len(stored))]
    parts, order = canonical_pair(Rearrangement(stored, tuple(logical)))
    left, right = (Dims(a.parts), Dims(a_order)), (Dims(b.parts), Dims(b_order))
    beforehand = canonical_pair(Rearrangement(b.parts, tuple(b_order)))
    return *left, split, *right, count + len(b.rows), count, Dims(stored), parts, order, *beforehand


@table(b_parts=Dims, b_order=Dims, split=int, moved_parts=Dims, moved_order=Dims, parts=Dims, order=Dims)
def storing(
    a_sizes: Dims, b_sizes: Dims, b_split: int, n: int, sp: Dims, so: Dims, p: Dims, o: Dims, stores: int
) -> tuple[Dims, Dims, int, Dims, Dims, Dims, Dims] | None:
    """Describes how a unit stores (p, o) of its result itself, with the rows of b rearranged beforehand.

    a_sizes are the sizes of the result that come from a; b_sizes are all sizes of b in the order in which it is read.
    """
    whole = Rearrangement(tuple(sp), tuple(so)).then(Rearrangement(tuple(p), tuple(o)))
    result = (*a_sizes, *b_sizes[n:b_split])
    sizes = None if whole is None else refined(whole.parts, result)
    fine = None if whole is None or sizes is None else whole.cut_parts(sizes)
    runs = None if fine is None else runs_of(result, fine.parts)
    if fine is None or runs is None:
        return None
    own = [part for run in runs[len(a_sizes) :] for part in run]
    wanted = [part for part in fine.order if part in own]
    before = len(fine.parts) - len(own)
    place = {part: i for i, part in enumerate([*range(before), *wanted])}
    order = [place[part] for part in fine.order]
    if not _free(order, stores):
        return None
    rows = [fine.parts[part] for part in own]
    shared, item = b_sizes[:n], b_sizes[b_split:]
    turned = [n + part - before for part in wanted]
    moved = (*range(n), *turned, *range(n + len(own), n + len(own) + len(item)))
    b_parts = [*shared, *rows, *item]
    parts = [*fine.parts[:before], *(fine.parts[part] for part in wanted)]
    read = Dims(b_parts[i] for i in moved)
    moved_pair = canonical_pair(Rearrangement(tuple(b_parts), tuple(moved)))
    return (
        read,
        Dims(range(len(read))),
        n + len(own),
        *moved_pair,
        *canonical_pair(Rearrangement(tuple(parts), tuple(order))),
    )


@table(parts=Dims, order=Dims, sizes=Dims)
def in_layout(d: Dims, layout: int) -> tuple[Dims, Dims, Dims] | None:
    """Returns dims d in a layout; axis 1 has the channels, or the last axis if the layout has channels first."""
    if layout == ANY or len(d) < 3 or 0 in d:
        return None
    sizes, order = tuple(d), (0, *range(2, len(d)), 1)
    if layout == CHANNELS_FIRST:
        order = (0, len(d) - 1, *range(1, len(d) - 1))
    elif layout != CHANNELS_LAST:
        if d[1] % layout:
            return None
        sizes, order = (d[0], d[1] // layout, layout, *d[2:]), (0, 1, *range(3, len(d) + 1), 2)
    made = Rearrangement(sizes, order)
    return None if made.is_identity else (*canonical_pair(made), Dims(made.result))
