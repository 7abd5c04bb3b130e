"""Predicts the time of the interpreter, so that a caller can skip a comparison that would take too long."""

from __future__ import annotations

from glenside.ir.operator import OperatorKind
from glenside.ir.term import Term, postorder
from glenside.ir.types import AccessType

_ELEMENT, _OPERAND, _MOVED = 1e-8, 3e-9, 2e-9
"""Seconds to compute an element, to read an operand element, to copy an element: twice the measured values."""
_PRODUCT, _SLOW_PRODUCT = 5e-11, 2e-9
"""Seconds of a multiply-add: in BLAS, and for dtypes that BLAS lacks."""
_OF_BLAS = ("float32", "float64")


def seconds(*roots: Term, product: float = _PRODUCT) -> float:
    """Predicts the seconds of `evaluate` on one thread; `product` is the time of a float32 multiply-add.

    MobileNetV1 is predicted as 0.24 s and takes 0.1 s; U-Net is predicted as 1.4 s and takes 0.6 s.
    """
    found = 0.0
    for term in postorder(*roots):
        if not isinstance(term.type, AccessType):
            continue
        size = term.type.size
        if term.operator.kind is OperatorKind.MOVEMENT:
            found += _MOVED * size
        elif term.operator.kind in (OperatorKind.COMPUTE, OperatorKind.INSTRUCTION):
            operands = sum(child.access.size for child in term.children if isinstance(child.type, AccessType))
            found += _ELEMENT * size
            if term.attributes[:1] == ("dot-product",):
                found += (product if term.type.dtype in _OF_BLAS else max(product, _SLOW_PRODUCT)) * operands / 2
            else:
                found += _OPERAND * operands
    return found
