"""Schedules softmax and log-softmax in vectors: maximum, exponentials, their sum and the quotients, row by row.

Rows that are shorter than a vector are processed in groups: elementwise steps, such as the exponentials, run over all
elements of a group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from glenside.codegen.loop_ir.affine_analysis import (
    Change,
    at,
    changed,
    coefficient,
    indices_of,
    is_affine,
    is_direct,
    substituted,
)
from glenside.codegen.loop_ir.compute_block import Joined
from glenside.codegen.loop_ir.ir import Buffer, Formula, Let, Load, Local, Role, Statement, Store
from glenside.codegen.loop_ir.nest_builder import Filling, around, under
from glenside.codegen.loop_ir.open_axes import axis_of
from glenside.codegen.loop_ir.scalar_expr import apply, convert, number
from glenside.codegen.processor.model import Machine
from glenside.codegen.scheduling.vectorize import in_vectors, joined_in_lanes, lanes_of, run, runs_along, spread
from glenside.ir.dtypes import FLOATS, HALVES
from glenside.ir.index_map import Axis, Index
from glenside.ir.operators.compute import name_of
from glenside.ir.types import Dims

_PASSES = 5
"""Scalar passes over a short row, by which its steps are counted."""


@dataclass(frozen=True)
class Softmax:
    """A softmax of rows: for each step of `axes`, normalizes `element` along `along` and stores it at `place`.

    element         in `largest`'s dtype: float32 for floats of 16 bits
    largest, total  variables of a row: its maximum and its sum of exponentials
    logarithm       True for log-softmax
    """

    axes: tuple[Axis, ...]
    along: Axis
    buffer: Buffer
    place: Index
    element: Formula
    largest: Local
    total: Local
    logarithm: bool = False

    def with_places(self, change: Change) -> Softmax:
        """Returns the softmax with each index replaced by `change` of it."""
        return replace(self, place=change(self.place), element=changed(self.element, change))

    def _indices(self) -> list[Index]:
        return [self.place, *indices_of(self.element)]

    @property
    def is_affine(self) -> bool:
        """True if no quotient is in an index: then passes may schedule the softmax anew."""
        return all(map(is_affine, self._indices()))

    def statements(self, axes: Iterator[int], machine: Machine) -> list[Statement] | None:
        """Returns the loops, or None if they cannot be vectorized."""
        dtype = self.largest.dtype
        if not in_vectors(self.element, dtype) or not all(is_direct(index, self.along) for index in self._indices()):
            return None
        narrow = self.buffer.dtype != dtype
        powers = Buffer("powers", Dims((self.along.size,)), dtype, Role.SCRATCH) if narrow else self.buffer
        power = Load(powers, at(self.along) if narrow else self.place)
        lowered = apply("subtract", self.element, self.largest)
        summed = apply("exp", lowered) if self.logarithm else power
        joins = (
            Joined(self.largest, (self.along,), "max", number(None, dtype), self.element, True),
            Joined(self.total, (self.along,), "add", number(0, dtype), summed, True),
        )
        most, total = (joined_in_lanes(joined, axes, machine) for joined in joins)
        if most is None or total is None:
            return None if narrow or not self.is_affine else self._of_short(axes, machine)
        each = partial(self._each, axes=axes, machine=machine)
        if self.logarithm:
            logarithm = Let(self.total, apply("log", self.total), known=True)
            body = [*most, *total, logarithm, *each(apply("subtract", lowered, self.total))]
        else:
            exponentials = self._each(apply("exp", lowered), axes, machine, power)
            body = [*most, *exponentials, *total, *each(apply("divide", power, self.total))]
        return spread([axis for axis in self.axes if axis.is_loop], body, self._steps)

    @property
    def _steps(self) -> int:
        return prod(axis.size for axis in (*self.axes, self.along))

    def _each(self, formula: Formula, axes: Iterator[int], machine: Machine, to: Load | None = None) -> list[Statement]:
        """Returns the loop that stores a formula for each element of a row: to the result, or where `to` reads."""
        to = to or Load(self.buffer, self.place)

        def put(at: Index) -> list[Statement]:
            change = partial(substituted, places={self.along: at})
            return [Store(to.buffer, change(to.place), convert(changed(formula, change), to.dtype))]

        lanes = lanes_of(self.largest.dtype, machine) if runs_along(formula, self.along) else 1
        return run(self.along, axes, lanes, put)

    def _of_short(self, axes: Iterator[int], machine: Machine) -> list[Statement] | None:
        """Returns loops over groups of rows, one row per vector lane; None if rows are not contiguous or too few."""
        lanes, size = lanes_of(self.buffer.dtype, machine), self.along.size
        rows = next((axis for axis in self.axes if coefficient(self.place, axis) == size), None)
        if not 1 < size < lanes or coefficient(self.place, self.along) != 1 or rows is None or rows.size < lanes:
            return None
        outer, made = [axis for axis in self.axes if axis not in (rows, self.along) and axis.is_loop], []
        for begin, count, times in ((0, lanes, rows.size // lanes), (rows.size // lanes * lanes, rows.size % lanes, 1)):
            block, row = axis_of(next(axes), times), axis_of(next(axes), count)
            if count:
                body = self._block(rows, at(block) * lanes + begin, row, axes, machine)
                made += spread([block, *outer], body, _PASSES * self._steps * count * times // rows.size)
        return made

    def _block(self, rows: Axis, first: Index, row: Axis, axes: Iterator[int], machine: Machine) -> list[Statement]:
        """Returns the loops of a group of rows: maximum and sum row by row, functions over all elements."""
        dtype, size = self.buffer.dtype, self.along.size
        lanes = lanes_of(dtype, machine)
        own = self.with_places(partial(substituted, places={rows: first + at(row)}))
        powers, sums = self.buffer, Buffer("sums", Dims((row.size,)), dtype, Role.SCRATCH)
        within, begin = own.place, substituted(own.place, {row: Index(), self.along: Index()})
        if self.logarithm:
            powers = Buffer("powers", Dims((row.size, size)), dtype, Role.SCRATCH)
            within, begin = at(row) * size + at(self.along), Index()
        flat = substituted(own.place, {row: Index(), self.along: Index()})
        most = Joined(self.largest, (self.along,), "max", number(None, dtype), own.element, True)
        total = Joined(self.total, (self.along,), "add", number(0, dtype), Load(powers, within), True)
        each = partial(own._each, axes=axes, machine=machine)
        lowered, here = apply("subtract", own.element, self.largest), Load(self.buffer, own.place)
        every = axis_of(next(axes), row.size * size)
        made = around([row], [*most.statements(), *each(lowered)])
        made += run(every, axes, lanes, lambda n: [Store(powers, begin + n, apply("exp", Load(self.buffer, flat + n)))])
        if not self.logarithm:
            return [*made, *around([row], [*total.statements(), *each(apply("divide", here, self.total))])]
        made += around([row], [*total.statements(), Store(sums, at(row), self.total)])
        made += run(row, axes, lanes, lambda n: [Store(sums, n, apply("log", Load(sums, n)))])
        return [*made, *around([row], each(apply("subtract", here, Load(sums, at(row)))))]


def softmax(nest: Filling) -> Softmax | None:
    """Returns the softmax or log-softmax that fills a view, or None if the term is another operator or dtype."""
    (child,) = nest.term.children
    shape, item, dtype = child.access.shape, child.access.item, nest.dtype
    row = Dims((item.product(),))
    name = name_of(nest.term)
    if name not in ("softmax", "log-softmax") or nest.view.dims != nest.dims or dtype not in FLOATS:
        return None
    axes, at = nest.counters(shape)
    (along,), (within,) = nest.counters(row)
    own = [*at, *under(item, row, (within,))]
    wide = "float32" if dtype in HALVES else dtype
    largest, total = nest.local(wide), nest.local(wide)
    place, element = nest.view.place(own), convert(nest.pull(child, own), wide)
    return Softmax(tuple(axes), along, nest.buffer, place, element, largest, total, name == "log-softmax")
