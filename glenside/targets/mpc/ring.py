"""What a fixed-point program may lose without notice: numbers that the ring does not hold, errors that are not bounded.

The ring of b bits holds numbers up to 2^(b-1) units of 2^-f; a product has 2^(2f) of them to a 1 until it is truncated.
Magnitudes are bounded by worst cases, from the values of constants and from what the inputs are said to be: what fits
here does, and what does not may.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from glenside.ir.dtypes import FLOATS
from glenside.ir.operators.compute import name_of
from glenside.ir.operators.products import access_product
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, postorder
from glenside.ir.types import AccessType, Tensor
from glenside.targets.mpc.precision import Bound, bound_of

_ONE_AT_MOST = ("softmax", "sigmoid", "tanh", "erf", "sin", "cos", "sign")
"""Compute types of no bound of errors whose results are 1 at most."""


@dataclass(frozen=True)
class Reach:
    """What a program's numbers may reach.

    layer     the first layer, or operator, whose numbers the ring may not hold; "" where it holds all
    largest   what those may be, and `held` what the ring holds there
    unbounded operators whose errors have no bound here
    """

    layer: str
    largest: float
    held: float
    unbounded: tuple[str, ...]


def reach(program: Program, bits: int, field: int, magnitude: float) -> Reach:
    """Bound every intermediate of a program, whose inputs and unknown constants are `magnitude` at most."""

    def most(tensor: Tensor) -> float:
        value = program.constants.get(tensor.name)
        return magnitude if value is None else float(np.max(np.abs(np.asarray(value, np.float64)), initial=0))

    names = {term: name for name, term in program.layers.items()}
    done: dict[Term, tuple[Bound, ...]] = {}
    unbounded: dict[str, None] = {}
    first: tuple[str, float, float] | None = None
    layer = ""
    for term in postorder(program.term):
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
    """What is assumed of what has no bound: no more than its operands, as of an activation or a norm."""
    return max((bound.magnitude for bound in operands), default=magnitude)


def said(found: Reach, bits: int, field: int, magnitude: float) -> list[str]:
    """The same in sentences."""
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
