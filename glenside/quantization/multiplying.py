"""Products of integers, and of numbers that are those, scaled: scales that do not change along a sum leave it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from glenside.analysis.places import leaves_of
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
    """(integers + shift) * scale, (S)(I), of integers of which none is larger; the scale is ()() or ()(S)."""

    moved: Moved
    shift: float
    scale: Array
    largest: float

    @property
    def known(self) -> bool:
        return all(isinstance(leaf, Known) for leaf in self.moved.leaves.values())


def operand(value: Affine, split: int, alone: bool) -> Operand:
    """What changes from run to run: bytes, less their zero point where zeros stand among them, or where the other
    operand changes too. Raises BadInput for what a machine does not multiply.
    """
    value = value.widened()
    reason = _reason(value)
    if reason:
        raise BadInput(f"a machine multiplies bytes: {reason}")
    value = replace(value, shift=np.rint(value.shift))
    raw = value if alone else value.raw()
    value = value.centred() if alone or raw.shift.ndim else raw
    if value.shift.ndim or (value.shift and alone):
        raise BadInput("zeros that are no real 0 stand among the bytes of an operand, or bytes that are shifted apart")
    least, most = replace(value, scale=np.asarray(1.0), shift=np.asarray(0.0)).ends
    return Operand(value.moved, float(value.shift), _of_items(value.scale, split), max(-least, most))


def _reason(value: Affine) -> str:
    """What is to be done before; nothing where a machine multiplies it."""
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
    """A scale as that of whole items. Raises BadInput where it changes within one."""
    if not scale.ndim:
        return scale
    if any(n != 1 for n in scale.shape[split:]):
        raise BadInput("sums of dequantized bytes are those of bytes, scaled, where scales are one along each sum")
    return scale.reshape(scale.shape[:split])


def weights(known: Callable[[Term], Array], term: Term, dequantized: Callable[[Term], Affine]) -> Operand:
    """A constant operand: moves over integers, or over dequantized ones. Raises BadInput for floats."""
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
    """Weights and their zero points, which may be those of channels, as integers."""
    plain = value.offset is None and np.isinf(value.low).all() and np.isinf(value.high).all()
    if not plain or (np.abs(value.shift - np.rint(value.shift)) > 1e-4).any():
        raise BadInput("its weights are no bytes less a zero point, scaled")
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
    """The product of two operands, sums of int32 scaled and shifted. Raises BadInput where those may overflow."""
    product = Product(a.moved, b.moved, shared, name)
    if dtype in FLOATS and a.largest * b.largest * product.count > _MOST:
        bound = f"{product.count} products of up to {a.largest * b.largest:.0f}"
        raise BadInput(f"sums of a machine are int32, in which {bound} may overflow")
    shift = np.asarray(0.0)
    if a.shift:
        shift = shift + a.shift * _along(_sums(b.moved), product, False)
    if b.shift:
        shift = shift + b.shift * _along(_sums(a.moved), product, True)
    scale = _along(b.scale, product, False) * _along(a.scale, product, True)
    dims = (*a.moved.term.access.shape, *b.moved.term.access.shape[shared:])
    return Affine(standing_for(product, dims), dtype, narrow(shift), narrow(np.asarray(scale)))


def _sums(known: Moved) -> Array:
    """The sums of the items of an operand that is known, ()(S)."""
    (sums,) = evaluate([build("compute", "reduce-sum", known.term)], known_values(known))
    return np.asarray(sums).astype(np.float64)


def _along(numbers: Array, product: Product, first: bool) -> Array:
    """Numbers of the items of one operand, as those of the sums of a product."""
    if not numbers.ndim:
        return numbers
    others = len((product.b if first else product.a).term.access.shape) - product.shared
    at = numbers.ndim if first else product.shared
    made: Array = numbers.reshape((*numbers.shape[:at], *(1 for _ in range(others)), *numbers.shape[at:]))
    return made
