"""Defines terms without operands: tensors and constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from glenside.ir.dtypes import REALS, STORED
from glenside.ir.operand import Array
from glenside.ir.operator import Kind, OperatorKind, example, fields, operator, require
from glenside.ir.operators.requirements import require_dtype, require_sizes, require_value, require_values
from glenside.ir.rational import exact, exact_numbers
from glenside.ir.types import AccessType, Dims, Tensor


def _check_tensor(tensor: Any) -> None:
    require(isinstance(tensor, Tensor), "access-tensor", "a declared tensor", repr(tensor))
    require_dtype("access-tensor", tensor.dtype)
    require_sizes("access-tensor", "sizes", tensor.dims)


access_tensor = operator(
    name="access-tensor",
    kind=OperatorKind.LEAF,
    fields=fields(tensor=Kind.TENSOR),
    check=_check_tensor,
    result=lambda tensor: AccessType(tensor.dims, 0, tensor.dtype),
    # The interpreter passes the tensor's array in place of its declaration.
    evaluate=lambda _, array: array,
    shares=True,
    doc="A declared input or constant, as one item: ()(dims).",
    examples=example("(access-tensor x)", x="m n"),
)


def constant(arithmetic: Any, value: str, dtype: str, dims: Dims) -> Array:
    """Returns an array of one repeated number, without memory for each element."""
    return np.broadcast_to(arithmetic.constant(exact(value), dtype), dims)


access_literal = operator(
    name="access-literal",
    kind=OperatorKind.LEAF,
    fields=fields(value=Kind.NUMBER, dtype=Kind.DTYPE),
    check=lambda value, dtype: require_value("access-literal", value, dtype),
    result=lambda value, dtype: AccessType(Dims(), 0, dtype),
    evaluate=lambda arithmetic, value, dtype: constant(arithmetic, value, dtype, Dims()),
    doc="One exact number, ()(); float32 unless a dtype is given.",
    examples=example("(access-literal (literal 1/3 float64))"),
)


def _check_full(shape: Dims, value: str, dtype: str) -> None:
    require_sizes("full", "sizes", shape)
    require_value("full", value, dtype)


full = operator(
    name="full",
    kind=OperatorKind.LEAF,
    fields=fields(shape=Kind.SHAPE, value=Kind.NUMBER, dtype=Kind.DTYPE),
    check=_check_full,
    result=lambda shape, value, dtype: shape.take(0).access(shape, dtype),
    evaluate=lambda arithmetic, shape, value, dtype: constant(arithmetic, value, dtype, shape),
    doc="A constant that holds one exact number everywhere: ()(shape).",
    examples=example("(full (shape $m $n) 3/2 float32)"),
)


def _check_numbers(shape: Dims, values: str, dtype: str) -> None:
    require_sizes("numbers", "sizes", shape)
    require_values("numbers", values, shape.product(), dtype)


def _evaluate_numbers(arithmetic: Any, shape: Dims, values: str, dtype: str) -> Array:
    found = [arithmetic.constant(value, dtype) for value in exact_numbers(values) or ()]
    return np.asarray(found, arithmetic.constant(exact("0"), dtype).dtype).reshape(shape)


numbers = operator(
    name="numbers",
    kind=OperatorKind.LEAF,
    fields=fields(shape=Kind.SHAPE, values=Kind.TEXT, dtype=Kind.DTYPE),
    check=_check_numbers,
    result=lambda shape, values, dtype: shape.take(0).access(shape, dtype),
    evaluate=_evaluate_numbers,
    doc="A constant of exact numbers, in row-major order, such as a small matrix of rationals: ()(shape).",
    examples=example('(numbers (shape 2 3) "1 0 -1/2 10 5/2 -3" float32)'),
)


def _check_eye(n: int, dtype: str) -> None:
    require(n >= 0, "eye", "n >= 0", n)
    require_dtype("eye", dtype)


def _evaluate_eye(arithmetic: Any, n: int, dtype: str) -> Array:
    one, zero = (arithmetic.constant(exact(number), dtype) for number in "10")
    return np.asarray(np.where(np.eye(n, dtype=np.bool_), one, zero))


eye = operator(
    name="eye",
    kind=OperatorKind.LEAF,
    fields=fields(n=Kind.INT, dtype=Kind.DTYPE),
    check=_check_eye,
    result=lambda n, dtype: AccessType(Dims((n, n)), 0, dtype),
    evaluate=_evaluate_eye,
    doc="The identity matrix, a constant: ()(n n), 1 on the diagonal and 0 elsewhere.",
    examples=example("(eye $n int32)"),
)


def _check_iota(n: int, dtype: str) -> None:
    require(n >= 0, "iota", "n >= 0", n)
    require(dtype != "bool", "iota", "a dtype of numbers", dtype)
    require_value("iota", str(int(max(n - 1, 0))), dtype)


def counted(arithmetic: Any, numbers: Array, dtype: str) -> Array:
    """Converts integers to a dtype: rounded if it is a float dtype that is only stored, which may not hold each of
    them.
    """
    if dtype in STORED and dtype in REALS:
        return np.asarray(arithmetic.cast(arithmetic.encode("iota", numbers.astype(np.int64), "int64"), dtype))
    return np.asarray(arithmetic.encode("iota", numbers.astype(dtype), dtype))


iota = operator(
    name="iota",
    kind=OperatorKind.LEAF,
    fields=fields(n=Kind.INT, dtype=Kind.DTYPE),
    check=_check_iota,
    result=lambda n, dtype: AccessType(Dims((n,)), 0, dtype),
    evaluate=lambda arithmetic, n, dtype: counted(arithmetic, np.arange(n), dtype),
    doc="The numbers from 0 to n - 1, a constant: ()(n).",
    examples=example("(iota $n int8)"),
)
