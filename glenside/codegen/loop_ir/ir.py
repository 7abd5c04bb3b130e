"""The loop IR: loop nests over buffers, in which each stored element has an index and a scalar formula.

Indices are quasi-affine expressions of loop counters, as in index maps. A guard of an index map becomes a `Choose`
between two formulas. Each value has a dtype of the language, with the semantics of `glenside.ir.primitives`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from functools import cached_property
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
    from glenside.ir.program import Program


class Role(Enum):
    """The storage class of a buffer."""

    INPUT = "input"
    CONSTANT = "constant"
    TEMPORARY = "temporary"
    RESULT = "result"
    SCRATCH = "scratch"  # private to a thread, live during one nest
    REGISTER = "register"  # of a tile: its indices are constant once the loops are unrolled


class Way(Enum):
    """The execution of a loop's iterations; all ways compute the same values."""

    LOOP = "for"
    PARALLEL = "parallel"  # in any order, by any thread
    UNROLLED = "unrolled"  # emitted one after the other
    VECTOR = "vector"  # vectorized: one instruction for all iterations
    APART = "apart"  # in a C function of its own, so that its registers do not compete with the code around it
    MATRIX = "matrix"  # a matrix product, by a matrix unit where there is one (`bf16_split_matmul`)


@dataclass(frozen=True, eq=False)
class Buffer:
    """An array in row-major order. A tensor's buffer has the tensor's name, a buffer that nests fill has a number.

    nibbles  n if C reads two elements of 4 bits from a byte, else 0: element e is in byte e // 2n * n + e % n, in the
             low half of the byte if e // n is even. n elements in a row are n bytes in a row, shifted by the same bits
    symmetric  True if no integer is the least one of the dtype: each has a negative
    """

    name: str
    dims: Dims
    dtype: str
    role: Role
    nibbles: int = 0
    symmetric: bool = False

    @cached_property
    def bytes(self) -> int:
        """Returns the size of all elements in bytes."""
        return self.dims.product() * RECORDS[self.dtype].numpy.itemsize // (2 if self.nibbles else 1)

    def place(self, indices: Sequence[Index]) -> Index:
        """Returns the flat index of the element at `indices`."""
        return flattened(indices, self.dims)

    def is_like(self, other: Buffer) -> bool:
        """True if both are stored in the same way."""
        kinds = [(one.dims, one.dtype, one.nibbles, one.symmetric) for one in (self, other)]
        return kinds[0] == kinds[1]

    def __str__(self) -> str:
        return self.name


# Formulas: the value of one element.


@dataclass(frozen=True)
class Number:
    """An exact constant; None is the lowest value of the dtype, the identity of a maximum."""

    value: Fraction | None
    dtype: str

    def __str__(self) -> str:
        return "lowest" if self.value is None else str(self.value)


@dataclass(frozen=True)
class Counter:
    """The value of an index."""

    index: Index
    dtype: str = "int64"

    def __str__(self) -> str:
        return str(self.index)


@dataclass(frozen=True)
class Local:
    """A scalar variable of a nest."""

    name: str
    dtype: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Load:
    """A read of the buffer element at index `place`, plus each variable of `picked` times its stride in elements."""

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
    """A primitive applied to operands."""

    primitive: Primitive
    operands: tuple[Formula, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.primitive.name}({', '.join(map(str, self.operands))})"


@dataclass(frozen=True)
class Convert:
    """A cast of a formula to another dtype; with `bits`, a reinterpretation of its bits."""

    formula: Formula
    dtype: str
    bits: bool = False

    def __str__(self) -> str:
        return f"{self.dtype}{' bits' if self.bits else ''}({self.formula})"


@dataclass(frozen=True)
class Choose:
    """`then` if all guards hold, else `otherwise`."""

    guards: tuple[Guard, ...]
    then: Formula
    otherwise: Formula

    @property
    def dtype(self) -> str:
        return self.then.dtype

    def __str__(self) -> str:
        return f"({self.then} if {' and '.join(map(str, self.guards))} else {self.otherwise})"


Formula = Number | Counter | Local | Load | Apply | Convert | Choose


# Statements.


@dataclass(frozen=True)
class Let:
    """Defines a variable in the enclosing loop; with `known`, assigns to a variable that is already defined."""

    local: Local
    formula: Formula
    known: bool = False


@dataclass(frozen=True)
class Store:
    """Writes a formula to the buffer element at index `place`, plus each variable of `picked` times its stride."""

    buffer: Buffer
    place: Index
    formula: Formula
    picked: tuple[tuple[Local, int], ...] = ()


@dataclass(frozen=True)
class For:
    """A loop: runs the body for each value of a counter, from 0 up.

    beside  (n, first) if the loop is fused with the loop before it, on the same threads at the same time. The previous
            loop's steps are cut into n equal parts; this loop's steps go with those parts from `first` on
    """

    axis: Axis
    body: tuple[Statement, ...]
    way: Way = Way.LOOP
    beside: tuple[int, int] | None = None


def is_parallel(statement: Statement) -> TypeGuard[For]:
    """True if the statement is a parallel loop."""
    return isinstance(statement, For) and statement.way is Way.PARALLEL


@dataclass(frozen=True)
class When:
    """Runs the body if all guards hold and `condition`, where there is one, is not 0."""

    guards: tuple[Guard, ...]
    body: tuple[Statement, ...]
    condition: Formula | None = None


@dataclass(frozen=True)
class Require:
    """Checks that -size <= variable < size, else ends the program with an error; adds `size` to a negative value."""

    local: Local
    size: int
    operator: str


@dataclass(frozen=True)
class Sort:
    """A stable argsort: writes the order of `count` elements of `items`, from `place` on, to `positions`."""

    items: Buffer
    positions: Buffer
    place: Index
    count: int
    descending: bool


@dataclass(frozen=True)
class Prefetch:
    """Prefetches the cache line at an index of a buffer, which may be past its end; has no effect on values.

    far  the line is needed later; a prefetch into the second-level cache is enough
    """

    buffer: Buffer
    place: Index
    far: bool = False


@dataclass(frozen=True)
class Fence:
    """A compiler barrier: later reads reload from memory, which frees registers for a tile; changes no value."""


Statement = Let | Store | For | When | Require | Sort | Prefetch | Fence


@dataclass(frozen=True)
class Nest:
    """The loops that fill a buffer.

    what      the names of the operators that the loops compute
    terms     the terms of the program that the loops compute
    block     the block (or softmax) from which the loops were scheduled, if a pass may reschedule it
    packings  packed operands, chosen when that block was scheduled
    steps     the counter of a loop around this nest and those beside it that have the same; indices contain it
    """

    what: str
    buffer: Buffer
    body: tuple[Statement, ...]
    terms: tuple[Term, ...] = field(default=(), compare=False)
    block: Block | Softmax | None = field(default=None, compare=False, repr=False)
    packings: tuple[Packing, ...] = field(default=(), compare=False, repr=False)
    steps: Axis | None = None


_COLUMNS = 64
"""The most columns of a packed panel whose copy loop is unrolled."""


@dataclass(frozen=True)
class Packing:
    """A packed operand: a copy of a buffer in the order in which tiles read it.

    `outer` and `inner` are (size, stride), strides in elements of the source. The last axis is cut into `pieces`,
    (first, width, count): panels of `width` columns. Each piece has the layout [outer][count][inner][width].

    deep      inner steps that are contiguous for each column: [outer][count][inner / deep][width][deep]
    together  the last inner axes that are flattened and cut into groups of `deep`, with zeros as padding at the end
    limits    the limits of the outer axes (`Axis.limit`)
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
    limits: tuple[int, ...] = ()

    def is_like(self, other: Packing) -> bool:
        """True if both copy equal buffers in the same way."""
        return replace(other, buffer=self.buffer, source=self.source) == self and self.buffer.is_like(other.buffer)

    @property
    def depth(self) -> int:
        """Returns the number of inner steps, padding included."""
        cut = len(self.inner) - self.together
        return prod(n for n, _ in self.inner[:cut]) * self._last

    @property
    def _last(self) -> int:
        return -(-prod(n for n, _ in self.inner[len(self.inner) - self.together :]) // self.deep) * self.deep

    def value(self, load: Load) -> Formula:
        """Returns the packed value of an element of the source."""
        return load

    def statements(self) -> tuple[Statement, ...]:
        """Returns the loops that fill the packed buffer."""
        made: list[Statement] = []
        depth, last = self.depth, self._last
        cut = len(self.inner) - self.together
        filled = prod(n for n, _ in self.inner[cut:])
        every = depth * sum(width * times for _, width, times in self.pieces)
        for begin, width, times in self.pieces:
            sizes = [*(n for n, _ in self.outer), times, *(n for n, _ in self.inner), width]
            strides = [*(s for _, s in self.outer), width * self.stride, *(s for _, s in self.inner), self.stride]
            for values in (True, False):
                if not values:  # padding: zeros behind the values
                    sizes = [*sizes[: len(self.outer) + 1 + cut], last - filled, width]
                limits = (*self.limits, *(0 for _ in sizes[len(self.limits) :]))
                axes = [Axis(i, n, limit) for i, (n, limit) in enumerate(zip(sizes, limits, strict=True))]
                if any(axis.size == 0 and not axis.limit for axis in axes):
                    continue
                at = [Index(((axis, 1),)) if axis.is_loop else Index() for axis in axes]
                outer, panel, *inner = at[: len(self.outer)], *at[len(self.outer) : -1]
                flat = flattened(outer, [n for n, _ in self.outer]) * every + begin * depth
                ends = flattened(inner[cut:], [n for n, _ in self.inner[cut:]]) if values else inner[-1] + filled
                within = flattened(inner[:cut], [n for n, _ in self.inner[:cut]]) * last + ends
                flat = flat + (panel * depth + within // self.deep * self.deep) * width
                flat = flat + at[-1] * self.deep + within % self.deep
                place = Index() + self.first + begin * self.stride
                for index, stride in zip(at, strides, strict=False):
                    place = place + index * stride
                value = self.value(Load(self.source, place)) if values else Number(Fraction(0), self.source.dtype)
                body: tuple[Statement, ...] = (Store(self.buffer, flat, value),)
                far = dict(zip(axes, [*strides, self.stride], strict=False))
                for axis in (axes[-1], *sorted(reversed(axes[:-1]), key=lambda axis: abs(far.get(axis, 0)))):
                    way = Way.UNROLLED if axis is axes[-1] and axis.size <= _COLUMNS else Way.LOOP
                    body = (For(axis, body, way),) if axis.is_loop else body
                made += body
        return tuple(made)


@dataclass(frozen=True)
class Layout:
    """The layout of a term in a buffer: elements of shape `dims`, from `offsets` on, with axes in `axis_order`.

    dims   the term's shape, or a reshape of it with the same elements in the same order
    sizes  the sizes of the whole buffer in the axis order; rows may be longer than the term's
    copy   True if this is a second copy, for a term that contains this one; the term itself is not read there
    """

    term: Term
    buffer: Buffer
    dims: Dims
    offsets: tuple[int, ...]
    axis_order: tuple[int, ...]
    sizes: Dims
    copy: bool = False


@dataclass(frozen=True)
class StepLoop:
    """A loop around nests: the program of its body, the loops of that, and where its buffers are at each step.

    places  buffer of the body's loops -> the buffer, and the index of its first element, which contains the counter
    """

    counter: Axis
    program: Program
    loops: Loops
    places: Mapping[Buffer, tuple[Buffer, Index]]


@dataclass(frozen=True)
class Loops:
    """A program: its buffers, its nests in execution order, and its results from left to right.

    packings  packed operands; those of constants are filled before the program runs
    layouts   the layouts of terms in buffers, which the verifier reads
    bodies    of loops around nests
    """

    name: str
    buffers: tuple[Buffer, ...]
    nests: tuple[Nest, ...]
    results: tuple[Buffer, ...]
    packings: tuple[Packing, ...] = ()
    layouts: tuple[Layout, ...] = field(default=(), compare=False)
    bodies: tuple[StepLoop, ...] = field(default=(), compare=False, repr=False)

    @property
    def titles(self) -> list[str]:
        """Returns a title for each nest: its buffer, dims and operators."""
        return [f"{nest.buffer} {' '.join(map(str, nest.buffer.dims))}: {nest.what}" for nest in self.nests]

    def __str__(self) -> str:
        lines = []
        for nest in self.nests:
            steps = f", for {nest.steps} < {nest.steps.size}" if nest.steps is not None else ""
            dims = "x".join(map(str, nest.buffer.dims)) or 1
            lines.append(f"{nest.buffer} {dims} {nest.buffer.dtype}: {nest.what}{steps}")
            lines += _lines(nest.body, "  ")
        return "\n".join([*lines, f"gives {', '.join(map(str, self.results))}"])


def required(loops: Loops) -> Iterator[Require]:
    """Yields the bounds checks of computed indices, in program order."""
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
