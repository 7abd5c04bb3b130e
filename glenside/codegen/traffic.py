"""Bytes that come from behind a cache: what a nest reads and stores again after the cache has held other things.

What a loop touches in all its steps is read once where one step fits the cache; where that does not, each step reads
its own again. Places are counted by the sizes of the axes they depend on, at most the buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from glenside.codegen.affine import loads_in
from glenside.codegen.loops import Buffer, For, Let, Role, Statement, Store, Way, When
from glenside.codegen.machine import Machine
from glenside.codegen.parts import product_of
from glenside.codegen.work import Work
from glenside.ir.dtypes import RECORDS
from glenside.ir.index_map import Axis, Index

_LINE = 64
"""Bytes that come at a time."""
_PART = 1 << 16
"""Bytes that the last cache is told to hold or not."""
_OWN = 0.75
"""Of the last cache, what a program has: of 1/8, 3/16 .. 1 it told nests of large images least wrong on a Zen 5."""
_SHARES = (0.6, 1.0, 1.6)
"""Parts of the second cache that hold what is read again, taken together: caches forget little by little."""


@dataclass(frozen=True)
class Reach:
    """Bytes that a nest brings, whatever was before it: from behind the first cache; of each buffer from behind parts
    of the second one, and in all.
    """

    near: float
    behind: tuple[Mapping[Buffer, float], ...]
    footprint: Mapping[Buffer, float]

    @classmethod
    def of(cls, body: Sequence[Statement], machine: Machine) -> Reach:
        touched = Touched.of(body)
        near = sum(touched.beyond(machine.l1).values())
        return cls(near, tuple(touched.beyond(machine.l2 * share) for share in _SHARES), touched.footprint)

    def over(self, names: Mapping[Buffer, Buffer]) -> Reach:
        """The same of a nest over other buffers."""
        behind, whole = (
            [{names[buffer]: n for buffer, n in own.items()} for own in every]
            for every in (self.behind, [self.footprint])
        )
        return Reach(self.near, tuple(behind), *whole)


def traffic(reach: Reach, recent: Recent) -> Work:
    """What comes from the second cache, and from behind it, where those buffers were touched before."""
    found = dict.fromkeys(("far", "weights"), 0.0)
    for bytes_of in reach.behind:
        for buffer, n in bytes_of.items():
            if not recent.has(buffer, n):
                found["weights" if buffer.role is Role.CONSTANT else "far"] += n / len(_SHARES)
    recent.touch(reach.footprint)
    return Work(near=reach.near, **found)


class Recent:
    """What the second cache holds while nests run one after the other: what was touched last, as far as it fits."""

    def __init__(self, size: int, first: Iterable[Buffer] = ()) -> None:
        self.size = size
        self.bytes: dict[Buffer, float] = {buffer: buffer.bytes for buffer in first}

    def has(self, buffer: Buffer, n: float) -> bool:
        """Whether so many bytes of a buffer, read once, are there; what is new takes the place of others."""
        if buffer.role in (Role.TEMPORARY, Role.SCRATCH) and buffer not in self.bytes:
            return n <= self.size // 2
        return n <= self.bytes.get(buffer, 0)

    def touch(self, footprint: Mapping[Buffer, float]) -> None:
        """A nest has touched so many bytes of some buffers."""
        for buffer, n in footprint.items():
            self.bytes[buffer] = max(n, self.bytes.pop(buffer, 0))
        while sum(self.bytes.values()) > self.size:
            del self.bytes[next(iter(self.bytes))]


class LastCache:
    """The last cache, in a program that runs again and again: parts of memory, of which the one touched first leaves.

    parts  what is held -> whether something was stored there since it came, which goes back when it leaves
    """

    def __init__(self, machine: Machine, nests: Sequence[tuple[Buffer, Reach]], places: Mapping[Buffer, int]) -> None:
        self.size, self.places = _OWN * machine.l3, places
        self.parts: dict[tuple[Buffer | None, int], bool] = {}
        for stored, reach in nests:  # the run before
            self.touch(stored, reach)

    def touch(self, stored: Buffer, reach: Reach) -> Work:
        """What a nest that stores a buffer brings from behind it, and what that drives out."""
        found = dict.fromkeys(("memory", "memory_weights"), 0.0)
        for buffer, key in self._touched(reach.footprint):
            held = self.parts.pop(key, None)
            if held is None:
                found["memory_weights" if buffer.role is Role.CONSTANT else "memory"] += _PART
            self.parts[key] = bool(held) or buffer is stored
            if len(self.parts) * _PART > self.size:
                found["memory"] += _PART * self.parts.pop(next(iter(self.parts)))
        return Work(**found)

    def _touched(self, footprint: Mapping[Buffer, float]) -> list[tuple[Buffer, tuple[Buffer | None, int]]]:
        """The parts of some buffers, a little of each in turn; temporaries by where they lie."""
        found = []
        for buffer, n in footprint.items():
            place = self.places.get(buffer)
            first = 0 if place is None else place // _PART
            end = max(first + 1, int((place or 0) + n) // _PART)
            for part in range(first, end) if buffer.role is not Role.SCRATCH else ():
                key = buffer if place is None else None
                found.append(((part - first) / (end - first), buffer, (key, part)))
        return [(buffer, key) for _, buffer, key in sorted(found, key=lambda one: one[0])]


@dataclass
class Touched:
    """The places that statements touch, in a tree of loops.

    places   of these statements themselves
    loops    (axis, what is touched in each of its steps)
    """

    places: list[tuple[Buffer, Index]] = field(default_factory=list)
    loops: list[tuple[Axis, Touched]] = field(default_factory=list)

    @classmethod
    def of(cls, body: Sequence[Statement]) -> Touched:
        found = cls()
        for statement in body:
            found._add(statement)
        return found

    def _add(self, statement: Statement) -> None:
        if isinstance(statement, For) and statement.way is Way.MATRIX:
            product = product_of(statement)
            for number, (buffer, begin, size) in enumerate(product.touches()):
                along = Axis(-1 - number, size)
                self.loops.append((along, Touched([(buffer, begin + Index(((along, 1),)))])))
        elif isinstance(statement, For):
            self.loops.append((statement.axis, Touched.of(statement.body)))
        elif isinstance(statement, When):
            for inner in statement.body:
                self._add(inner)
        elif isinstance(statement, Store | Let):
            touched = [(load.buffer, load.place) for load in loads_in(statement.formula)]
            if isinstance(statement, Store):
                touched.append((statement.buffer, statement.place))
            self.places += [(buffer, place) for buffer, place in touched if buffer.role is not Role.REGISTER]

    @cached_property
    def footprint(self) -> dict[Buffer, float]:
        """Bytes of each buffer that are touched."""
        return _footprint(self._shapes(()))

    @cached_property
    def swept(self) -> list[dict[Buffer, float]]:
        """The same for all steps of each loop."""
        return [_footprint(inner._shapes((axis,))) for axis, inner in self.loops]

    def _shapes(self, axes: tuple[Axis, ...]) -> dict[Buffer, dict[object, float]]:
        """For each buffer the sets of places, by what tells them apart, and how many elements each has."""
        found: dict[Buffer, dict[object, float]] = {}
        for buffer, place in dict.fromkeys(self.places):
            key, count = _extent(place, axes, buffer)
            found.setdefault(buffer, {})[key] = count
        for axis, inner in self.loops:
            for buffer, shapes in inner._shapes((*axes, axis)).items():
                found.setdefault(buffer, {}).update(shapes)
        return found

    def beyond(self, cache: float) -> dict[Buffer, float]:
        """Bytes of each buffer that come from behind a cache."""
        if sum(self.footprint.values()) <= cache:
            return self.footprint
        found: dict[Buffer, float] = {}
        for buffer, _ in self.places:
            found[buffer] = found.get(buffer, 0) + _LINE
        for (axis, inner), swept in zip(self.loops, self.swept, strict=True):
            once = sum(inner.footprint.values()) <= cache
            for buffer, n in (swept if once else inner.beyond(cache)).items():
                found[buffer] = found.get(buffer, 0) + (n if once else axis.size * n)
        return found


def _footprint(shapes: Mapping[Buffer, Mapping[object, float]]) -> dict[Buffer, float]:
    return {b: min(b.bytes, sum(of_buffer.values()) * _size(b)) for b, of_buffer in shapes.items()}


def _extent(place: Index, axes: Sequence[Axis], buffer: Buffer) -> tuple[object, float]:
    """What tells the places of an access from others, and how many elements they are, in whole lines."""
    steps = sorted((abs(factor), axis.size) for axis, factor in place.terms if isinstance(axis, Axis) and axis in axes)
    line = _LINE / _size(buffer)
    nearest = steps[0][0] if steps else line
    count, reach, unit, span = min(line, nearest), 0, 0, 0
    for step, size in steps:
        reach += step * (size - 1)
        if unit and step % unit == 0 and step <= span + unit:  # a window and the image that it moves along, say
            count *= (span + step * (size - 1) + unit) / (span + unit)
            span += step * (size - 1)
        else:
            count *= size
            unit, span = step, step * (size - 1)
    others = tuple((atom, factor) for atom, factor in place.terms if atom not in axes)
    key = tuple(steps), place.constant // max(int(line), reach), others
    return key, min(count, reach + line)


def _size(buffer: Buffer) -> int:
    """Bytes of an element."""
    return RECORDS[buffer.dtype].numpy.itemsize
