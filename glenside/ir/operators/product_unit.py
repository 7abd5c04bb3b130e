"""A product of a unit that addresses its operands and its result by affine functions."""

from __future__ import annotations

from typing import Any

from glenside.ir.example import example
from glenside.ir.operand import Array
from glenside.ir.operator import Keeps, Kind, Operator, OperatorKind, fields, register, require
from glenside.ir.operators.requirements import require_number, spelled
from glenside.ir.types import AccessType, Dims

_NAME = "product-unit"


def _ordered(what: str, size: int, parts: Dims, order: Dims) -> Dims:
    require(parts.product() == size, _NAME, f"parts of {what} of {size} elements", spelled(parts))
    require(sorted(order) == list(range(len(parts))), _NAME, f"an order of {len(parts)} parts", spelled(order))
    return parts.permute(order)


def _check(
    n: int,
    a: AccessType,
    a_parts: Dims,
    a_order: Dims,
    a_split: int,
    b: AccessType,
    b_parts: Dims,
    b_order: Dims,
    b_split: int,
    parts: Dims,
    order: Dims,
) -> None:
    require_number(_NAME, a)
    require(a.dtype == b.dtype, _NAME, "dtypes to agree", f"{a} and {b}")
    left, right = _ordered("a", a.size, a_parts, a_order), _ordered("b", b.size, b_parts, b_order)
    splits = 0 <= n <= a_split <= len(left) and n <= b_split <= len(right)
    require(splits, _NAME, f"splits from {n} to the ranks", f"{a_split} and {b_split}")
    agree = left[:n] == right[:n] and left[a_split:] == right[b_split:]
    require(agree, _NAME, "shared axes and items to agree", f"{spelled(left)} and {spelled(right)}")
    _ordered("the result", left.take(a_split).append(right[n:b_split]).product(), parts, order)


def _evaluate(
    arithmetic: Any,
    n: int,
    a: Array,
    a_parts: Dims,
    a_order: Dims,
    a_split: int,
    b: Array,
    b_parts: Dims,
    b_order: Dims,
    b_split: int,
    parts: Dims,
    order: Dims,
) -> Array:
    left, right = a.reshape(a_parts).transpose(a_order), b.reshape(b_parts).transpose(b_order)
    product: Array = arithmetic.contract(left, right, n, len(a_parts) - a_split)
    return product.reshape(parts).transpose(order)


def _matrices(
    n: int,
    a: AccessType,
    a_parts: Dims,
    a_order: Dims,
    a_split: int,
    b: AccessType,
    b_parts: Dims,
    b_order: Dims,
    b_split: int,
    *_: Dims,
) -> tuple[int, int, int, int]:
    left, right = a_parts.permute(a_order), b_parts.permute(b_order)
    rows, columns = left.take(a_split).drop(n).product(), right.take(b_split).drop(n).product()
    return left.take(n).product(), rows, left.drop(a_split).product(), columns


product_unit = register(
    Operator(
        name=_NAME,
        kind=OperatorKind.INSTRUCTION,
        fields=fields(
            n=Kind.INT,
            a=Kind.TERM,
            a_parts=Kind.SHAPE,
            a_order=Kind.INTS,
            a_split=Kind.INT,
            b=Kind.TERM,
            b_parts=Kind.SHAPE,
            b_order=Kind.INTS,
            b_split=Kind.INT,
            parts=Kind.SHAPE,
            order=Kind.INTS,
        ),
        check=_check,
        result=lambda n, a, ap, ao, asplit, b, bp, bo, bsplit, parts, order: (
            a.with_dims(parts.permute(order)).with_split(0).widened()
        ),
        evaluate=_evaluate,
        keeps=Keeps.ZERO,
        matrices=_matrices,
        doc="The dot-product of the product of two operands with n shared axes, each read in another order of its "
        "parts and split there: (G, A)(I) x (G, B)(I) -> (G, A, B), which is cut into parts and stored in another "
        "order of those: ()(parts in that order).",
        examples=example(
            "(product-unit 0 (access-tensor x) (shape $m $k) (list 0 1) 1 (access-tensor y) (shape $n $k) "
            "(list 0 1) 1 (shape $m $n) (list 1 0))",
            x="m k",
            y="n k",
        ),
    )
)
