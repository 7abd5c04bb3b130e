"""Memory footprints of accesses: enumerated offsets of axes coupled by guards or quotients, plus strides of all others.

Contiguous strided ranges are merged, so that common footprints have constant size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from glenside.codegen.loop_ir.accesses import Access, Held
from glenside.codegen.loop_ir.affine_analysis import substituted
from glenside.codegen.loop_ir.index_boxes import Box, merged
from glenside.ir.index_map import Atom, Axis, Guard, Index
from glenside.ir.operand import Array

_ENUMERATED = 1 << 24
"""Largest number of steps of coupled axes that are enumerated; above it, only the bounds are computed."""
_MASKED = 16
"""Largest number of mask elements for each value at which `distinct` uses a mask."""
_LISTED = 64
"""Number of offsets above which indices are listed one by one."""


@dataclass(frozen=True, eq=False)
class Footprint:
    """A set of flat indices: `offsets`, ascending, plus `steps`, (stride, count) pairs, smallest stride first.

    exact  True if every index is touched; else the set is an upper bound
    """

    offsets: Array
    steps: tuple[tuple[int, int], ...] = ()
    exact: bool = True

    @property
    def is_empty(self) -> bool:
        return not self.offsets.size

    @property
    def bounds(self) -> tuple[int, int]:
        """Returns the first and the last index; the footprint must not be empty."""
        return int(self.offsets[0]), int(self.offsets[-1]) + sum(step * (count - 1) for step, count in self.steps)

    def places(self) -> Array:
        """Returns all indices, ascending."""
        found = self.offsets
        for step, count in self.steps:
            found = distinct(np.add.outer(np.arange(count, dtype=np.int64) * step, found))
        return found

    def mark(self, mask: Array) -> None:
        """Sets `mask` to True at the footprint."""
        if self._is_listed:
            mask[self.places()] = True
        for part in self._parts(mask):
            part[...] = True

    def missing(self, mask: Array) -> int | None:
        """Returns an index of the footprint at which `mask` is False, or None."""
        if self._is_listed:
            places = self.places()
            unset = places[~mask[places]]
            return int(unset[0]) if unset.size else None
        for offset, part in zip(self.offsets, self._parts(mask), strict=True):
            if not part.all():
                at = np.unravel_index(int(np.argmin(part)), part.shape)
                return int(offset) + sum(int(i) * step for i, (step, _) in zip(at, self.steps, strict=True))
        return None

    @property
    def _is_listed(self) -> bool:
        return not self.steps or self.offsets.size > _LISTED

    def _parts(self, mask: Array) -> Iterator[Array]:
        if not self._is_listed:
            counts, strides = [n for _, n in self.steps], [step for step, _ in self.steps]
            for offset in self.offsets:
                yield np.lib.stride_tricks.as_strided(mask[offset:], counts, strides)


NOWHERE = Footprint(np.empty(0, np.int64))


def footprint_of(box: Box) -> Footprint:
    """Returns the footprint of a box."""
    return Footprint(np.array([box.first], np.int64), box.steps)


def footprint(access: Access, fixed: Mapping[Axis, int], picks: Mapping[str, int]) -> Footprint:
    """Returns the footprint of an access.

    fixed  axis -> value, for axes that do not vary
    picks  variable -> exclusive upper bound, for variables that move the access
    """
    free = [axis for axis in access.axes if axis not in fixed]
    if any(not axis.size for axis in (*free, *fixed)) or not access.count:
        return NOWHERE
    at = {axis: Index() + place for axis, place in fixed.items()}
    held = [replace(h, guards=tuple(_fixed(g, at) for g in h.guards)) for h in access.conditions]
    place = substituted(access.place, at) if at else access.place
    pieces, exact = [np.array([place.constant], np.int64)], not access.picked and access.sure
    steps = [(1, access.count)] + [(step, picks[local.name]) for local, step in access.picked]
    for tied in _tied(place, held):
        values = tied.values()
        if values is None:
            low, high = tied.bounds
            steps.append((1, high - low + 1))
            values, exact = np.array([low]), False
        if not values.size:
            return NOWHERE
        if values.size > 1 and (np.diff(values) == values[1] - values[0]).all():
            steps.append((int(values[1] - values[0]), values.size))
            values = values[:1]
        pieces.append(values)
    within = {axis for tied in _tied(place, held) for axis in tied.axes}
    steps += [(factor, a.size) for a, factor in place.terms if isinstance(a, Axis) and a not in within]
    offsets = pieces[0]
    for more in pieces[1:]:
        offsets = distinct(np.add.outer(offsets, more))
    below = sum(step * (count - 1) for step, count in steps if step < 0)
    return Footprint(offsets + below, merged((abs(step), count) for step, count in steps), exact)


def _fixed(guard: Guard, at: Mapping[Axis, Index]) -> Guard:
    return replace(guard, index=substituted(guard.index, dict(at))) if at else guard


@dataclass
class _Tied:
    """Axes that guards or quotients couple, the atoms of the index over them, and the conditions on them."""

    axes: set[Axis]
    atoms: list[tuple[Atom, int]]
    held: list[Held]

    @property
    def bounds(self) -> tuple[int, int]:
        return Index(tuple(self.atoms)).bounds

    def values(self) -> Array | None:
        """Returns the distinct sums of the atoms where the conditions hold, or None if there are too many steps."""
        axes = sorted(self.axes, key=lambda axis: axis.number)
        if prod(axis.size for axis in axes) > _ENUMERATED:
            return None
        counters = counted(axes)
        value = np.asarray(Index(tuple(self.atoms)).evaluate(counters))
        true = np.broadcast_to(holds(self.held, counters), [axis.size for axis in axes])
        return distinct(np.broadcast_to(value, true.shape)[true])


def distinct(values: Array) -> Array:
    """Returns the distinct integers of an array, ascending.

    Values that lie close together are marked in a mask, which takes a tenth of the time of `numpy.unique`.
    """
    flat = values.reshape(-1)
    if not flat.size:
        return flat.astype(np.int64)
    least, most = int(flat.min()), int(flat.max())
    if most - least >= _MASKED * flat.size:
        found: Array = np.sort(flat).astype(np.int64)
        return np.asarray(found[np.concatenate([[True], found[1:] != found[:-1]])])
    mask = np.zeros(most - least + 1, np.bool_)
    mask[flat - least] = True
    return np.flatnonzero(mask) + least


def counted(axes: Sequence[Axis]) -> Any:
    """Returns axis number -> all values of its counter, along an array axis each."""
    grid = np.ogrid[tuple(slice(0, axis.size) for axis in axes)] if axes else []
    return {axis.number: places for axis, places in zip(axes, grid, strict=True)}


def holds(conditions: Iterable[Held], counters: Any) -> Array:
    """Returns the mask of counter values at which all conditions hold."""
    found: Any = np.True_
    for held in conditions:
        every: Any = np.True_
        for guard in held.guards:
            every = every & guard.evaluate(counters)
        found = found & (every if held.holds else ~np.asarray(every))
    return np.asarray(found)


def _tied(place: Index, held: Sequence[Held]) -> list[_Tied]:
    parts: list[Held] = []
    for condition in held:
        whole = [replace(condition, guards=(guard,)) for guard in condition.guards] if condition.holds else [condition]
        parts += whole
    found = [_Tied(set(axes_in(*(g.index for g in part.guards))), [], [part]) for part in parts]
    divided = [(atom, factor) for atom, factor in place.terms if not isinstance(atom, Axis)]
    found += [_Tied(set(axes_in(atom.expression)), [(atom, factor)], []) for atom, factor in divided]
    groups: list[_Tied] = []
    for one in found:
        for other in [group for group in groups if group.axes & one.axes]:
            groups.remove(other)
            one = _Tied(one.axes | other.axes, one.atoms + other.atoms, one.held + other.held)
        groups.append(one)
    for group in groups:
        group.atoms += [(a, factor) for a, factor in place.terms if isinstance(a, Axis) and a in group.axes]
    return groups


def axes_in(*indices: Index) -> Iterator[Axis]:
    """Yields the axes that indices depend on."""
    for index in indices:
        for atom, _ in index.terms:
            if isinstance(atom, Axis):
                yield atom
            else:
                yield from axes_in(atom.expression)


def moves_evenly(access: Access, axes: Iterable[Axis]) -> tuple[int, ...] | None:
    """Returns the stride of an access along each axis, or None if guards or quotients depend on these axes."""
    uneven = {*axes_in(*(guard.index for held in access.conditions for guard in held.guards))}
    uneven |= {a for atom, _ in access.place.terms if not isinstance(atom, Axis) for a in axes_in(atom.expression)}
    if not uneven.isdisjoint(axes):
        return None
    factors = dict(access.place.terms)
    return tuple(factors.get(axis, 0) for axis in axes)
