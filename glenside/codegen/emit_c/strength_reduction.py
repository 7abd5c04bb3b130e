"""Strength reduction: pointers that advance with a loop, for the operands of register tiles.

Given indices as sums of counters, a compiler keeps an address for each row of a tile. These exceed the registers, and
are reloaded from memory at each step. Here all rows are at constant offsets from one pointer, whose value is hidden
from the compiler.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from glenside.codegen.emit_c.vector_printer import VectorFormulas
from glenside.codegen.loop_ir.affine_analysis import coefficient, is_direct, loads_in, substituted
from glenside.codegen.loop_ir.ir import Buffer, For, Load, Prefetch, Role, Statement, Store, Way, When
from glenside.ir.index_map import Axis, Index

Moved = tuple[Buffer, frozenset[object]]
"""A buffer, and the counters (with factors) of an index in it."""
_MAX_POINTERS = 6
"""Maximum pointers of one loop: more would spill registers."""


@dataclass(frozen=True)
class Pointer:
    """A pointer into a buffer that is read in a loop: `step` elements per step of the loop's counter."""

    name: str
    buffer: Buffer
    place: Index
    step: int

    @property
    def bytes(self) -> int:
        """Returns the units of memory that a step of the loop passes: elements, or bytes of two elements of 4 bits."""
        return self.step // 2 if self.buffer.nibbles else self.step


class Pointers(VectorFormulas):
    """Prints formulas whose operands are at constant offsets from pointers, in loops that have pointers.

    pointers  the pointers of the current loop, by buffer and counters
    """

    def __init__(self) -> None:
        super().__init__()
        self.pointers: dict[Moved, Pointer] = {}

    def pointed(self, loop: For) -> dict[Moved, Pointer]:
        """Returns the pointers for the operands of the sums in an innermost loop; none if they are too many."""
        found: dict[Moved, Pointer] = {}
        axes, reads = _unrolled(loop.body) or ([], [])
        for read in reads:
            buffer, place = read.buffer, substituted(read.place, dict.fromkeys(axes, Index()))
            if buffer.nibbles and any(factor % (2 * buffer.nibbles) for _, factor in place.terms):
                continue  # a pointer would be to half a byte
            if is_direct(place, loop.axis):
                pointer = Pointer(f"q{len(found)}", buffer, Index(place.terms), coefficient(place, loop.axis))
                found.setdefault(_moved(buffer, place), pointer)
            elif isinstance(read, Load):
                return {}
        return found if len(found) <= _MAX_POINTERS else {}

    def start(self, pointer: Pointer, loop: For, first: str) -> str:
        """Returns the declaration of a pointer, with its value at the first step of the loop."""
        place = substituted(pointer.place, {loop.axis: Index()})
        moved = [] if first == "0" or not pointer.step else [f"{pointer.step} * {first}"]
        offset = " + ".join([self.index(place), *moved])
        begin = f"{self.name(pointer.buffer)} + {f'({offset}) / 2' if pointer.buffer.nibbles else offset}"
        return f"const {self.memory(pointer.buffer)} *{pointer.name} = {begin};"

    def hidden(self, pointers: Sequence[Pointer]) -> Iterator[str]:
        """Yields an empty asm statement that hides the values of pointers from the compiler."""
        if pointers:
            yield '__asm__("" : {});'.format(", ".join(f'"+r"({pointer.name})' for pointer in pointers))

    def address(self, buffer: Buffer, place: Index) -> tuple[str, str]:
        """Returns the base pointer of an element of a buffer, and its offset."""
        place = substituted(place, self.steps) if self.steps else place
        pointer = self.pointers.get(_moved(buffer, place)) if self.pointers else None
        if pointer is None:
            return self.name(buffer), self.index(place)
        return pointer.name, str(place.constant)


def _moved(buffer: Buffer, place: Index) -> Moved:
    return buffer, frozenset(place.terms)


def _unrolled(body: Sequence[Statement]) -> tuple[list[Axis], list[Load | Prefetch]] | None:
    """Returns the axes of the unrolled and vector loops of a body, and the loads and prefetches of its sums.

    None if the body has other loops.
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
