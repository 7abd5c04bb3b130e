"""Loop nests over buffers: a program below its terms, where each element that is stored has a place and a formula.

Places are quasi-affine expressions of loop counters, the same as in index maps; what index maps guard is a choice
between two formulas. Everything has one of the dtypes of the language, with the meaning of `glenside.ir.primitives`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, TypeGuard

from glenside.ir.dtypes import RECORDS
from glenside.ir.index_map import Axis, Guard, Index, flattened
from glenside.ir.scalar import Primitive
from glenside.ir.term import Term
from glenside.ir.types import Dims

if TYPE_CHECKING:
    from glenside.codegen.loop_ir.compute_block import Block
    from glenside.codegen.scheduling.softmax_template import Softmax


class Role(Enum):
    """Who fills a buffer."""

    INPUT = "input"
    CONSTANT = "constant"
    TEMPORARY = "temporary"
    RESULT = "result"
    SCRATCH = "scratch"  # of a thread, for as long as it is in a nest
    REGISTER = "register"  # of a tile: its places are known where its loops are unrolled


class Way(Enum):
    """How the steps of a loop are taken; all compute the same."""

    LOOP = "for"
    PARALLEL = "parallel"  # in any order, by any thread
    UNROLLED = "unrolled"  # written one after the other
    VECTOR = "vector"  # at once, by one instruction each
    APART = "apart"  # by a function of its own: what it keeps in registers takes none from what is around it
    MATRIX = "matrix"  # sums of products of two matrices, by a unit for those where there is one (`parts`)


@dataclass(frozen=True, eq=False)
class Buffer:
    """Elements in row-major order. A tensor's is called as it is, what nests fill by a number."""

    name: str
    dims: Dims
    dtype: str
    role: Role

    @property
    def bytes(self) -> int:
        """Of all elements."""
        return self.dims.product() * RECORDS[self.dtype].numpy.itemsize

    def place(self, indices: Sequence[Index]) -> Index:
        """Where in the buffer the element at some indices is."""
        return flattened(indices, self.dims)

    def __str__(self) -> str:
        return self.name


# Formulas: what one element is.


@dataclass(frozen=True)
class Number:
    """An exact number; None is the lowest value of the dtype, which a maximum ignores."""

    value: Fraction | None
    dtype: str

    def __str__(self) -> str:
        return "lowest" if self.value is None else str(self.value)


@dataclass(frozen=True)
class Counter:
    """An index as a number."""

    index: Index
    dtype: str = "int64"

    def __str__(self) -> str:
        return str(self.index)


@dataclass(frozen=True)
class Local:
    """A variable of a nest."""

    name: str
    dtype: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Load:
    """The element of a buffer at a place; `picked` are variables that move it, each by so many elements."""

    buffer: Buffer
    place: Index
    picked: tuple[tuple[Local, int], ...] = ()

    @property
    def dtype(self) -> str:
        return self.buffer.dtype

    def __str__(self) -> str:
        return f"{self.buffer}[{_place(self.place, self.picked)}]"


@dataclass(frozen=True)
class Apply:
    """A primitive of formulas."""

    primitive: Primitive
    operands: tuple[Formula, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.primitive.name}({', '.join(map(str, self.operands))})"


@dataclass(frozen=True)
class Convert:
    """A formula in another dtype: its value, or its bits."""

    formula: Formula
    dtype: str
    bits: bool = False

    def __str__(self) -> str:
        return f"{self.dtype}{' bits' if self.bits else ''}({self.formula})"


@dataclass(frozen=True)
class Choose:
    """One formula where all guards hold, else another one."""

    guards: tuple[Guard, ...]
    then: Formula
    otherwise: Formula

    @property
    def dtype(self) -> str:
        return self.then.dtype

    def __str__(self) -> str:
        return f"({self.then} if {' and '.join(map(str, self.guards))} else {self.otherwise})"


Formula = Number | Counter | Local | Load | Apply | Convert | Choose


# Statements: what is done.


@dataclass(frozen=True)
class Let:
    """A variable of the loop around it is made, or, where it is known already, changed."""

    local: Local
    formula: Formula
    known: bool = False


@dataclass(frozen=True)
class Store:
    """The element of a buffer at a place becomes a formula."""

    buffer: Buffer
    place: Index
    formula: Formula
    picked: tuple[tuple[Local, int], ...] = ()


@dataclass(frozen=True)
class For:
    """The body for each value of a counter, from 0 up.

    beside  (n, first) of a loop that goes along with the one before it, by the same threads at the same time: of n
            equal parts of that one's steps, its own go with those from the first on
    """

    axis: Axis
    body: tuple[Statement, ...]
    way: Way = Way.LOOP
    beside: tuple[int, int] | None = None


def is_parallel(statement: Statement) -> TypeGuard[For]:
    """Whether it is a loop whose steps any thread may take."""
    return isinstance(statement, For) and statement.way is Way.PARALLEL


@dataclass(frozen=True)
class When:
    """The body where all guards hold, and where a formula is not 0."""

    guards: tuple[Guard, ...]
    body: tuple[Statement, ...]
    condition: Formula | None = None


@dataclass(frozen=True)
class Require:
    """A variable lies from -size to size - 1, or the program ends and says so; below 0 it counts from the end."""

    local: Local
    size: int
    operator: str


@dataclass(frozen=True)
class Sort:
    """So many `positions` from a place on become the order of the `items` there; equal ones stay as they stand."""

    items: Buffer
    positions: Buffer
    place: Index
    count: int
    descending: bool


@dataclass(frozen=True)
class Prefetch:
    """What is at a place of a buffer, or behind its end, is needed soon; it changes nothing.

    far  it is needed later than others, and need come no nearer than the second cache
    """

    buffer: Buffer
    place: Index
    far: bool = False


@dataclass(frozen=True)
class Fence:
    """What is read after it is read anew, not kept in registers that a tile needs; it changes nothing."""


Statement = Let | Store | For | When | Require | Sort | Prefetch | Fence


@dataclass(frozen=True)
class Nest:
    """The loops that fill a buffer.

    what      the operators that they compute, in words
    terms     the terms of the program that they compute
    block     the block (or softmax) from which they were scheduled, if a pass may schedule it anew
    packings  of operands, made when that block was scheduled
    """

    what: str
    buffer: Buffer
    body: tuple[Statement, ...]
    terms: tuple[Term, ...] = field(default=(), compare=False)
    block: Block | Softmax | None = field(default=None, compare=False, repr=False)
    packings: tuple[Packing, ...] = field(default=(), compare=False, repr=False)


_COLUMNS = 64
"""Of a panel that is packed: no more are written one after the other, each from a row of its own."""


@dataclass(frozen=True)
class Packing:
    """A buffer that holds elements of another one in the order in which tiles read them.

    For each place of the outer sizes, each piece of the last axis, (first, width, count), holds its columns for each
    place of the inner sizes: [outer][count][inner][width]. Strides are those of the source, outer ones first.

    deep      how many places lie beside each other for each column: [outer][count][inner / deep][width][deep]
    together  how many of the last inner sizes are cut into those, as one; beyond their end there are zeros
    """

    buffer: Buffer
    source: Buffer
    first: int
    outer: tuple[tuple[int, int], ...]
    inner: tuple[tuple[int, int], ...]
    stride: int
    pieces: tuple[tuple[int, int, int], ...]
    deep: int = 1
    together: int = 1

    @property
    def depth(self) -> int:
        """The places of the inner sizes, with those that are zeros."""
        cut = len(self.inner) - self.together
        return prod(n for n, _ in self.inner[:cut]) * self._last

    @property
    def _last(self) -> int:
        return -(-prod(n for n, _ in self.inner[len(self.inner) - self.together :]) // self.deep) * self.deep

    def statements(self) -> tuple[Statement, ...]:
        """The loops that fill it."""
        made: list[Statement] = []
        depth, last = self.depth, self._last
        cut = len(self.inner) - self.together
        filled = prod(n for n, _ in self.inner[cut:])
        every = depth * sum(width * times for _, width, times in self.pieces)
        for begin, width, times in self.pieces:
            sizes = [*(n for n, _ in self.outer), times, *(n for n, _ in self.inner), width]
            strides = [*(s for _, s in self.outer), width * self.stride, *(s for _, s in self.inner), self.stride]
            for values in (True, False):
                if not values:  # zeros, behind what is filled
                    sizes = [*sizes[: len(self.outer) + 1 + cut], last - filled, width]
                axes = [Axis(i, n) for i, n in enumerate(sizes)]
                if any(axis.size == 0 for axis in axes):
                    continue
                at = [Index(((axis, 1),)) if axis.size != 1 else Index() for axis in axes]
                outer, panel, *inner = at[: len(self.outer)], *at[len(self.outer) : -1]
                flat = flattened(outer, [n for n, _ in self.outer]) * every + begin * depth
                ends = flattened(inner[cut:], [n for n, _ in self.inner[cut:]]) if values else inner[-1] + filled
                within = flattened(inner[:cut], [n for n, _ in self.inner[:cut]]) * last + ends
                flat = flat + (panel * depth + within // self.deep * self.deep) * width
                flat = flat + at[-1] * self.deep + within % self.deep
                place = Index() + self.first + begin * self.stride
                for index, stride in zip(at, strides, strict=False):
                    place = place + index * stride
                value: Formula = Load(self.source, place) if values else Number(Fraction(0), self.source.dtype)
                body: tuple[Statement, ...] = (Store(self.buffer, flat, value),)
                far = dict(zip(axes, [*strides, self.stride], strict=False))
                for axis in (axes[-1], *sorted(reversed(axes[:-1]), key=lambda axis: abs(far.get(axis, 0)))):
                    way = Way.UNROLLED if axis is axes[-1] and axis.size <= _COLUMNS else Way.LOOP
                    body = (For(axis, body, way),) if axis.size != 1 else body
                made += body
        return tuple(made)


@dataclass(frozen=True)
class Layout:
    """Where the elements of a term lie in a buffer: those of some dims, from `offsets` on, along axes in an order.

    dims   the term's own, or others with the same elements in the same order
    sizes  of all places of the buffer, in that order of axes: rows may be longer than what is in them
    copy   whether it is stored there once more, for what it is part of, and not read there as the term
    """

    term: Term
    buffer: Buffer
    dims: Dims
    offsets: tuple[int, ...]
    order: tuple[int, ...]
    sizes: Dims
    copy: bool = False


@dataclass(frozen=True)
class Loops:
    """A program: its buffers, the nests in the order in which they run, and what it gives, from left to right.

    packings  the buffers that hold others in another order; those of constants are filled beforehand
    layouts   where terms lie in buffers, for who verifies the nests
    """

    name: str
    buffers: tuple[Buffer, ...]
    nests: tuple[Nest, ...]
    results: tuple[Buffer, ...]
    packings: tuple[Packing, ...] = ()
    layouts: tuple[Layout, ...] = field(default=(), compare=False)

    @property
    def titles(self) -> list[str]:
        """What each nest computes, and how."""
        return [f"{nest.buffer} {' '.join(map(str, nest.buffer.dims))}: {nest.what}" for nest in self.nests]

    def __str__(self) -> str:
        lines = []
        for nest in self.nests:
            lines.append(f"{nest.buffer} {'x'.join(map(str, nest.buffer.dims)) or 1} {nest.buffer.dtype}: {nest.what}")
            lines += _lines(nest.body, "  ")
        return "\n".join([*lines, f"gives {', '.join(map(str, self.results))}"])


def required(loops: Loops) -> Iterator[Require]:
    """What the nests ask of computed indices, in the order in which it is written."""
    stack: list[Statement] = [statement for nest in reversed(loops.nests) for statement in reversed(nest.body)]
    while stack:
        statement = stack.pop()
        if isinstance(statement, Require):
            yield statement
        elif isinstance(statement, For | When):
            stack += reversed(statement.body)


def _place(index: Index, picked: Sequence[tuple[Local, int]]) -> str:
    return " + ".join([str(index), *(f"{local}*{step}" for local, step in picked)])


def _lines(body: Sequence[Statement], indent: str) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, For):
            beside = "beside it, " if statement.beside else ""
            yield f"{indent}{beside}{statement.way.value} i{statement.axis.number} < {statement.axis.size}"
            yield from _lines(statement.body, indent + "  ")
        elif isinstance(statement, When):
            conditions = [*map(str, statement.guards)]
            conditions += [] if statement.condition is None else [str(statement.condition)]
            yield f"{indent}if {' and '.join(conditions)}"
            yield from _lines(statement.body, indent + "  ")
        elif isinstance(statement, Let):
            yield f"{indent}{statement.local} = {statement.formula}"
        elif isinstance(statement, Store):
            yield f"{indent}{statement.buffer}[{_place(statement.place, statement.picked)}] = {statement.formula}"
        elif isinstance(statement, Prefetch):
            yield f"{indent}{'later' if statement.far else 'soon'} {statement.buffer}[{statement.place}]"
        elif isinstance(statement, Require):
            yield f"{indent}{statement.local} within {statement.size}"
        elif isinstance(statement, Fence):
            yield f"{indent}fence"
        else:
            way = "descending" if statement.descending else "ascending"
            yield f"{indent}{statement.positions}[{statement.place}..] = order of {statement.items}, {way}"
