"""Pointers that go with a loop, for what the sums of tiles read.

A compiler that is given places as sums of counters keeps an address for each row of a tile, more than there are
registers, and reads them from memory at each step. Here all rows are at constants from one pointer, which the compiler
does not see through.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from glenside.codegen.emit_c.vector_printer import VectorFormulas
from glenside.codegen.loop_ir.affine_analysis import coefficient, is_direct, loads_in, substituted
from glenside.codegen.loop_ir.ir import Buffer, For, Load, Prefetch, Role, Statement, Store, Way, When
from glenside.ir.index_map import Axis, Index

Moved = tuple[Buffer, frozenset[object]]
"""A buffer, and what a place in it moves with."""
_MOST = 6
"""Pointers of one loop: more would take the registers of each other."""


@dataclass(frozen=True)
class Pointer:
    """Where a buffer is read in a loop: at a place that moves with the loop's counter, so much a step, and others."""

    name: str
    buffer: Buffer
    place: Index
    step: int


class Pointers(VectorFormulas):
    """Formulas whose places are constants from pointers, in the loops that have some.

    pointers  those of the loop that is being written, by buffer and by what its places move with
    """

    def __init__(self) -> None:
        super().__init__()
        self.pointers: dict[Moved, Pointer] = {}

    def pointed(self, loop: For) -> dict[Moved, Pointer]:
        """Pointers for what the sums in a loop read, where it has no loops within; none where that is too many."""
        found: dict[Moved, Pointer] = {}
        axes, reads = _unrolled(loop.body) or ([], [])
        for read in reads:
            buffer, place = read.buffer, substituted(read.place, dict.fromkeys(axes, Index()))
            if is_direct(place, loop.axis):
                pointer = Pointer(f"q{len(found)}", buffer, Index(place.terms), coefficient(place, loop.axis))
                found.setdefault(_moved(buffer, place), pointer)
            elif isinstance(read, Load):
                return {}
        return found if len(found) <= _MOST else {}

    def start(self, pointer: Pointer, loop: For, first: str) -> str:
        """The declaration of a pointer, where the counter of its loop is at its first value."""
        place = substituted(pointer.place, {loop.axis: Index()})
        moved = [] if first == "0" or not pointer.step else [f"{pointer.step} * {first}"]
        begin = " + ".join([self.name(pointer.buffer), self.index(place), *moved])
        return f"const {self.memory(pointer.buffer)} *{pointer.name} = {begin};"

    def hidden(self, pointers: Sequence[Pointer]) -> Iterator[str]:
        """What makes the values of pointers unknown to a compiler."""
        if pointers:
            yield '__asm__("" : {});'.format(", ".join(f'"+r"({pointer.name})' for pointer in pointers))

    def address(self, buffer: Buffer, place: Index) -> tuple[str, str]:
        """What a place is counted from, and how far it is."""
        place = substituted(place, self.steps) if self.steps else place
        pointer = self.pointers.get(_moved(buffer, place)) if self.pointers else None
        if pointer is None:
            return self.name(buffer), self.index(place)
        return pointer.name, str(place.constant)


def _moved(buffer: Buffer, place: Index) -> Moved:
    return buffer, frozenset(place.terms)


def _unrolled(body: Sequence[Statement]) -> tuple[list[Axis], list[Load | Prefetch]] | None:
    """The axes of the loops that a body writes out, and what the sums within read, or ask for; None where it has other
    loops.
    """
    axes: list[Axis] = []
    reads: list[Load | Prefetch] = []
    for statement in body:
        if isinstance(statement, Store) and statement.buffer.role is Role.REGISTER:
            reads += _read(statement)
        elif isinstance(statement, Prefetch):
            reads.append(statement)
        elif isinstance(statement, When):
            return None
        elif isinstance(statement, For):
            within = _unrolled(statement.body)
            if within is None or statement.way not in (Way.UNROLLED, Way.VECTOR):
                if statement.way is not Way.APART:
                    return None
                continue
            axes += [statement.axis, *within[0]]
            reads += within[1]
    return axes, reads


def _read(store: Store) -> Iterator[Load]:
    for load in loads_in(store.formula):
        if load.buffer.role is not Role.REGISTER and not load.picked:
            yield load
