"""Detects silent faults of a fixed-point program: overflow of the ring, and operators without an error bound.

A ring of b bits holds numbers up to 2^(b-1) units of 2^-f; a product has units of 2^-2f until it is truncated.
Magnitudes are worst-case bounds from the values of constants and the declared magnitude of inputs: a number within the
bound cannot overflow, one above it may.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from glenside.ir.dtypes import FLOATS
from glenside.ir.operators.compute import name_of
from glenside.ir.operators.products import access_product
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term
from glenside.ir.types import AccessType, Tensor
from glenside.targets.mpc.precision import Bound, bound_of

_ONE_AT_MOST = ("softmax", "sigmoid", "tanh", "erf", "sin", "cos", "sign")
"""Compute types without an error bound whose results are at most 1."""


@dataclass(frozen=True)
class Reach:
    """The range analysis of a program.

    layer     the first layer or operator that may overflow the ring; "" if none may
    largest   the bound of its numbers; `held`: the largest number that the ring holds there
    unbounded operators without an error bound
    """

    layer: str
    largest: float
    held: float
    unbounded: tuple[str, ...]


def reach(program: Program, bits: int, field: int, magnitude: float) -> Reach:
    """Bounds every intermediate of a program whose inputs and unknown constants are at most `magnitude`."""

    def most(tensor: Tensor) -> float:
        value = program.constants.get(tensor.name)
        return magnitude if value is None else float(np.max(np.abs(np.asarray(value, np.float64)), initial=0))

    names = {term: name for name, term in program.layers.items()}
    done: dict[Term, tuple[Bound, ...]] = {}
    unbounded: dict[str, None] = {}
    first: tuple[str, float, float] | None = None
    layer = ""
    for term in program.info.order:
        operands = tuple(bound for child in term.children for bound in done[child])
        if term.operator is access_product or not isinstance(term.type, AccessType):
            done[term] = operands
            continue
        layer = names.get(term, layer)
        bound = bound_of(term, operands, bits, most)
        if bound is None:
            name = name_of(term)
            if term.type.dtype in FLOATS:
                unbounded[name] = None
            bound = Bound(1.0 if name in _ONE_AT_MOST else _as_large(operands, magnitude), 0.0)
        product = is_product(term) or term.attributes[:1] == ("elementwise-mul",)
        held = 2.0 ** (field - 1 - (2 * bits if product else bits))
        if first is None and term.type.dtype in FLOATS and bound.magnitude >= held:
            first = (
                names.get(term) or (f"{name_of(term)} after {layer}" if layer else name_of(term)),
                bound.magnitude,
                held,
            )
        done[term] = (bound,)
    return Reach(*(first or ("", 0.0, math.inf)), tuple(unbounded))


def _as_large(operands: tuple[Bound, ...], magnitude: float) -> float:
    """Returns the assumed magnitude without a bound: that of the operands, as for an activation or a norm."""
    return max((bound.magnitude for bound in operands), default=magnitude)


def said(found: Reach, bits: int, field: int, magnitude: float) -> list[str]:
    """Returns the analysis as sentences."""
    words = []
    if found.layer:
        words.append(
            f"{found.layer} may overflow the ring, without notice when it runs: its numbers may reach"
            f" {found.largest:.2g} for inputs up to {magnitude:g}, and {field} bits with {bits} of fraction"
            f" hold {found.held:.2g} there"
        )
    if found.unbounded:
        names = ", ".join(found.unbounded)
        words.append(f"the errors of {names} are outside this bound, and so are all that follow from them")
    return words
