"""Lowers gathers and scatters: accesses at computed indices."""

from __future__ import annotations

from glenside.codegen.loop_ir.ir import For, Formula, Load, Local, Require, Role, Statement, Store
from glenside.codegen.loop_ir.nest_builder import Filling, Places, View
from glenside.codegen.loop_ir.scalar_expr import apply, convert, number
from glenside.ir.dtypes import limits
from glenside.ir.index_map import Index
from glenside.ir.term import Term


def gathered(nest: Filling) -> list[Statement]:
    """Gathers elements along one axis at computed indices."""
    a, indices, axis = nest.term.arguments()
    source, count_ = nest.source.views[a], indices.access.rank
    step = source.stride(axis, a.access.dims)

    def one(places: Places) -> list[Statement]:
        index, let = nest.let(position_of(nest.pull(indices, places[axis : axis + count_])))
        place = source.place((*places[:axis], Index(), *places[axis + count_ :]))
        held = Require(index, a.access.dims[axis], "access-gather")
        return [let, held, nest.store(places, Load(source.buffer, place, ((index, step),)))]

    return nest.each(nest.dims, one)


def _picked(
    nest: Filling, view: View, a: Term, indices: Term, at: Places, shared: int
) -> tuple[list[Statement], tuple[tuple[Local, int], ...]]:
    """Computes the indices along the axes after the `shared` ones: returns statements, and (index, stride) pairs."""
    statements: list[Statement] = []
    picked = []
    for axis in range(indices.access.dims[-1]):
        size = a.access.dims[shared + axis]
        index, let = nest.let(position_of(nest.pull(indices, (*at, Index() + axis))))
        statements += [let, Require(index, size, nest.term.operator.name)]
        picked.append((index, view.stride(shared + axis, a.access.dims)))
    return statements, tuple(picked)


def gathered_nd(nest: Filling) -> list[Statement]:
    """Gathers elements at computed indices of several axes."""
    a, indices, shared = nest.term.arguments()
    source, lead, numbers = nest.source.views[a], indices.access.rank - 1, indices.access.dims[-1]

    def one(places: Places) -> list[Statement]:
        statements, picked = _picked(nest, source, a, indices, places[:lead], shared)
        place = source.place((*places[:shared], *(Index() for _ in range(numbers)), *places[lead:]))
        return [*statements, nest.store(places, Load(source.buffer, place, picked))]

    return nest.each(nest.dims, one)


def scattered(nest: Filling) -> list[Statement]:
    """Copies the operand, then applies the updates in order.

    If the result may be in the memory of an input, all indices are checked before: a refused call changes nothing.
    """
    a, indices, updates, shared, reduction = nest.term.arguments()
    lead, numbers = indices.access.rank - 1, indices.access.dims[-1]
    name = {"add": "add", "mul": "multiply", "min": "min", "max": "max"}.get(str(reduction))

    def put(places: Places) -> list[Statement]:
        statements, picked = _picked(nest, nest.view, a, indices, places[:lead], shared)
        place = nest.view.place((*places[:shared], *(Index() for _ in range(numbers)), *places[lead:]))
        new = nest.pull(updates, places)
        value = new if name is None else apply(name, Load(nest.buffer, place, picked), new)
        return [*statements, Store(nest.buffer, place, value, picked)]

    def check(places: Places) -> list[Statement]:
        return _picked(nest, nest.view, a, indices, places, shared)[0]

    copied = nest.each(nest.dims, lambda places: [nest.store(places, nest.pull(a, places))])
    found = [*copied, *nest.each(updates.access.dims, put)]
    if nest.buffer.role is not Role.RESULT or a.operator.name != "access-tensor":
        return found
    checks = nest.each(indices.access.dims.take(lead), check)
    return [*(checks if isinstance(checks[0], For) else ()), *found]  # a single one is checked before it is stored


def position_of(index: Formula) -> Formula:
    """Converts a computed index to int64, saturating: a too large uint64 must not wrap to an index from the end."""
    largest = limits("int64")[1]
    return convert(apply("min", index, number(largest, "uint64")) if index.dtype == "uint64" else index, "int64")
