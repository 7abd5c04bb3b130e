"""Builds terms of derivatives, of whole tensors ()(dims), simplified where possible.

Records express their adjoints in these functions (`Operator.adjoint`), which are passed to them as `terms`. See also
`glenside.gradients.movement`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from functools import cache
from itertools import product
from typing import NamedTuple

from glenside.builder import pointwise, reductions
from glenside.gradients.movement import (
    at,
    broadcast,
    cast,
    dilated_windows,
    element,
    filled,
    flip,
    full,
    gather_nd,
    iota,
    linear_map,
    number,
    overlap_add,
    pad,
    pad_or_crop,
    reshape,
    scatter_nd,
    slice,
    stack,
    strided,
    transpose,
    untransposed,
    whole,
    windows,
)
from glenside.ir.operator import COMPUTES, Category
from glenside.ir.operators import compute_text
from glenside.ir.primitives import PRIMITIVES
from glenside.ir.scalar import Applied, Element, Number, Scalar, arity, derivative, derivative_of_clip
from glenside.ir.term import Term, build
from glenside.ir.types import Dims

Label = Hashable

__all__ = [
    "Pair",
    "add",
    "at",
    "broadcast",
    "cast",
    "compare",
    "compute",
    "contract",
    "contraction_adjoint",
    "dilated_windows",
    "divide",
    "element",
    "filled",
    "flip",
    "full",
    "gather_nd",
    "iota",
    "item_sum",
    "linear_map",
    "multiply",
    "negative",
    "number",
    "of_scalar",
    "overlap_add",
    "pad",
    "pad_or_crop",
    "paired",
    "parts",
    "rejoined",
    "reshape",
    "running_product",
    "scatter_nd",
    "select",
    "slice",
    "spread",
    "stack",
    "strided",
    "subtract",
    "sum_axes",
    "sum_to",
    "times",
    "transpose",
    "untransposed",
    "value_of",
    "whole",
    "windows",
]


class Pair(NamedTuple):
    """The cotangents of both operands of an `access-product`, which itself is never formed."""

    a: Term | None
    b: Term | None


# Arithmetic


def compute(kind: str, x: Term) -> Term:
    """Applies a compute type of one operand, in the operand's own split so that it equals the program's term;
    ()(dims).
    """
    return whole(build("compute", kind, x))


@cache
def _kinds() -> dict[str, str]:
    """Returns the compute type of each primitive, with operands in the primitive's order."""
    found: dict[str, str] = {}
    for record in (r for r in COMPUTES.values() if r.scalar is not None):
        for parameters in product(*(f.choices for f in record.parameters)):
            expression = record.expression(*parameters)
            if isinstance(expression, Applied) and expression.arguments == tuple(
                Element(i) for i in range(expression.primitive.arity)
            ):
                found.setdefault(expression.primitive.name, compute_text(record.name, *parameters))
    return found


def _simplified(name: str, a: Term, b: Term) -> Term | None:
    """Returns a sum, difference, product or quotient that constants simplify, or None."""
    left, right = number(a), number(b)
    if left is not None and right is not None:
        exactly = _primitive_value(name, left, right)
        return None if exactly is None else filled(a, exactly)
    if (left == 0 and name == "add") or (left == 1 and name == "multiply"):
        return b
    if (right == 0 and name in ("add", "subtract")) or (right == 1 and name in ("multiply", "divide", "pow")):
        return a
    return filled(a, 0) if name == "multiply" and 0 in (left, right) else None


def _primitive_value(name: str, *values: Fraction) -> Fraction | bool | None:
    primitive = PRIMITIVES[name]
    value: Fraction | bool | None = None if primitive.exact is None else primitive.exact(*values)
    return value


def _binary(name: str, a: Term, b: Term) -> Term:
    a, b = whole(a), whole(b)
    known = _simplified(name, a, b)
    return pointwise.combine(_kinds()[name], a, b) if known is None else whole(known)


def add(a: Term, b: Term) -> Term:
    """Returns a + b."""
    return _binary("add", a, b)


def subtract(a: Term, b: Term) -> Term:
    """Returns a - b."""
    return _binary("subtract", a, b)


def multiply(a: Term, b: Term) -> Term:
    """Returns a * b."""
    return negative(b) if number(a) == -1 else negative(a) if number(b) == -1 else _binary("multiply", a, b)


def divide(a: Term, b: Term) -> Term:
    """Returns a / b."""
    return _binary("divide", a, b)


def negative(a: Term) -> Term:
    """Returns -a."""
    value = number(a)
    return compute("negative", whole(a)) if value is None else filled(a, -value)


def compare(relation: str, a: Term, b: Term) -> Term:
    """Returns True where a lt, le, gt, ge, eq or ne b."""
    left, right = number(a), number(b)
    if left is not None and right is not None:
        return full(a.access.dims, int(bool(_primitive_value(relation, left, right))), "bool")
    return pointwise.compare(relation, whole(a), whole(b))


def select(condition: Term, x: Term | int, y: Term | int) -> Term:
    """Returns x where the condition is true, else y; one of them may be a number."""
    like = x if isinstance(x, Term) else y
    assert isinstance(like, Term), "one of them is a term"
    then, otherwise = (whole(part) if isinstance(part, Term) else filled(like, part) for part in (x, y))
    known = number(condition)
    if known is not None:
        return then if known else otherwise
    if then is otherwise:
        return then
    return build("compute", "select", stack([cast(condition, like.access.dtype), then, otherwise], 0))


def sum_axes(x: Term, axes: Sequence[int]) -> Term:
    """Sums over these axes, and removes them."""
    x = whole(x)
    dims = x.access.dims
    left = [n for axis, n in enumerate(dims) if axis not in axes]
    summed = [axis for axis in axes if dims[axis] != 1]
    value = number(x)
    if value is not None:
        return full(left, value * Dims(dims[axis] for axis in axes).product(), x.access.dtype)
    return reshape(reductions.reduce_axes("reduce-sum", x, summed), left) if summed else reshape(x, left)


def sum_to(x: Term, dims: Dims) -> Term:
    """Sums over the axes that have size 1 in `dims`, and keeps them: the adjoint of a broadcast."""
    repeated = [axis for axis, (have, want) in enumerate(zip(x.access.dims, dims, strict=True)) if have != want]
    return reshape(sum_axes(x, repeated), dims)


def item_sum(x: Term, a: Term) -> Term:
    """Sums over the item axes of a; x has the dims of a."""
    return sum_axes(x, [*range(a.access.split, a.access.rank)])


def spread(g: Term, a: Term, item: Dims | None = None) -> Term:
    """Repeats g of ()(S) to ()(S I), the dims of a, or to ()(S item)."""
    shape, item = a.access.shape, a.access.item if item is None else item
    return broadcast(reshape(g, (*shape, *(1 for _ in item))), (*shape, *item))


def running_product(x: Term) -> Term:
    """Returns, along the last axis, the product of all elements before each."""
    return reductions.running(multiply, whole(x), x.access.rank - 1, "1", exclusive=True)


# Contractions


def contract(a: Term, b: Term, left: Sequence[Label], right: Sequence[Label], result: Sequence[Label]) -> Term:
    """Sums a * b over the labels that are not in the result: one product, or none if there are no such labels."""
    shared = [label for label in result if label in left and label in right]
    rows = [label for label in result if label in left and label not in right]
    columns = [label for label in result if label in right and label not in left]
    summed = [label for label in left if label not in result]
    first = transpose(a, [left.index(label) for label in (*shared, *rows, *summed)])
    second = transpose(b, [right.index(label) for label in (*shared, *columns, *summed)])
    if summed:
        pairs = build("access-product", at(first, len(shared + rows)), at(second, len(shared + columns)), len(shared))
        found = whole(build("compute", "dot-product", pairs))
    else:
        dims, n = first.access.dims, len(shared)
        found = multiply(
            broadcast(reshape(first, (*dims, *(1 for _ in columns))), (*dims, *second.access.dims[n:])),
            broadcast(
                reshape(second, (*dims[:n], *(1 for _ in rows), *second.access.dims[n:])),
                (*dims, *second.access.dims[n:]),
            ),
        )
    have = [*shared, *rows, *columns]
    return transpose(found, [have.index(label) for label in result])


def contraction_adjoint(g: Term, a: Term, b: Term, n: int) -> Pair:
    """Returns the cotangents for g like dot-product((G, A)(I) x (G, B)(I)): g times b for a, and g times a for b."""
    shared = [("shared", i) for i in range(n)]
    rows = [*shared, *(("a", i) for i in range(a.access.split - n))]
    others = [("b", i) for i in range(b.access.split - n)]
    item = [("item", i) for i in range(a.access.rank - a.access.split)]
    left, right, result = [*rows, *item], [*shared, *others, *item], [*rows, *others]
    return Pair(contract(g, b, result, right, left), contract(g, a, result, left, right))


def paired(a: Term, b: Term, n: int, of_a: Term | None, of_b: Term | None) -> Pair:
    """Returns the cotangents of a product's operands from those of its parts, ()(G A B I) each: sums over other
    axes.
    """
    own, other = a.access.split - n, b.access.split - n
    return Pair(
        None if of_a is None else sum_axes(of_a, [*range(n + own, n + own + other)]),
        None if of_b is None else sum_axes(of_b, [*range(n, n + own)]),
    )


def parts(a: Term) -> list[Term]:
    """Returns the parts along the first item axis, each of ()(S I[1:])."""
    if a.operator.name != "access-product":
        return [element(a, a.access.split, i) for i in range(a.access.item[0])]
    left, right, n = a.arguments()
    shared, rows, columns, item = n, left.access.shape.drop(n), right.access.shape.drop(n), left.access.item
    dims = (*left.access.dims[:shared], *rows, *columns, *item)
    first = reshape(left, (*left.access.dims[:shared], *rows, *(1 for _ in columns), *item))
    second = reshape(right, (*left.access.dims[:shared], *(1 for _ in rows), *columns, *item))
    return [broadcast(first, dims), broadcast(second, dims)]


def rejoined(a: Term, found: Sequence[Term | None]) -> Term | Pair | None:
    """Returns the cotangent of a from those of its parts."""
    if a.operator.name == "access-product":
        left, right, n = a.arguments()
        return paired(left, right, n, *found)
    like = next((part for part in found if part is not None), None)
    if like is None:
        return None
    return stack([filled(like, 0) if part is None else part for part in found], a.access.split)


# Scalar expressions


def value_of(expression: Scalar, operands: Sequence[Term]) -> Term:
    """Builds a scalar expression of terms, each primitive as its compute type."""
    if isinstance(expression, Element):
        return operands[expression.position]
    if isinstance(expression, Number):
        return filled(operands[0], expression.text)
    assert isinstance(expression, Applied)
    name, arguments = expression.primitive.name, [value_of(argument, operands) for argument in expression.arguments]
    if name == "select":
        return select(*arguments)
    if len(arguments) == 1:
        known = number(arguments[0])
        if name == "negative" or (known is not None and _primitive_value(name, known) is not None):
            return negative(arguments[0]) if known is None else filled(arguments[0], _primitive_value(name, known))
        return compute(_kinds()[name], arguments[0])
    a, b = arguments
    if expression.primitive.gives == "bool":
        return compare(name, a, b)
    return _ARITHMETIC[name](a, b) if name in _ARITHMETIC else _binary(name, a, b)


_ARITHMETIC: dict[str, Callable[[Term, Term], Term]] = {
    "add": add,
    "subtract": subtract,
    "multiply": multiply,
    "divide": divide,
}


def times(g: Term, factor: Scalar, operands: Sequence[Term]) -> Term:
    """Multiplies g by an expression of terms: divides for a reciprocal, selects for a select."""
    if factor == Number("1"):
        return g
    if isinstance(factor, Applied):
        name, arguments = factor.primitive.name, factor.arguments
        if name == "divide" and arguments[0] == Number("1"):
            return divide(g, value_of(arguments[1], operands))
        if name == "negative":
            return negative(times(g, arguments[0], operands))
        if name == "select":
            branches = [0 if part == Number("0") else times(g, part, operands) for part in arguments[1:]]
            if branches != [0, 0]:
                return select(value_of(arguments[0], operands), *branches)
    return multiply(g, value_of(factor, operands))


def of_scalar(g: Term, expression: Scalar, category: Category, kind: str, a: Term) -> Term | Pair | None:
    """Returns the cotangent of the operand of a compute type that applies a scalar expression."""
    if category is Category.POINTWISE:
        if (clip := derivative_of_clip(expression)) is not None:
            return times(g, clip, [build("compute", kind, a)])
        factor = derivative(expression, 0)
        return None if factor is None else times(g, factor, [a])
    found = parts(a)
    count = arity(expression)
    if len(found) == count:
        factors = [derivative(expression, i) for i in range(count)]
        return rejoined(a, [None if f is None else times(g, f, found) for f in factors])
    return rejoined(a, _of_fold(g, expression, found))


def _of_fold(g: Term, expression: Scalar, found: Sequence[Term]) -> list[Term | None]:
    """Returns the cotangents of the operands of a left fold."""
    so_far = [found[0]]
    for part in found[1:-1]:
        so_far.append(value_of(expression, [so_far[-1], part]))
    left, right = derivative(expression, 0), derivative(expression, 1)
    assert left is not None, "a fold depends on its first operand"
    assert right is not None, "and on those after it"
    results: list[Term | None] = []
    for before, part in zip(reversed(so_far[: len(found) - 1]), reversed(found[1:]), strict=True):
        results.append(times(g, right, [before, part]))
        g = times(g, left, [before, part])
    return [g, *reversed(results)]
