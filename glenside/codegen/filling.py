"""What every nest is written with: loops over dims, variables, sums of products, and where elements come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Protocol

from glenside.codegen.formulas import apply, convert, number, sums_in
from glenside.codegen.loops import Buffer, For, Formula, Let, Local, Statement, Store
from glenside.ir.dtypes import widen
from glenside.ir.index_map import Axis, Index
from glenside.ir.term import Term
from glenside.ir.types import Dims

Places = Sequence[Index]


class Source(Protocol):
    """Where the elements of terms come from: `pull` where others read one, `formula` what it is."""

    buffers: dict[Term, Buffer]

    def pull(self, term: Term, places: Places) -> Formula: ...

    def formula(self, term: Term, places: Places) -> Formula: ...


class Filling:
    """The statements that fill one buffer with a term."""

    def __init__(self, source: Source, term: Term, buffer: Buffer) -> None:
        self.source, self.term, self.buffer = source, term, buffer
        self.pull = source.pull
        self.axes, self.locals = count(), count(1)

    def each(self, dims: Sequence[int], body: Callable[[Places], list[Statement]]) -> list[Statement]:
        """Loops over dims around what is done at their counters."""
        axes = [Axis(next(self.axes), n) for n in dims]
        inner = body([Index(((axis, 1),)) if axis.size != 1 else Index() for axis in axes])
        for axis in reversed(axes):
            if axis.size != 1:
                inner = [For(axis, tuple(inner))]
        return inner

    def let(self, formula: Formula) -> tuple[Local, Let]:
        """A new variable."""
        local = Local(f"v{next(self.locals)}", formula.dtype)
        return local, Let(local, formula)

    def store(self, places: Places, formula: Formula) -> Store:
        return Store(self.buffer, self.buffer.place(places), convert(formula, self.buffer.dtype))

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
            product: Formula = number(1, inner)
            for place, factor in enumerate(factors(within)):
                product = apply("multiply", product, convert(factor, inner)) if place else convert(factor, inner)
            return [Let(total, apply("add", total, product), known=True)]

        return [let, *self.each(item, add), store(convert(total, widen(dtype)))]

    def zero(self) -> list[Statement]:
        zero = number(0, self.buffer.dtype)
        return self.each(self.buffer.dims, lambda places: [self.store(places, zero)])
