"""Rules that fill a buffer with a term that is not computed element by element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product

from glenside.codegen.loop_ir.ir import Formula, Statement
from glenside.codegen.loop_ir.nest_builder import Filling, Places
from glenside.codegen.loop_ir.scalar_expr import number, weighted_sum
from glenside.codegen.lowering import gather_scatter, reductions, scatter_add
from glenside.ir.index_map import Index
from glenside.ir.operator import Category
from glenside.ir.operators.compute import compute_of
from glenside.ir.rational import exact_numbers
from glenside.ir.term import Term

_MAX_UNROLLED = 8
"""Maximum operands of a fold that is unrolled; a longer fold is a loop."""


def category_of(compute: Term) -> Category:
    """Returns the category of a compute, by its effect on items."""
    return compute_of(compute)[0].category


def is_unrolled(fold: Term) -> bool:
    """True if a fold is unrolled."""
    return fold.children[0].access.item[0] <= _MAX_UNROLLED


def filler(term: Term) -> Callable[[Filling], list[Statement]] | None:
    """Returns the rule that fills a buffer with a term; None if the term is computed or reduced element by element."""
    if term.operator.name != "compute":
        return OF_OPERATOR.get(term.operator.name)
    if category_of(term) is Category.FOLD and not is_unrolled(term):
        return reductions.folded
    return OF_COMPUTE.get(compute_of(term)[0].name)


def listed(nest: Filling) -> list[Statement]:
    """Stores the numbers that are listed in the program."""
    values = exact_numbers(str(nest.term.attributes[1])) or ()
    at = product(*(range(size) for size in nest.dims))
    return [
        nest.store([Index() + index for index in indices], number(value, nest.dtype))
        for indices, value in zip(at, values, strict=True)
    ]


def mapped(nest: Filling) -> list[Statement]:
    """Multiplies by a constant matrix along an axis: each row is a sum of integer multiples over one denominator."""
    child, axis, *_ = nest.term.arguments()

    def one(places: Places) -> list[Statement]:
        return [nest.store(place, value) for place, value in mapped_rows(nest, places)]

    return nest.each(child.access.dims.remove(axis), one)


def mapped_rows(nest: Filling, places: Places) -> list[tuple[Places, Formula]]:
    """Returns the products of a constant matrix with the elements along an axis, at given indices of the other axes."""
    child, axis, rows, coefficients = nest.term.arguments()
    values, columns = exact_numbers(str(coefficients)) or (), child.access.dims[axis]
    elements = [nest.pull(child, (*places[:axis], Index() + i, *places[axis:])) for i in range(columns)]
    made: list[tuple[Places, Formula]] = []
    for row in range(rows):
        value = weighted_sum(values[row * columns : (row + 1) * columns], elements, child.access.dtype)
        made.append(((*places[:axis], Index() + row, *places[axis:]), value))
    return made


OF_COMPUTE: Mapping[str, Callable[[Filling], list[Statement]]] = {
    "argmax": reductions.extreme,
    "argmin": reductions.extreme,
    "softmax": reductions.normalized,
    "log-softmax": reductions.normalized,
    "argsort": reductions.normalized,
}
OF_OPERATOR: Mapping[str, Callable[[Filling], list[Statement]]] = {
    "numbers": listed,
    "linear-map": mapped,
    "access-overlap-add": scatter_add.overlapped,
    "access-gather": gather_scatter.gathered,
    "access-gather-nd": gather_scatter.gathered_nd,
    "access-scatter-nd": gather_scatter.scattered,
    "overlap-add-product": scatter_add.overlapped_product,
}
