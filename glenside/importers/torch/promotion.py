"""Computes the dtype of a result as PyTorch does: tensors with axes count before numbers, floats before integers."""

from __future__ import annotations

from functools import reduce
from typing import Any

from glenside.ir.dtypes import FLOATS, HALVES, RECORDS
from glenside.ir.errors import BadInput
from glenside.ir.term import Term

Number = bool | int | float


def promoted(*operands: Term | Number) -> str:
    """Returns the dtype to which operands are converted, tensors or Python numbers. Raises BadInput."""
    groups: tuple[list[str], list[str], list[str]] = ([], [], [])
    for operand in operands:
        if isinstance(operand, Term):
            groups[0 if operand.access.rank else 1].append(operand.access.dtype)
        else:
            groups[2].append(number_dtype(operand))
    common = [reduce(common_dtype, group) if group else "" for group in groups]
    return _combined(common[0], _combined(common[1], common[2]))


def number_dtype(value: Number) -> str:
    """Returns the dtype of a Python number, with PyTorch's default of float32."""
    return "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"


def _combined(higher: str, lower: str) -> str:
    """Combines the dtypes of two groups: the lower one counts only if it is of a higher kind."""
    if not (higher and lower):
        return higher or lower
    if higher not in FLOATS and (higher == "bool" or lower in FLOATS):
        return common_dtype(higher, lower)
    return higher


def common_dtype(a: str, b: str) -> str:
    """Returns the dtype to which tensors of two dtypes are converted. Raises BadInput."""
    for dtype in (a, b):
        if dtype not in RECORDS or (RECORDS[dtype].stored and a != b):
            raise BadInput(f"requires operands of dtypes that PyTorch promotes, got {a} and {b}")
    if a == b or "bool" in (a, b):
        return a if b == "bool" else b
    floats = [dtype for dtype in (a, b) if dtype in FLOATS]
    if floats:
        if len(floats) == 2 and all(dtype in HALVES for dtype in floats):
            return "float32"
        return max(floats, key=lambda dtype: RECORDS[dtype].bits)
    first, second = RECORDS[a], RECORDS[b]
    if first.signed == second.signed:
        return max(a, b, key=lambda dtype: RECORDS[dtype].bits)
    unsigned, signed = (second, first) if first.signed else (first, second)
    if unsigned.name != "uint8":
        raise BadInput(f"requires operands of dtypes that PyTorch promotes, got {a} and {b}")
    return signed.name if signed.bits > unsigned.bits else "int16"


def is_number(value: Any) -> bool:
    """True if an argument is a Python number."""
    return isinstance(value, int | float)
