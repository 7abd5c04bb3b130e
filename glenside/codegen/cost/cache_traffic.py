"""Bytes that come from behind a cache: what a nest reads and stores again after the cache has held other things.

What a loop touches in all its steps is read once where one step fits the cache; where that does not, each step reads
its own again. Places are counted by the sizes of the axes they depend on, at most the buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from glenside.codegen.loop_ir.affine_analysis import loads_in
from glenside.codegen.loop_ir.bf16_split_matmul import product_of
from glenside.codegen.loop_ir.ir import Buffer, For, Let, Role, Statement, Store, Way, When
from glenside.codegen.processor.model import Machine
from glenside.codegen.processor.work_record import Work
from glenside.ir.dtypes import RECORDS
from glenside.ir.index_map import Axis, Index

_LINE = 64
"""Bytes that come at a time."""
_OWN = 0.75
"""Of a cache, what a program has: of 1/8, 3/16 .. 1 of the last one it told nests of large images least wrong on a Zen
5, of 0.6, 0.8 and 1 of the second one 0.8 all nests on a Xeon.
"""
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


def traffic(reach: Reach, stored: Buffer, cache: Cache) -> Work:
    """What a nest that stores a buffer brings from the second cache, and from behind it."""
    missed = cache.touch(stored, reach.footprint).missed
    found = dict.fromkeys(("far", "weights"), 0.0)
    for bytes_of in reach.behind:
        for buffer, n in bytes_of.items():
            once = min(n, reach.footprint[buffer])
            again = n - once  # what the nest itself has driven out
            part = missed[buffer] / reach.footprint[buffer] if once else 0.0
            found["weights" if buffer.role is Role.CONSTANT else "far"] += (part * once + again) / len(_SHARES)
    return Work(near=reach.near, **found)


@dataclass(frozen=True)
class Brought:
    """What a nest brings from behind a cache: bytes of each buffer; and bytes that go back for it."""

    missed: Mapping[Buffer, float]
    back: float

    def work(self) -> Work:
        """From memory, and to it."""
        weights = sum(n for buffer, n in self.missed.items() if buffer.role is Role.CONSTANT)
        return Work(memory=sum(self.missed.values()) - weights + self.back, memory_weights=weights)


class Cache:
    """A cache, where a program runs again and again: parts of memory, of which the one touched first leaves.

    Temporaries are where they lie in the arena: what another one has left there is as near as it was. Where places are
    not known, one that is new lies where something was not long ago, if it is not large.

    parts  what is held -> whether something was stored there since it came, which goes back when it leaves
    """

    def __init__(self, size: int, part: int, places: Mapping[Buffer, int] = MappingProxyType({})) -> None:
        self.most, self.part, self.places = _OWN * size / part, part, places
        self.parts: dict[tuple[Buffer | None, int], bool] = {}
        self._seen: set[Buffer] = set()

    def warm(self, nests: Iterable[tuple[Buffer, Reach]]) -> Cache:
        """The same after a run of nests, each with the buffer that it stores."""
        for stored, reach in nests:
            self.touch(stored, reach.footprint)
        return self

    def touch(self, stored: Buffer, footprint: Mapping[Buffer, float]) -> Brought:
        """A nest that stores a buffer touches so many bytes of some."""
        missed, back = dict.fromkeys(footprint, 0.0), 0
        near = {buffer for buffer, n in footprint.items() if self._is_near(buffer, n)}
        self._seen.update(footprint)
        parts, most = self.parts, self.most
        for buffer, key, n in self._touched(footprint):
            held = parts.pop(key, None)
            if held is None and buffer not in near:
                missed[buffer] += n
            parts[key] = bool(held) or buffer is stored
            if len(parts) > most:
                back += parts.pop(next(iter(parts)))
        return Brought(missed, back * self.part)

    def _is_near(self, buffer: Buffer, n: float) -> bool:
        """Whether a buffer without a place is new, and may lie where something was not long ago."""
        is_new = buffer not in self._seen and buffer not in self.places
        return is_new and buffer.role in (Role.TEMPORARY, Role.SCRATCH) and 2 * n <= self.most * self.part

    def _touched(self, footprint: Mapping[Buffer, float]) -> list[tuple[Buffer, tuple[Buffer | None, int], float]]:
        """The parts of some buffers, a little of each in turn, and the bytes of each part."""
        found = []
        for buffer, n in footprint.items():
            place = self.places.get(buffer)
            first = 0 if place is None else place // self.part
            end = max(first + 1, -int(-((place or 0) + n) // self.part))
            key = buffer if place is None else None
            if buffer.role is not Role.SCRATCH:
                found += [((i - first) / (end - first), buffer, (key, i), n / (end - first)) for i in range(first, end)]
        return [(buffer, key, n) for _, buffer, key, n in sorted(found, key=lambda one: one[0])]


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
    return (tuple(steps), _apart(place.constant, steps, line), others), min(count, reach + line)


def _apart(begin: int, steps: Sequence[tuple[int, int]], line: float) -> tuple[int, ...]:
    """The same numbers for accesses that go along the same axes from places of which one is among those of the other.

    The next row of an image begins within the rows, the next part of a sum behind the first one: as many steps on as
    that has.
    """
    rest, found = abs(begin), []
    for step, size in reversed(steps):
        shift, rest = divmod(rest, step)
        found.append(shift // max(size, 1))
    return *found, int(rest // line)


def _size(buffer: Buffer) -> int:
    """Bytes of an element."""
    return RECORDS[buffer.dtype].numpy.itemsize
