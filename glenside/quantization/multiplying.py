"""Computes products of integers, and of scaled integers: scales that are constant along a sum are factored out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from glenside.analysis.element_sources import leaves_of
from glenside.builder.layout import split_at
from glenside.ir.dtypes import FLOATS
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term, build, rebuild_all
from glenside.quantization.affine import Affine
from glenside.quantization.products import known_values
from glenside.quantization.values import (
    Known,
    Leaf,
    Moved,
    Product,
    Real,
    largest_tensor,
    narrow,
    pulled_back,
    standing_for,
)
from glenside.semantics.interpreter import evaluate

_MOST = (1 << 31) - 1


@dataclass(frozen=True)
class Operand:
    """(integers + shift) * scale, (S)(I), of integers up to `largest` in magnitude; the scale is ()() or ()(S)."""

    moved: Moved
    shift: float
    scale: Array
    largest: float

    @property
    def known(self) -> bool:
        return all(isinstance(leaf, Known) for leaf in self.moved.leaves.values())


def operand(value: Affine, split: int, alone: bool) -> Operand:
    """Returns an operand that changes: bytes, minus their zero point if zeros are filled in or the other changes too.

    Raises BadInput for values that a machine cannot multiply.
    """
    value = value.widened()
    reason = _reason(value)
    if reason:
        raise BadInput(f"a machine multiplies bytes: {reason}")
    value = replace(value, shift=np.rint(value.shift))
    raw = value if alone else value.raw()
    value = value.centred() if alone or raw.shift.ndim else raw
    if value.shift.ndim or (value.shift and alone):
        raise BadInput("the bytes of an operand have padding that is not a real 0, or different shifts")
    least, most = replace(value, scale=np.asarray(1.0), shift=np.asarray(0.0)).ends
    return Operand(value.moved, float(value.shift), _of_items(value.scale, split), max(-least, most))


def _reason(value: Affine) -> str:
    """Returns the step that is missing before a multiplication, or ""."""
    inputs = [leaf.tensor.name for leaf in value.moved.leaves.values() if isinstance(leaf, Real)]
    if inputs:
        return f"quantize the input {inputs[0]} before it"
    if value.products:
        return f"quantize the result of the layer {value.products[0].name} before it"
    near = np.abs(value.shift - np.rint(value.shift)).max() < 1e-4
    if not value.bytes or value.offset is not None or not near or not value.fits:
        return "quantize again what was added to dequantized ones, or clipped"
    return ""


def _of_items(scale: Array, split: int) -> Array:
    """Returns a scale per item. Raises BadInput if it changes within an item."""
    if not scale.ndim:
        return scale
    if any(n != 1 for n in scale.shape[split:]):
        raise BadInput("sums of dequantized bytes require one scale along each sum")
    return scale.reshape(scale.shape[:split])


def weights(known: Callable[[Term], Array], term: Term, dequantized: Callable[[Term], Affine]) -> Operand:
    """Returns a constant operand: movement of integers, or of dequantized ones. Raises BadInput for floats."""
    if term.access.dtype in FLOATS:
        return _scaled(dequantized(term), term)
    done, leaves = dict[Term, Term](), dict[Term, Leaf]()
    for leaf in leaves_of(term):
        moved = standing_for(Known(known(leaf).astype(np.int64), largest_tensor(leaf)), leaf.access.dims)
        done[leaf] = split_at(moved.term, leaf.access.split)
        leaves |= moved.leaves
    (found,) = rebuild_all([term], lambda *_: None, done)
    return _of_known(Moved(found, leaves), np.asarray(1.0))


def _scaled(value: Affine, term: Term) -> Operand:
    """Returns weights and their zero points, which may be per channel, as integers."""
    plain = value.offset is None and np.isinf(value.low).all() and np.isinf(value.high).all()
    if not plain or (np.abs(value.shift - np.rint(value.shift)) > 1e-4).any():
        raise BadInput("its weights are not dequantized bytes")
    (shifts,) = pulled_back(value.moved, [np.rint(value.shift)], "zero points")
    leaves: dict[Term, Leaf] = {}
    for stand_in, leaf in value.moved.leaves.items():
        assert isinstance(leaf, Known), "weights are made of constants"
        shift = shifts[stand_in].astype(np.int64)
        leaves[stand_in] = replace(leaf, values=leaf.values + shift) if shift.any() else leaf
    moved = replace(value.moved, term=split_at(value.moved.term, term.access.split), leaves=leaves)
    return _of_known(moved, _of_items(value.scale, term.access.split))


def _of_known(moved: Moved, scale: Array) -> Operand:
    ends = [(int(x.min(initial=0)), int(x.max(initial=0))) for x in known_values(moved).values()]
    largest = max((max(-least, most) for least, most in ends), default=0)
    return Operand(moved, 0.0, scale, largest)


def multiplied(a: Operand, b: Operand, shared: int, name: str, dtype: str) -> Affine:
    """Returns the product of two operands: int32 sums, scaled and shifted. Raises BadInput if they may overflow."""
    product = Product(a.moved, b.moved, shared, name)
    if dtype in FLOATS and a.largest * b.largest * product.count > _MOST:
        bound = f"{product.count} products of up to {a.largest * b.largest:.0f}"
        raise BadInput(f"sums are int32, in which {bound} may overflow")
    shift = np.asarray(0.0)
    if a.shift:
        shift = shift + a.shift * _along(_sums(b.moved), product, False)
    if b.shift:
        shift = shift + b.shift * _along(_sums(a.moved), product, True)
    scale = _along(b.scale, product, False) * _along(a.scale, product, True)
    dims = (*a.moved.term.access.shape, *b.moved.term.access.shape[shared:])
    return Affine(standing_for(product, dims), dtype, narrow(shift), narrow(np.asarray(scale)))


def _sums(known: Moved) -> Array:
    """Returns the sums of the items of a known operand, ()(S)."""
    (sums,) = evaluate([build("compute", "reduce-sum", known.term)], known_values(known))
    return np.asarray(sums).astype(np.float64)


def _along(numbers: Array, product: Product, first: bool) -> Array:
    """Aligns numbers per item of one operand with the sums of a product."""
    if not numbers.ndim:
        return numbers
    others = len((product.b if first else product.a).term.access.shape) - product.shared
    at = numbers.ndim if first else product.shared
    made: Array = numbers.reshape((*numbers.shape[:at], *(1 for _ in range(others)), *numbers.shape[at:]))
    return made
