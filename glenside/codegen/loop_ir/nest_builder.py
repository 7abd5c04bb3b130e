"""Builds nests: loops over dims, variables, views of buffers, and the sources of elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Protocol

from glenside.codegen.loop_ir.ir import Buffer, For, Formula, Layout, Let, Local, Role, Statement, Store
from glenside.codegen.loop_ir.open_axes import axis_of
from glenside.codegen.loop_ir.scalar_expr import apply, convert, number, sums_in
from glenside.ir.dtypes import RECORDS, widen
from glenside.ir.index_map import Axis, Index, flattened, reshaped
from glenside.ir.term import Term
from glenside.ir.types import Dims

Places = Sequence[Index]
_IN_A_ROW = 32
"""The maximum factors that are multiplied one after the other."""


_SET = 1 << 11
"""Bytes: addresses whose distance is a multiple of it map to the same first-level cache set on most processors."""
_APART = 64
"""Bytes of padding per row that avoid such conflicts: a cache line."""


class Memory:
    """A buffer to be allocated. Its axis order is assigned once; nothing can be stored or read before.

    axis_order  the order of axes in memory; None: not assigned yet
    apart  True if rows that would map to the same cache sets are padded
    symmetric  `Buffer.symmetric`
    shown  the dims of the buffer, if a result has other dims than its parts, with elements in the same order
    """

    def __init__(
        self,
        name: str,
        dims: Dims,
        dtype: str,
        role: Role,
        apart: bool = False,
        axis_order: tuple[int, ...] | None = None,
        shown: Dims | None = None,
        symmetric: bool = False,
    ) -> None:
        self.name, self.dims, self.dtype, self.role, self.apart = name, dims, dtype, role, apart
        self._axis_order, self.shown, self.symmetric = axis_order, shown, symmetric

    @property
    def is_fixed(self) -> bool:
        """True if the axis order is assigned."""
        return self._axis_order is not None

    @property
    def axis_order(self) -> tuple[int, ...]:
        assert self._axis_order is not None, f"{self.name} is used before its axis order is assigned"
        return self._axis_order

    def assign(self, order: tuple[int, ...]) -> None:
        """Assigns the axis order."""
        assert self._axis_order is None, f"the axis order of {self.name} is assigned twice"
        self._axis_order = order

    def row_major(self) -> None:
        """Assigns the order of the axes themselves, unless an order is assigned."""
        self._axis_order = tuple(range(len(self.dims))) if self._axis_order is None else self._axis_order

    @cached_property
    def buffer(self) -> Buffer:
        dims = self.dims.permute(self.axis_order)
        size = RECORDS[self.dtype].numpy.itemsize
        if self.apart and size and len(dims) > 1 and dims.product() > dims[-1] and dims[-1] * size % _SET == 0:
            dims = Dims((*dims[:-1], dims[-1] + _APART // size))
        return Buffer(self.name, self.shown or dims, self.dtype, self.role, symmetric=self.symmetric)

    @property
    def _sizes(self) -> Dims:
        """Returns the row-major storage dims: in the chosen axis order, with padded rows."""
        return self.dims.permute(self.axis_order) if self.shown else self.buffer.dims

    def place(self, indices: Places) -> Index:
        """Returns the flat index of the element at `indices`."""
        return flattened([indices[axis] for axis in self.axis_order], self._sizes)

    def layout(self, term: Term, dims: Dims, offsets: tuple[int, ...]) -> Layout:
        """Returns the layout of a term of shape `dims` from `offsets` on."""
        return Layout(term, self.buffer, dims, offsets, self.axis_order, self._sizes)

    def stride(self, axis: int) -> int:
        """Returns the stride of an axis, in elements."""
        return self._sizes.drop(self.axis_order.index(axis) + 1).product()


@dataclass(frozen=True)
class View:
    """A window of shape `dims` in a memory, from `offsets` on; there may be padding around it."""

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
        """Returns the flat index of the element at `indices`, given in `dims` (default: the view's dims)."""
        own = indices if dims is None or dims == self.dims else under(self.dims, dims, indices)
        moved = [index + offset for index, offset in zip(own, self.offsets, strict=True)]
        return self.memory.place(moved)

    def layout(self, term: Term) -> Layout:
        """Returns the layout of a term that is stored in the view."""
        return self.memory.layout(term, self.dims, self.offsets)

    def stride(self, axis: int, dims: Dims) -> int:
        """Returns the stride of an axis of the view, in elements, for a computed index."""
        assert dims == self.dims, "what computed indices address lies in its own dims"
        return self.memory.stride(axis)


class Source(Protocol):
    """A source of the elements of terms: `views` of those in memory; `pull` returns the formula of an element."""

    views: dict[Term, View]

    def pull(self, term: Term, places: Places) -> Formula: ...


class Filling:
    """Builds the statements that fill one view with a term.

    dims  the term's dims; the view's dims may be a reshape of them
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
        """Returns new axes of sizes `dims`, and their counters as indices."""
        axes = [axis_of(next(self.axes), n) for n in dims]
        return axes, [Index(((axis, 1),)) if axis.is_loop else Index() for axis in axes]

    def each(self, dims: Sequence[int], body: Callable[[Places], list[Statement]]) -> list[Statement]:
        """Returns loops over `dims` around `body` of their counters."""
        axes, places = self.counters(dims)
        return around(axes, body(places))

    def let(self, formula: Formula) -> tuple[Local, Let]:
        """Returns a new variable, and the statement that defines it."""
        local = self.local(formula.dtype)
        return local, Let(local, formula)

    def local(self, dtype: str) -> Local:
        """Returns a new variable."""
        return Local(f"v{next(self.locals)}", dtype)

    def store(self, places: Places, formula: Formula) -> Store:
        """Returns the store of a formula at indices of the term's dims, cast to the term's dtype."""
        return Store(self.buffer, self.view.place(places, self.dims), convert(formula, self.dtype))

    def summed(
        self,
        item: Dims,
        dtype: str,
        factors: Callable[[Places], list[Formula]],
        store: Callable[[Formula], Statement],
    ) -> list[Statement]:
        """Returns the reduction loops: the sum over `item` of products of `factors`, then `store` of that sum."""
        inner = sums_in(dtype)
        total, let = self.let(number(0, inner))

        def add(within: Places) -> list[Statement]:
            return [Let(total, apply("add", total, product(factors(within), inner)), known=True)]

        return [let, *self.each(item, add), store(convert(total, widen(dtype)))]

    def zero(self) -> list[Statement]:
        """Returns the loops that fill the view with zeros."""
        return self.each(self.dims, lambda places: [self.store(places, number(0, self.dtype))])


def around(axes: Sequence[Axis], body: Sequence[Statement]) -> list[Statement]:
    """Returns loops over `axes` around `body`, the first axis outermost; axes of size 1 have no loop."""
    inner = list(body)
    for axis in reversed(axes):
        if axis.is_loop:
            inner = [For(axis, tuple(inner))]
    return inner


def product(factors: Sequence[Formula], dtype: str) -> Formula:
    """Returns the product of factors, each cast to a dtype; without factors, 1. Many are multiplied in a tree, so that
    formulas are not deep.
    """
    if len(factors) > _IN_A_ROW:
        half = len(factors) // 2
        return apply("multiply", product(factors[:half], dtype), product(factors[half:], dtype))
    found: Formula | None = None
    for factor in factors:
        own = convert(factor, dtype)
        found = own if found is None else apply("multiply", found, own)
    return number(1, dtype) if found is None else found


def under(dims: Dims, other: Dims, indices: Places) -> Places:
    """Converts indices in `other` to indices in `dims`, a reshape with the same elements in the same order."""
    (piece,) = reshaped(dims, other).pieces
    return piece.at(indices).indices
