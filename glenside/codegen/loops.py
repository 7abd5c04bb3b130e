"""Loop nests over buffers: a program below its terms, where each element that is stored has a place and a formula.

Places are quasi-affine expressions of loop counters, the same as in index maps; what index maps guard is a choice
between two formulas. Everything has one of the dtypes of the language, with the meaning of `glenside.ir.primitives`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from glenside.ir.index_map import Axis, Guard, Index, flattened
from glenside.ir.scalar import Primitive
from glenside.ir.types import Dims


class Role(Enum):
    """Who fills a buffer."""

    INPUT = "input"
    CONSTANT = "constant"
    TEMPORARY = "temporary"
    RESULT = "result"


@dataclass(frozen=True, eq=False)
class Buffer:
    """Elements in row-major order. A tensor's is called as it is, what nests fill by a number."""

    name: str
    dims: Dims
    dtype: str
    role: Role

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
    """The body for each value of a counter, from 0 up."""

    axis: Axis
    body: tuple[Statement, ...]


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


Statement = Let | Store | For | When | Require | Sort


@dataclass(frozen=True)
class Nest:
    """The loops that fill a buffer, and what they compute."""

    what: str
    buffer: Buffer
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Loops:
    """A program: its buffers, the nests in the order in which they run, and what it gives, from left to right."""

    name: str
    buffers: tuple[Buffer, ...]
    nests: tuple[Nest, ...]
    results: tuple[Buffer, ...]

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
            yield f"{indent}for i{statement.axis.number} < {statement.axis.size}"
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
        elif isinstance(statement, Require):
            yield f"{indent}{statement.local} within {statement.size}"
        else:
            way = "descending" if statement.descending else "ascending"
            yield f"{indent}{statement.positions}[{statement.place}..] = order of {statement.items}, {way}"
