"""Predicts how long the interpreter takes, so that whoever may leave a comparison out knows before."""

from __future__ import annotations

from glenside.ir.operator import OperatorKind
from glenside.ir.term import Term, postorder
from glenside.ir.types import AccessType

_ELEMENT, _OPERAND, _MOVED = 1e-8, 3e-9, 2e-9
"""Seconds for an element that is computed, read to compute another one, copied: measured, times about two."""
_PRODUCT, _SLOW_PRODUCT = 5e-11, 2e-9
"""Seconds for a product in a sum: by BLAS, and of dtypes that BLAS does not have."""
_OF_BLAS = ("float32", "float64")


def seconds(*roots: Term, product: float = _PRODUCT) -> float:
    """Predicts the seconds that `evaluate` takes on one thread; `product` is that of a product of float32.

    MobileNetV1 is predicted as 0.24 and takes 0.1, U-Net as 1.4 and takes 0.6.
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
