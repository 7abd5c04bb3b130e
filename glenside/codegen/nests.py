"""What fills a buffer with a term: by the record's kind, else element by element."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from glenside.codegen import addressed, products, reductions
from glenside.codegen.filling import Filling, Places
from glenside.codegen.formulas import apply, number, weighted_sum
from glenside.codegen.loops import Formula, Load, Statement, Store
from glenside.ir.index_map import Index
from glenside.ir.operator import Category
from glenside.ir.operators.compute import parse_compute
from glenside.ir.rational import exact_numbers
from glenside.ir.term import Term

_UNROLLED = 8
"""Operands of a fold that are written one after the other; more are a loop."""


def category_of(compute: Term) -> Category:
    """What a compute does to its items."""
    return parse_compute(str(compute.attributes[0]))[0].category


def is_unrolled(fold: Term) -> bool:
    """Whether the operands of a fold are written one after the other."""
    return fold.children[0].access.item[0] <= _UNROLLED


def fill(nest: Filling) -> list[Statement]:
    """The loops, by the record's kind; element by element unless something is known of it."""
    term = nest.term
    found = OF_OPERATOR.get(term.operator.name)
    if term.operator.name == "compute":
        found = OF_CATEGORY.get(category_of(term))
        if found is None and category_of(term) is Category.FOLD and not is_unrolled(term):
            found = reductions.folded
    if found is not None:
        return found(nest)
    return nest.each(term.access.dims, lambda places: [nest.store(places, _whole(nest, places))])


def _whole(nest: Filling, places: Places) -> Formula:
    """An element of the term itself, which is a buffer to others."""
    if nest.term.operator.name == "access-tensor":
        return nest.source.pull(nest.term, places)
    return nest.source.formula(nest.term, places)


def listed(nest: Filling) -> list[Statement]:
    """Numbers that the program spells out."""
    values = exact_numbers(str(nest.term.attributes[1])) or ()
    return [Store(nest.buffer, Index() + i, number(value, nest.buffer.dtype)) for i, value in enumerate(values)]


def mapped(nest: Filling) -> list[Statement]:
    """A constant matrix along an axis: each row a sum of whole multiples over one denominator."""
    child, axis, rows, coefficients = nest.term.arguments()
    dims, values = child.access.dims, exact_numbers(str(coefficients)) or ()
    columns, dtype = dims[axis], child.access.dtype

    def one(places: Places) -> list[Statement]:
        made: list[Statement] = []
        for row in range(rows):
            own = values[row * columns : (row + 1) * columns]
            elements = [nest.pull(child, (*places[:axis], Index() + i, *places[axis:])) for i in range(columns)]
            made.append(nest.store((*places[:axis], Index() + row, *places[axis:]), weighted_sum(own, elements, dtype)))
        return made

    return nest.each(dims.remove(axis), one)


def overlapped(nest: Filling) -> list[Statement]:
    """Windows added up where they lie."""
    child, out, strides = nest.term.arguments()
    axes, dims = len(out), child.access.dims
    lead = len(dims) - 2 * axes

    def add(at: Places) -> list[Statement]:
        counts, within = at[lead : lead + axes], at[lead + axes :]
        places = [*at[:lead], *(c * t + w for c, t, w in zip(counts, strides, within, strict=True))]
        place = nest.buffer.place(places)
        return [Store(nest.buffer, place, apply("add", Load(nest.buffer, place), nest.pull(child, at)))]

    return [*nest.zero(), *nest.each(dims, add)]


OF_CATEGORY: Mapping[Category, Callable[[Filling], list[Statement]]] = {
    Category.REDUCTION: reductions.reduced,
    Category.CONTRACTION: products.contracted,
    Category.NORMALIZATION: reductions.normalized,
}
OF_OPERATOR: Mapping[str, Callable[[Filling], list[Statement]]] = {
    "numbers": listed,
    "linear-map": mapped,
    "access-overlap-add": overlapped,
    "access-gather": addressed.gathered,
    "access-gather-nd": addressed.gathered_nd,
    "access-scatter-nd": addressed.scattered,
    "tiled-product": products.tiled,
    "systolic-array": products.tile_product,
    "systolic-array-output-stationary": products.tile_product,
    "systolic-array-with-blocking": products.tile_product,
    "overlap-add-product": products.overlapped_product,
    "product-unit": products.unit,
}
