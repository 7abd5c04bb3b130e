"""Defines each operator on symbolic access patterns: what it requires of sizes, and each element of its result.

The type of the result is that of the operator's record. `tests/proofs` compares these meanings with `evaluate`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from glenside.ir.dtypes import INTEGERS
from glenside.ir.operator import OPERATORS
from glenside.ir.rational import exact
from glenside.ir.types import AccessType
from glenside.proofs.access_patterns import Access, Case, Index, NotExpressible, access_type
from glenside.proofs.compute_meanings import casted, compute, dot
from glenside.proofs.elements import Element, Read, number, of_factor
from glenside.proofs.row_major import relocated
from glenside.proofs.symbolic_integers import (
    ZERO,
    Integer,
    Number,
    at_least,
    integer,
    integers,
    less,
    lookup,
    product,
    quotient,
    remainder,
    same,
)

Meaning = Callable[..., Access]
MEANINGS: dict[str, Meaning] = {"compute": compute}
"""Operator -> a function of the case and one argument for each column of its e-nodes."""


def _operator(name: str, *, shapes: int = 0) -> Callable[[Callable[..., Callable[[Index], Element]]], Meaning]:
    """Registers a function that returns the elements; the type is the record's, of arguments without the case.

    `shapes`: the number of last arguments that are one access shape.
    """

    def declare(elements: Callable[..., Callable[[Index], Element]]) -> Meaning:
        def meaning(case: Case, *arguments: Any) -> Access:
            at = elements(case, *arguments)
            typed: list[Any] = [a.type if isinstance(a, Access) else a for a in arguments]
            if shapes:
                typed[-2:] = [(_dims(typed[-2]), _dims(typed[-1]))]
            fields = [_dims(a) if isinstance(a, tuple) and not shapes else a for a in typed]
            return Access(OPERATORS[name].result(*fields), at)

        MEANINGS[name] = meaning
        return meaning

    return declare


def _dims(sizes: Sequence[Number]) -> Any:
    whole = all(isinstance(n, int) for n in sizes)  # an order of axes
    return access_type(sizes if whole else integers(sizes), 0, "").dims


def _replaced(index: Index, axis: int, value: Integer) -> Index:
    return (*index[:axis], value, *index[axis + 1 :])


def _need_axis(case: Case, a: Access, axis: object) -> None:
    if not isinstance(axis, int):
        raise NotExpressible(f"the axis {axis} is not known")
    case.need(0 <= axis < a.rank)


@_operator("access")
def _access(case: Case, a: Access, split: int) -> Callable[[Index], Element]:
    case.need(0 <= split <= a.rank)
    return a.at


@_operator("access-slice")
def _slice(case: Case, a: Access, axis: int, lo: Number, hi: Number) -> Callable[[Index], Element]:
    _need_axis(case, a, axis)
    case.require(at_least(lo, 0), at_least(hi, lo), at_least(a.dims[axis], hi))
    return lambda i: a.at(_replaced(i, axis, i[axis] + lo))


@_operator("access-concatenate")
def _concatenate(case: Case, a: Access, b: Access, axis: int) -> Callable[[Index], Element]:
    _need_axis(case, a, axis)
    case.need(a.rank == b.rank and a.split == b.split and a.dtype == b.dtype)
    case.require_equal(*([n for k, n in enumerate(x.dims) if k != axis] for x in (a, b)))
    first = a.dims[axis]

    def at(i: Index) -> Element:
        of_b = b.at(_replaced(i, axis, i[axis] - first))
        return a.at(i).where(less(i[axis], first)) + of_b.where(at_least(i[axis], first))

    return at


@_operator("access-pad")
def _pad(case: Case, a: Access, kind: str, axis: int, before: Number, after: Number) -> Callable[[Index], Element]:
    _need_axis(case, a, axis)
    case.require(at_least(before, 0), at_least(after, 0))
    fill = Element() if kind == "zero-padding" else of_factor(Read(f"lowest {a.dtype}", ()))
    end = a.dims[axis] + before

    def at(i: Index) -> Element:
        low, high = at_least(i[axis], before), less(i[axis], end)
        inside = a.at(_replaced(i, axis, i[axis] - before)).where(low, high)
        return inside + fill.where(low.negated) + fill.where(low, high.negated)

    return at


def _dilate(case: Case, a: Access, axis: int, n: Number) -> Access:
    _need_axis(case, a, axis)
    case.require(at_least(n, 0))
    size, step = a.dims[axis], integer(n) + 1
    wide = size + (size - 1) * n if case.decide(at_least(size, 1)) else ZERO
    dims = _replaced(a.dims, axis, wide)

    def at(i: Index) -> Element:
        return a.at(_replaced(i, axis, quotient(i[axis], step))).where(same(remainder(i[axis], step), 0))

    return Access(access_type(dims, a.split, a.dtype), at)


@_operator("access-flip")
def _flip(case: Case, a: Access, axis: int) -> Callable[[Index], Element]:
    _need_axis(case, a, axis)
    return lambda i: a.at(_replaced(i, axis, a.dims[axis] - 1 - i[axis]))


@_operator("access-transpose")
def _transpose(case: Case, a: Access, order: Sequence[int]) -> Callable[[Index], Element]:
    case.need(all(isinstance(k, int) for k in order) and sorted(order) == list(range(a.rank)))
    places = [order.index(k) for k in range(a.rank)]
    return lambda i: a.at(tuple(i[k] for k in places))


@_operator("access-windows")
def _windows(case: Case, a: Access, window: Sequence[Number], strides: Sequence[Number]) -> Callable[[Index], Element]:
    case.need(len(window) == len(strides) == a.rank - a.split)
    _require_steps(case, window, strides, a.item)
    s, axes = a.split, len(window)

    def at(i: Index) -> Element:
        starts, inside = i[s : s + axes], i[s + axes :]
        return a.at((*i[:s], *(m * t + k for m, t, k in zip(starts, strides, inside, strict=True))))

    return at


def _require_steps(case: Case, window: Sequence[Number], strides: Sequence[Number], item: Sequence[Number]) -> None:
    for k, t, n in zip(window, strides, item, strict=True):
        case.require(at_least(k, 0), at_least(t, 1), at_least(n, k))


@_operator("access-overlap-add")
def _overlap_add(case: Case, a: Access, out: Sequence[Number], strides: Sequence[Number]) -> Callable[[Index], Element]:
    axes, window = len(out), a.item
    lead = a.split - axes
    case.need(len(strides) == axes == len(window) and lead >= 0)
    _require_steps(case, window, strides, out)
    counts = [quotient(integer(n) - k, t) + 1 for n, k, t in zip(out, window, strides, strict=True)]
    case.require_equal(a.dims[lead : a.split], counts)
    ranges = case.bound(a.dims[lead : a.split])

    def at(i: Index) -> Element:
        starts = [v for v, _ in ranges]
        inside = [i[lead + j] - starts[j] * strides[j] for j in range(axes)]
        guards = [c for k, n in zip(inside, window, strict=True) for c in (at_least(k, 0), less(k, n))]
        return a.at((*i[:lead], *starts, *inside)).where(*guards).over(ranges)

    return at


@_operator("access-reshape", shapes=2)
def _reshape(case: Case, a: Access, shape: Sequence[Number], item: Sequence[Number]) -> Callable[[Index], Element]:
    case.require(*(at_least(n, 0) for n in (*shape, *item)))
    case.require(same(product(shape), product(a.shape)), same(product(item), product(a.item)))
    s, sizes, items = len(shape), integers(shape), integers(item)

    def at(i: Index) -> Element:
        inside = case.inside(i)
        return a.at((*relocated(inside, i[:s], sizes, a.shape), *relocated(inside, i[s:], items, a.item)))

    return at


@_operator("access-rearrange", shapes=2)
def _rearrange(
    case: Case,
    a: Access,
    parts: Sequence[Number],
    order: Sequence[int],
    shape: Sequence[Number],
    item: Sequence[Number],
) -> Callable[[Index], Element]:
    case.need(all(isinstance(k, int) for k in order) and sorted(order) == list(range(len(parts))))
    dims = integers((*shape, *item))
    case.require(*(at_least(n, 0) for n in (*parts, *dims)))
    case.require(same(product(parts), product(a.dims)), same(product(dims), product(a.dims)))
    sizes = integers(parts)
    moved = [sizes[k] for k in order]

    def at(i: Index) -> Element:
        inside = case.inside(i)
        cut = relocated(inside, i, dims, moved)
        back = [cut[order.index(k)] for k in range(len(sizes))]
        return a.at(tuple(relocated(inside, back, sizes, a.dims)))

    return at


@_operator("access-broadcast", shapes=2)
def _broadcast(case: Case, a: Access, shape: Sequence[Number], item: Sequence[Number]) -> Callable[[Index], Element]:
    case.need(len(shape) == a.split and len(item) == a.rank - a.split)
    wide = integers((*shape, *item))
    repeated = []
    for have, want in zip(a.dims, wide, strict=True):
        if have == want:
            case.choices.skip()
            repeated.append(False)
            continue
        repeated.append(case.decide(same(have, 1)))
        if not repeated[-1]:
            case.require(same(have, want))
    case.require(*(at_least(n, 0) for n in wide))
    return lambda i: a.at(tuple(ZERO if r else k for r, k in zip(repeated, i, strict=True)))


def _pairs(case: Case, a: Access, b: Access, n: int) -> None:
    if not isinstance(n, int):
        raise NotExpressible(f"the number of shared axes {n} is not known")
    case.need(0 <= n <= min(a.split, b.split) and len(a.item) == len(b.item) and a.dtype == b.dtype)
    case.require_equal(a.dims[:n], b.dims[:n])
    case.require_equal(a.item, b.item)


@_operator("access-product")
def _product(case: Case, a: Access, b: Access, n: int) -> Callable[[Index], Element]:
    _pairs(case, a, b, n)
    s, place = a.split, a.split + b.split - n

    def at(i: Index) -> Element:
        of_a, of_b = (*i[:s], *i[place + 1 :]), (*i[:n], *i[s:place], *i[place + 1 :])
        if i[place].constant is not None:
            return b.at(of_b) if i[place].constant else a.at(of_a)
        return a.at(of_a).where(less(i[place], 1)) + b.at(of_b).where(at_least(i[place], 1))

    return at


def _tiled_product(case: Case, a: Access, b: Access, n: int, tile: Number) -> Access:
    case.require(at_least(tile, 1))
    return dot(case, MEANINGS["access-product"](case, a, b, n))


@_operator("truncate")
def _truncate(case: Case, a: Access) -> Callable[[Index], Element]:
    return a.at


@_operator("cast")
def _cast(case: Case, a: Access, dtype: str) -> Callable[[Index], Element]:
    return lambda i: casted(a.at(i), a.dtype, dtype)


@_operator("linear-map")
def _linear_map(case: Case, a: Access, axis: int, rows: Number, matrix: str) -> Callable[[Index], Element]:
    _need_axis(case, a, axis)
    case.require(at_least(rows, 0))
    ((q, n),) = case.bound([a.dims[axis]])

    def at(i: Index) -> Element:
        coefficient = of_factor(Read(f"matrix {matrix}", (i[axis], q)))
        return (coefficient * a.at(_replaced(i, axis, q))).over([(q, n)])

    return at


def _full(case: Case, dims: Sequence[Number], value: str, dtype: str) -> Access:
    case.require(*(at_least(n, 0) for n in dims))
    known = exact(value) if not value.startswith("?") else None
    element = of_factor(Read(f"number {value}", ())) if known is None else _number(known, dtype)
    return Access(access_type(integers(dims), 0, dtype), lambda i: element)


def _number(value: Any, dtype: str) -> Element:
    try:
        return number(Fraction(value))
    except (TypeError, ValueError):
        return of_factor(Read(f"number {value}", ()))


@_operator("access-shift-right")
def _shift_right(case: Case, a: Access) -> Callable[[Index], Element]:
    case.need(a.split > 0)
    return a.at


@_operator("access-gather")
def _gather(case: Case, a: Access, indices: Access, axis: int) -> Callable[[Index], Element]:
    """Nothing is known of where an index is in an axis, but that it is the same in axes of one size."""
    _need_axis(case, a, axis)
    case.need(indices.dtype in INTEGERS)
    beyond = axis + indices.rank

    def at(i: Index) -> Element:
        number = indices.at(i[axis:beyond]).summands
        read = number[0].factors[0] if len(number) == 1 and len(number[0].factors) == 1 else None
        if not isinstance(read, Read) or number[0].guards or number[0].coefficient != 1:
            raise NotExpressible("indices that are computed")
        return a.at((*i[:axis], lookup(read.tensor, (*read.index, a.dims[axis])), *i[beyond:]))

    return at


@_operator("access-squeeze")
def _squeeze(case: Case, a: Access, axis: int) -> Callable[[Index], Element]:
    _need_axis(case, a, axis)
    case.require(same(a.dims[axis], 1))
    return lambda i: a.at((*i[:axis], ZERO, *i[axis:]))


@_operator("access-insert-axis")
def _insert_axis(case: Case, a: Access, axis: int) -> Callable[[Index], Element]:
    case.need(0 <= axis <= a.rank)
    return lambda i: a.at((*i[:axis], *i[axis + 1 :]))


@_operator("access-flatten")
def _flatten(case: Case, a: Access) -> Callable[[Index], Element]:
    s = min(a.split, 1)

    def at(i: Index) -> Element:
        parts = []
        for place, dims in ((i[:s], a.shape), (i[s:], a.item)):
            parts += relocated(case.inside(i), place, [product(dims)] if dims else [], dims)
        return a.at(tuple(parts))

    return at


def _systolic_array(case: Case, rows: Number, columns: Number, a: Access, b: Access) -> Access:
    case.need(len(a.item) == 1 and len(b.item) == 2 and a.split - b.split in (0, 1) and a.dtype == b.dtype)
    case.require(at_least(rows, 1), at_least(columns, 1), same(a.item[0], rows))
    case.require_equal(b.item, (rows, columns))
    case.require_equal(a.dims[: b.split], b.shape)
    return _matrix_product(case, a, b, "systolic-array", rows, columns)


def _output_stationary(case: Case, rows: Number, columns: Number, a: Access, b: Access) -> Access:
    case.need(len(a.item) == 1 and len(b.item) == 2 and a.split == b.split + 1 and a.dtype == b.dtype)
    case.require(at_least(rows, 1), at_least(columns, 1))
    case.require_equal(b.item, (a.item[0], columns))
    case.require_equal(a.shape, (*b.shape, rows))
    return _matrix_product(case, a, b, "systolic-array-output-stationary", rows, columns)


def _matrix_product(case: Case, a: Access, b: Access, name: str, rows: Number, columns: Number) -> Access:
    result: AccessType = OPERATORS[name].result(rows, columns, a.type, b.type)
    ((q, n),) = case.bound([a.item[0]])

    def at(i: Index) -> Element:
        pair = a.at((*i[:-1], q)), b.at((*i[: b.split], q, i[-1]))
        left, right = (casted(x, a.dtype, result.dtype) for x in pair)
        return (left * right).over([(q, n)])

    return Access(result, at)


MEANINGS |= {"access-dilate": _dilate, "tiled-product": _tiled_product, "full": _full}
MEANINGS |= {"systolic-array": _systolic_array, "systolic-array-output-stationary": _output_stationary}
