"""Matches Gelu, HardSwish and HardSigmoid, which runtimes compute in one step."""

from __future__ import annotations

from math import sqrt

import numpy as np

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.standard.expressions import Element, Expressions, axes_of, matched
from glenside.exporters.onnx.standard.record import standard
from glenside.exporters.onnx.supported_dtypes import runs
from glenside.exporters.writer import Value
from glenside.ir.term import Term

_PRODUCTS = ("elementwise-mul", "elementwise-div")


@standard("Gelu", *_PRODUCTS)
def gelu(emit: Emitter, term: Term) -> Value | None:
    """x * (1 + erf(x / sqrt(2))) / 2, with the three factors in any order.

    A Gelu that was imported as several nodes stays so: runtimes fuse it with a preceding bias, which they do not for
    Gelu.
    """
    if term.access.dtype != "float32" or term in emit.came:
        return None
    x = matched(emit, term, _of_gelu)
    if x is not None:
        emit.versions.add(("", "Gelu", 20))
    return None if x is None else _of(emit, "Gelu", x, term)


def _of_gelu(e: Expressions) -> Element | None:
    factor, others = e.factors(e.root)
    for x, other in (others, others[::-1]) if len(others) == 2 and factor == 0.5 else ():
        inner = e.plus(other, 1)
        within = e.operands(inner, "erf") if inner else []
        scale, of = e.factors(within[0]) if within else (0.0, [])
        if of == [x] and np.float32(scale) in _ROOTS:
            return _same_layout(e, x)
    return None


_ROOTS = (np.float32(sqrt(0.5)), np.float32(1 / np.float32(sqrt(2))))
"""1 / sqrt(2) as float32, from the number itself and from its root in float32."""


@standard("HardSwish", *_PRODUCTS)
def hard_swish(emit: Emitter, term: Term) -> Value | None:
    """x * min(max(x + 3, 0), 6) / 6."""
    x = matched(emit, term, _of_hard_swish) if runs("HardSwish", term.access.dtype) else None
    return None if x is None else _of(emit, "HardSwish", x, term)


def _of_hard_swish(e: Expressions) -> Element | None:
    factor, others = e.factors(e.root)
    for x, other in (others, others[::-1]) if len(others) == 2 and factor == _SIXTH else ():
        if _clipped(e, other) == x:
            return _same_layout(e, x)
    return None


@standard("HardSigmoid", *_PRODUCTS)
def hard_sigmoid(emit: Emitter, term: Term) -> Value | None:
    """min(max(x + 3, 0), 6) / 6 = min(max(x / 6 + 1 / 2, 0), 1)."""
    x = matched(emit, term, _of_hard_sigmoid) if runs("HardSigmoid", term.access.dtype) else None
    return None if x is None else _of(emit, "HardSigmoid", x, term, alpha=_SIXTH, beta=0.5)


def _of_hard_sigmoid(e: Expressions) -> Element | None:
    factor, others = e.factors(e.root)
    x = _clipped(e, others[0]) if len(others) == 1 and factor == _SIXTH else None
    return _same_layout(e, x) if x else None


_SIXTH = 1 / 6


def _clipped(e: Expressions, element: Element) -> Element | None:
    """Matches min(max(x + 3, 0), 6), and returns x."""
    within = e.operands(element, "(clip 0 6)")
    return e.plus(within[0], 3) if within else None


def _same_layout(e: Expressions, x: Element) -> Element | None:
    """Returns an element if it has the layout of the whole term except for the dims; else None."""
    return x if axes_of(x) == [axis for own in e.loop.parts for axis in own] else None


def _of(emit: Emitter, op: str, x: Element, term: Term, **attributes: float) -> Value:
    """Emits a node on the array of x."""
    value = emit.view(emit.value_of(x.term), term.access.dims)
    return emit.of_each([value], term.access.dims, lambda a, n: emit.run(op, a, n, None, attributes, main=True))
