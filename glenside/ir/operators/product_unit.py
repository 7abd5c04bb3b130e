"""Defines the product of a unit that addresses its operands and its result by affine functions."""

from __future__ import annotations

from typing import Any, NamedTuple

from glenside.ir.operand import Array
from glenside.ir.operator import Keeps, Kind, OperatorKind, example, fields, operator, require
from glenside.ir.operators.requirements import require_number, require_order, spelled
from glenside.ir.types import Dims

_NAME = "product-unit"


def _ordered(what: str, size: int, parts: Dims, order: Dims) -> Dims:
    require(parts.product() == size, _NAME, f"parts of {what} of {size} elements", spelled(parts))
    require_order(_NAME, order, len(parts), "parts")
    return parts.permute(order)


class _Side(NamedTuple):
    """An operand, as a type or an array, as the unit reads it: with its parts reordered, then split."""

    operand: Any
    parts: Dims
    order: Dims
    split: int


def _side_fields(name: str) -> dict[str, Kind]:
    return {name: Kind.TERM, f"{name}_parts": Kind.SHAPE, f"{name}_order": Kind.INTS, f"{name}_split": Kind.INT}


def _sides(given: tuple[Any, ...]) -> tuple[_Side, _Side, tuple[Dims, Dims]]:
    """Returns both operands, and the parts of the result with their order."""
    return _Side(*given[:4]), _Side(*given[4:8]), given[8:]


def _check(n: int, *given: Any) -> None:
    a, b, result = _sides(given)
    require_number(_NAME, a.operand)
    require(a.operand.dtype == b.operand.dtype, _NAME, "dtypes to agree", f"{a.operand} and {b.operand}")
    left = _ordered("a", a.operand.size, a.parts, a.order)
    right = _ordered("b", b.operand.size, b.parts, b.order)
    splits = 0 <= n <= a.split <= len(left) and n <= b.split <= len(right)
    require(splits, _NAME, f"splits from {n} to the ranks", f"{a.split} and {b.split}")
    agree = left[:n] == right[:n] and left[a.split :] == right[b.split :]
    require(agree, _NAME, "shared axes and items to agree", f"{spelled(left)} and {spelled(right)}")
    _ordered("the result", left.take(a.split).append(right[n : b.split]).product(), *result)


def _evaluate(arithmetic: Any, n: int, *given: Any) -> Array:
    a, b, (parts, order) = _sides(given)
    left, right = (side.operand.reshape(side.parts).transpose(side.order) for side in (a, b))
    product: Array = arithmetic.contract(left, right, n, len(a.parts) - a.split)
    return product.reshape(parts).transpose(order)


def _matrices(n: int, *given: Any) -> tuple[int, int, int, int]:
    a, b, _ = _sides(given)
    left, right = a.parts.permute(a.order), b.parts.permute(b.order)
    rows, columns = left.take(a.split).drop(n).product(), right.take(b.split).drop(n).product()
    return left.take(n).product(), rows, left.drop(a.split).product(), columns


def _adjoint(terms: Any, g: Any, n: int, *given: Any) -> tuple[Any, ...]:
    """Returns two products, of the operands as the unit reads them."""
    a, b, (_, order) = _sides(given)
    left, right = (terms.transpose(terms.reshape(s.operand, s.parts), s.order) for s in (a, b))
    rows, columns = left.access.dims.take(a.split), right.access.dims.take(b.split).drop(n)
    permuted = terms.reshape(terms.untransposed(g, order), rows.append(columns))
    found = terms.contraction_adjoint(permuted, terms.at(left, a.split), terms.at(right, b.split), n)
    return tuple(
        terms.reshape(terms.untransposed(part, side.order), side.operand.access.dims)
        for part, side in zip(found, (a, b), strict=True)
    )


product_unit = operator(
    name=_NAME,
    kind=OperatorKind.INSTRUCTION,
    fields=fields(n=Kind.INT, **_side_fields("a"), **_side_fields("b"), parts=Kind.SHAPE, order=Kind.INTS),
    check=_check,
    result=lambda n, a, ap, ao, asplit, b, bp, bo, bsplit, parts, order: (
        a.with_dims(parts.permute(order)).with_split(0).widened()
    ),
    evaluate=_evaluate,
    keeps=Keeps.ZERO,
    matrices=_matrices,
    adjoint=_adjoint,
    doc="The dot-product of the product of two operands with n shared axes: (G, A)(I) x (G, B)(I) -> (G, A, B). Each "
    "operand is read with its parts reordered, then split; the result is cut into parts and stored with these "
    "reordered: ()(parts in that order).",
    examples=example(
        "(product-unit 0 (access-tensor x) (shape $m $k) (list 0 1) 1 (access-tensor y) (shape $n $k) "
        "(list 0 1) 1 (shape $m $n) (list 1 0))",
        x="m k",
        y="n k",
    ),
)
