"""Strided boxes: conservative sets of flat indices, a first index plus strides, with tests that do not enumerate them.

A test that returns True is exact. A test may return False although the enumerated indices would say True; the caller
then enumerates them (`footprints`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from glenside.codegen.loop_ir.accesses import Access
from glenside.ir.index_map import Axis


@dataclass(frozen=True, slots=True)
class Box:
    """The indices first + sum of k * step, 0 <= k < count, over (step, count); steps are positive and ascending."""

    first: int
    steps: tuple[tuple[int, int], ...] = ()

    @property
    def last(self) -> int:
        return self.first + sum(step * (count - 1) for step, count in self.steps)

    @property
    def size(self) -> int | None:
        """Returns the number of distinct indices, or None if two sums of steps may be equal."""
        reach, found = 0, 1
        for step, count in self.steps:
            if step <= reach:
                return None
            reach, found = reach + step * (count - 1), found * count
        return found


def merged(steps: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Merges overlapping or contiguous strides: (step 1, count 4) and (2, 3) become (1, 8)."""
    found: list[tuple[int, int]] = []
    for step, count in sorted((s, n) for s, n in steps if s and n > 1):
        low, last = found[-1] if found else (0, 0)
        if found and step % low == 0 and step // low <= last:
            found[-1] = low, last + step // low * (count - 1)
        else:
            found.append((step, count))
    return tuple(found)


def box_of(access: Access, fixed: Mapping[Axis, int], picks: Mapping[str, int]) -> Box | None:
    """Returns the box of all indices that an access may touch, or None.

    Axes in `fixed` have a fixed value; a variable that moves the access is below its entry in `picks`. None where the
    access has guards or quotients, or is empty.
    """
    if access.conditions or not access.count or any(not loop.axis.size for loop in access.loops):
        return None
    first, moves = access.place.constant, [(step, picks[local.name]) for local, step in access.picked]
    for axis, factor in access.place.terms:
        if not isinstance(axis, Axis):
            return None
        if axis in fixed:
            first += factor * fixed[axis]
        else:
            moves.append((factor, axis.size))
    if access.count > 1:
        moves.append((1, access.count))
    first += sum(step * (count - 1) for step, count in moves if step < 0)
    return Box(first, merged([(abs(step), count) for step, count in moves]))


def contains(outer: Box, inner: Box) -> bool:
    """True if `outer` is known to contain all indices of `inner`."""
    rest = inner.first - outer.first
    if outer == inner:
        return True
    if rest < 0 or inner.last > outer.last:
        return False
    used: list[int] = []
    for step, _ in reversed(outer.steps):
        times, rest = divmod(rest, step)
        used.insert(0, times)
    if rest:
        return False
    for step, count in inner.steps:
        at = next((i for i in range(len(used) - 1, -1, -1) if step % outer.steps[i][0] == 0), None)
        if at is None:
            return False
        used[at] += step // outer.steps[at][0] * (count - 1)
    return all(times < count for times, (_, count) in zip(used, outer.steps, strict=True))


def is_apart(a: Box, b: Box) -> bool:
    """True if two boxes are known to be disjoint."""
    if a.last < b.first or b.last < a.first:
        return True
    for modulus in {step for step, _ in (*a.steps, *b.steps) if step > 1}:
        (low, high), (other, end) = sorted((_residues(a, modulus, 0), _residues(b, modulus, 0)))
        if high < other and end < low + modulus:
            return True
    return False


def _residues(box: Box, modulus: int, base: int) -> tuple[int, int]:
    """Returns the interval that contains the box's indices minus `base`, up to multiples of `modulus`."""
    low = (box.first - base) % modulus
    return low, low + sum(step * (count - 1) for step, count in box.steps if step % modulus)


def is_apart_each_step(written: Sequence[Box], used: Sequence[Box], move: int, count: int) -> bool:
    """True if no box of `written` overlaps a box of `used` shifted by k * move, 0 < abs(k) < count."""
    move = abs(move)
    boxes = [*written, *used]
    if not move or not written:
        return not written
    if _keeps_apart([(box.first, box.last) for box in boxes], move, count, None):
        return True
    base = min(box.first for box in boxes)
    moduli = sorted({step for box in boxes for step, _ in box.steps if step > move})
    if any(_keeps_apart([_residues(box, m, base) for box in boxes], move, count, m) for m in moduli):
        return True
    return all(_are_apart_each_step(a, b, move, count) for a, b in product(written, used))


def _keeps_apart(spans: Sequence[tuple[int, int]], move: int, count: int, modulus: int | None) -> bool:
    """True if one move shifts the hull of `spans` off itself, and the last move does not wrap around the modulus."""
    width = max(high for _, high in spans) - min(low for low, _ in spans)
    return move > width and (modulus is None or move * (count - 1) + width < modulus)


def _are_apart_each_step(a: Box, b: Box, move: int, count: int) -> bool:
    """True if two boxes stay disjoint when one is shifted by k * move, 0 < abs(k) < count."""
    moved = Box(a.first - move * (count - 1), merged((*a.steps, (move, 2 * count - 1))))
    if is_apart(moved, b):
        return True
    spans = [(a.first, a.last), (b.first, b.last)]
    if _keeps_apart(spans, move, count, None):
        return True
    base = min(a.first, b.first)
    moduli = sorted({step for step, _ in (*a.steps, *b.steps) if step > move})
    return any(_keeps_apart([_residues(a, m, base), _residues(b, m, base)], move, count, m) for m in moduli)
