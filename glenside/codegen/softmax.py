"""softmax in vectors: the largest, the powers, their sum, the quotients, one row after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from glenside.codegen.affine import Change, changed, indices_of, is_affine, substituted
from glenside.codegen.blocks import Joined
from glenside.codegen.filling import Filling, under
from glenside.codegen.formulas import apply, number
from glenside.codegen.lanes import in_vectors, joined_in_lanes, lanes_of, run, spread
from glenside.codegen.loops import Buffer, Formula, Load, Local, Statement, Store
from glenside.codegen.machine import Machine
from glenside.ir.index_map import Axis, Index
from glenside.ir.operators.compute import name_of
from glenside.ir.types import Dims


@dataclass(frozen=True)
class Softmax:
    """For each place of the axes a row: along an axis, `element` becomes its share, at `place` of a buffer.

    largest, total  the variables of a row
    """

    axes: tuple[Axis, ...]
    along: Axis
    buffer: Buffer
    place: Index
    element: Formula
    largest: Local
    total: Local

    def with_places(self, change: Change) -> Softmax:
        """With other places, the same axes."""
        return replace(self, place=change(self.place), element=changed(self.element, change))

    def statements(self, axes: Iterator[int], machine: Machine) -> list[Statement] | None:
        """Its loops; None where elements are not next to each other."""
        dtype = self.buffer.dtype
        if not in_vectors(self.element, dtype) or not all(map(is_affine, (self.place, *indices_of(self.element)))):
            return None
        power = Load(self.buffer, self.place)
        joins = (
            Joined(self.largest, (self.along,), "max", number(None, dtype), self.element, True),
            Joined(self.total, (self.along,), "add", number(0, dtype), power, True),
        )
        most, total = (joined_in_lanes(joined, axes, machine) for joined in joins)
        if most is None or total is None:
            return None

        def each(formula: Formula) -> list[Statement]:
            def put(at: Index) -> list[Statement]:
                change = partial(substituted, places={self.along: at})
                return [Store(self.buffer, change(self.place), changed(formula, change))]

            return run(self.along, axes, lanes_of(dtype, machine), put)

        powers = each(apply("exp", apply("subtract", self.element, self.largest)))
        body = [*most, *powers, *total, *each(apply("divide", power, self.total))]
        steps = self.along.size
        for axis in self.axes:
            steps *= axis.size
        return spread([axis for axis in self.axes if axis.size != 1], body, steps)


def softmax(nest: Filling) -> Softmax | None:
    """The softmax that fills a buffer; None where it is none of vectors."""
    (child,) = nest.term.children
    shape, item, dtype = child.access.shape, child.access.item, nest.dtype
    row = Dims((item.product(),))
    if name_of(nest.term) != "softmax" or nest.view.dims != nest.dims or dtype not in ("float32", "float64"):
        return None
    axes, at = nest.counters(shape)
    (along,), (within,) = nest.counters(row)
    own = [*at, *under(item, row, (within,))]
    largest, total = nest.local(dtype), nest.local(dtype)
    place, element = nest.view.place(own), nest.pull(child, own)
    return Softmax(tuple(axes), along, nest.buffer, place, element, largest, total)
