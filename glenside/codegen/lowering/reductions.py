"""Lowers operators that read the elements of an item repeatedly or in order: long folds, argmax, softmax, sorts."""

from __future__ import annotations

from glenside.codegen.loop_ir.ir import Counter, Formula, Let, Sort, Statement, When
from glenside.codegen.loop_ir.nest_builder import Filling, Places
from glenside.codegen.loop_ir.scalar_expr import applied, apply, convert, number, sums_in
from glenside.ir.dtypes import REALS, wider
from glenside.ir.index_map import Index, flattened
from glenside.ir.operators.compute import compute_of
from glenside.ir.term import Term


def folded(nest: Filling) -> list[Statement]:
    """Folds many operands along the first item axis, from left to right."""
    kind, parameters = compute_of(nest.term)
    expression, (child,) = kind.expression(*parameters), nest.term.children
    split, operands = child.access.split, child.access.item[0]

    def one(at: Places) -> list[Statement]:
        def operand(index: Index) -> Formula:
            return nest.pull(child, (*at[:split], index, *at[split:]))

        found, let = nest.let(operand(Index()))

        def join(within: Places) -> list[Statement]:
            return [Let(found, applied(expression, [found, operand(within[0] + 1)]), known=True)]

        return [let, *nest.each((operands - 1,), join), nest.store(at, found)]

    return nest.each(nest.dims, one)


def extreme(nest: Filling) -> list[Statement]:
    """Computes the index of the largest or smallest element of each item."""
    (child,) = nest.term.children
    relation = "gt" if "argmax" in str(nest.term.attributes[0]) else "lt"
    return nest.each(child.access.shape, lambda at: _extreme(nest, child, at, relation))


def _extreme(nest: Filling, child: Term, at: Places, relation: str) -> list[Statement]:
    item = child.access.item
    best, let = nest.let(nest.pull(child, (*at, *(Index() for _ in item))))
    position, start = nest.let(number(0, "int64"))

    long = [axis for axis, size in enumerate(item) if size != 1]
    later = item if len(long) != 1 else item.set(long[0], item[long[0]] - 1)

    def look(at_later: Places) -> list[Statement]:
        within = [
            index + int(len(long) == 1 and axis == long[0]) for axis, index in enumerate(at_later)
        ]  # not the first
        value, here = nest.let(nest.pull(child, (*at, *within)))
        place = flattened(within, item)
        better = apply(relation, value, best)
        if child.access.dtype in REALS:  # the first nan wins, as in numpy
            nan = apply("logical-and", apply("ne", value, value), apply("eq", best, best))
            better = apply("logical-or", better, nan)
        changes = Let(best, value, known=True), Let(position, Counter(place), known=True)
        return [here, When((), changes, better)]

    return [let, start, *nest.each(later, look), nest.store(at, position)]


def normalized(nest: Filling) -> list[Statement]:
    """Computes softmax or log-softmax in three passes over each item; argsort with the library's sort."""
    name = compute_of(nest.term)[0].name
    (child,) = nest.term.children
    shape, item, dtype = child.access.shape, child.access.item, child.access.dtype
    if name == "argsort":
        return _sorted(nest, child)
    inner = wider(dtype)

    def one(at: Places) -> list[Statement]:
        largest, let = nest.let(number(None, inner))
        total, start = nest.let(number(0, sums_in(dtype)))

        def below(within: Places) -> Formula:
            return apply("subtract", convert(nest.pull(child, (*at, *within)), inner), largest)

        def most(within: Places) -> list[Statement]:
            element = convert(nest.pull(child, (*at, *within)), inner)
            return [Let(largest, apply("max", largest, element), known=True)]

        def add(within: Places) -> list[Statement]:
            power = convert(apply("exp", below(within)), total.dtype)
            return [Let(total, apply("add", total, power), known=True)]

        def finish(within: Places) -> list[Statement]:
            sum_ = convert(total, inner)
            if name == "softmax":
                return [nest.store((*at, *within), apply("divide", apply("exp", below(within)), sum_))]
            return [nest.store((*at, *within), apply("subtract", below(within), apply("log", sum_)))]

        return [let, *nest.each(item, most), start, *nest.each(item, add), *nest.each(item, finish)]

    return nest.each(shape, one)


def _sorted(nest: Filling, child: Term) -> list[Statement]:
    items = nest.source.views[child]
    length = child.access.item.product()
    descending = "descending" in str(nest.term.attributes[0])

    def one(at: Places) -> list[Statement]:
        place = items.place((*at, *(Index() for _ in child.access.item)))
        return [Sort(items.buffer, nest.buffer, place, length, descending)]

    return nest.each(child.access.shape, one)
