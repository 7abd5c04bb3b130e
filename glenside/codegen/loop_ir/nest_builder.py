"""What every nest is written with: loops over dims, variables, views of buffers, and where elements come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from glenside.codegen.loop_ir.ir import Buffer, For, Formula, Layout, Let, Local, Role, Statement, Store
from glenside.codegen.loop_ir.scalar_expr import apply, convert, number, sums_in
from glenside.ir.dtypes import RECORDS, widen
from glenside.ir.index_map import Axis, Index, flattened, reshaped
from glenside.ir.term import Term
from glenside.ir.types import Dims

Places = Sequence[Index]


_SET = 1 << 11
"""Bytes: what lies multiples of it apart takes the same few places of the nearest cache of most processors."""
_APART = 64
"""Bytes by which it is moved apart: a line."""


class Memory:
    """What a buffer holds, and in which order of its axes; until that is asked for, another order may be chosen.

    apart  whether rows are moved apart that would take the same places in a cache
    shown  the dims of the buffer, where a result has others than what it is put together of, in the same order
    """

    def __init__(self, name: str, dims: Dims, dtype: str, role: Role, apart: bool = False) -> None:
        self.name, self.dims, self.dtype, self.role, self.apart = name, dims, dtype, role, apart
        self.order = tuple(range(len(dims)))
        self.shown: Dims | None = None
        self._buffer: Buffer | None = None

    @property
    def is_fixed(self) -> bool:
        """Whether the order is chosen: tensors and results are in their own."""
        return self._buffer is not None or self.role is not Role.TEMPORARY

    @property
    def buffer(self) -> Buffer:
        if self._buffer is None:
            dims = self.dims.permute(self.order)
            size = RECORDS[self.dtype].numpy.itemsize
            if self.apart and size and len(dims) > 1 and dims.product() > dims[-1] and dims[-1] * size % _SET == 0:
                dims = Dims((*dims[:-1], dims[-1] + _APART // size))
            self._buffer = Buffer(self.name, self.shown or dims, self.dtype, self.role)
        return self._buffer

    @property
    def _sizes(self) -> Dims:
        """The dims in whose row-major order the elements lie, in the chosen order of axes, with padded rows."""
        return self.dims.permute(self.order) if self.shown else self.buffer.dims

    def place(self, indices: Places) -> Index:
        """Where in the buffer the element at some indices is."""
        return flattened([indices[axis] for axis in self.order], self._sizes)

    def layout(self, term: Term, dims: Dims, offsets: tuple[int, ...]) -> Layout:
        """Where elements of some dims lie, from offsets on."""
        return Layout(term, self.buffer, dims, offsets, self.order, self._sizes)

    def stride(self, axis: int) -> int:
        """Elements of the buffer between neighbours along an axis."""
        return self._sizes.drop(self.order.index(axis) + 1).product()


@dataclass(frozen=True)
class View:
    """Elements of some dims within a memory, which may have a border around them: the first one is at `offsets`."""

    memory: Memory
    dims: Dims
    offsets: tuple[int, ...]

    @staticmethod
    def whole(memory: Memory) -> View:
        return View(memory, memory.dims, (0,) * len(memory.dims))

    @property
    def buffer(self) -> Buffer:
        return self.memory.buffer

    def place(self, indices: Places, dims: Dims | None = None) -> Index:
        """Where in the buffer the element is that has those indices, in these dims or in others."""
        own = indices if dims is None or dims == self.dims else under(self.dims, dims, indices)
        moved = [index + offset for index, offset in zip(own, self.offsets, strict=True)]
        return self.memory.place(moved)

    def layout(self, term: Term) -> Layout:
        """The same as data: where a term lies."""
        return self.memory.layout(term, self.dims, self.offsets)

    def stride(self, axis: int, dims: Dims) -> int:
        """Elements of the buffer between neighbours along an axis of the view: how far a computed index moves."""
        assert dims == self.dims, "what computed indices address lies in its own dims"
        return self.memory.stride(axis)


class Source(Protocol):
    """Where the elements of terms come from: where those in memory lie, and what reads one of any."""

    views: dict[Term, View]

    def pull(self, term: Term, places: Places) -> Formula: ...


class Filling:
    """The statements that fill one view with a term.

    dims  the term's own; those of the view may be others, with the same elements in the same order
    """

    def __init__(self, source: Source, term: Term, view: View) -> None:
        self.source, self.term, self.view = source, term, view
        self.dims, self.dtype = term.access.dims, term.access.dtype
        self.pull = source.pull
        self.axes, self.locals = count(), count(1)

    @property
    def buffer(self) -> Buffer:
        return self.view.buffer

    def counters(self, dims: Sequence[int]) -> tuple[list[Axis], Places]:
        """New axes, and their counters as places."""
        axes = [Axis(next(self.axes), n) for n in dims]
        return axes, [Index(((axis, 1),)) if axis.size != 1 else Index() for axis in axes]

    def each(self, dims: Sequence[int], body: Callable[[Places], list[Statement]]) -> list[Statement]:
        """Loops over dims around what is done at their counters."""
        axes, places = self.counters(dims)
        return around(axes, body(places))

    def let(self, formula: Formula) -> tuple[Local, Let]:
        """A new variable."""
        local = self.local(formula.dtype)
        return local, Let(local, formula)

    def local(self, dtype: str) -> Local:
        """The name of a new variable."""
        return Local(f"v{next(self.locals)}", dtype)

    def store(self, places: Places, formula: Formula) -> Store:
        """The element at those places of the term's dims becomes a formula."""
        return Store(self.buffer, self.view.place(places, self.dims), convert(formula, self.dtype))

    def summed(
        self,
        item: Dims,
        dtype: str,
        factors: Callable[[Places], list[Formula]],
        store: Callable[[Formula], Statement],
    ) -> list[Statement]:
        """The sum over an item of products of factors, and what is done with it."""
        inner = sums_in(dtype)
        total, let = self.let(number(0, inner))

        def add(within: Places) -> list[Statement]:
            return [Let(total, apply("add", total, product(factors(within), inner)), known=True)]

        return [let, *self.each(item, add), store(convert(total, widen(dtype)))]

    def zero(self) -> list[Statement]:
        """Zeros everywhere."""
        return self.each(self.dims, lambda places: [self.store(places, number(0, self.dtype))])


def around(axes: Sequence[Axis], body: Sequence[Statement]) -> list[Statement]:
    """Loops over axes, the first one outermost."""
    inner = list(body)
    for axis in reversed(axes):
        if axis.size != 1:
            inner = [For(axis, tuple(inner))]
    return inner


def product(factors: Sequence[Formula], dtype: str) -> Formula:
    """Factors multiplied, in a dtype."""
    found: Formula | None = None
    for factor in factors:
        own = convert(factor, dtype)
        found = own if found is None else apply("multiply", found, own)
    return number(1, dtype) if found is None else found


def under(dims: Dims, other: Dims, indices: Places) -> Places:
    """Where in dims the element is that has those indices in other dims."""
    (piece,) = reshaped(dims, other).pieces
    return piece.at(indices).indices
