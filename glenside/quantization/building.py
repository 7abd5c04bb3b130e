"""The integer network as it grows: bytes of inputs, weights, and layers of sums that become bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from glenside.builder.layout import broadcast, reshape, split_at
from glenside.builder.pointwise import add, cast, compute, multiply
from glenside.ir.dtypes import limits
from glenside.ir.errors import BadInput
from glenside.ir.names import numbered
from glenside.ir.operand import Array
from glenside.ir.term import Term, build, rebuild_all
from glenside.ir.types import Dims, Tensor
from glenside.quantization.additions import WEIGHT, weighted
from glenside.quantization.affine import Affine, alike, one_number
from glenside.quantization.layers import IntegerLayer, Requantised
from glenside.quantization.normalizing import changed
from glenside.quantization.products import with_weights
from glenside.quantization.values import Bytes, Known, Moved, Product, Real, narrow, pulled_back

_INT8, _INT32 = limits("int8"), limits("int32")
_NEAR = 1e-3
"""Scales are floats: what is rounded to the same byte again is nearer to an integer than that."""


_OFF = 2e-3
"""Steps of bytes by which what is added to sums may be off, where smaller weights leave room for less."""
_BYTES = 256


class BeyondSums(BadInput):
    """Layers whose biases int32 does not hold: name -> what is added to each sum, in its steps."""

    def __init__(self, shifts: Mapping[str, Array], node: str = "") -> None:
        (name, shift), *_ = shifts.items()
        place = f"{node}{', ' * bool(node)}the layer {name}"
        super().__init__(f"{place}: its bias fits int32, got {float(shift.flat[np.abs(shift).argmax()]):.6g}")
        self.shifts = shifts


@dataclass
class Network:
    """The layers so far.

    taken     names of tensors
    reserved  names of the layers of the program; others are those with a number, or of a kind that is none of them
    beyond    result of a layer -> its name and what is added to its sums, where that is more than int32 holds
    """

    taken: set[str]
    reserved: frozenset[str]
    constants: dict[str, Array] = field(default_factory=dict)
    layers: list[IntegerLayer] = field(default_factory=list)
    inputs: dict[str, tuple[float, int]] = field(default_factory=dict)
    beyond: dict[Term, tuple[str, Array]] = field(default_factory=dict)
    _bytes: dict[str, Bytes] = field(default_factory=dict)

    def kind(self, name: str) -> str:
        """What layers of a kind are called that the program has not."""
        return numbered(name, self.reserved)

    def input(self, tensor: Tensor, scale: float, zero: int) -> Bytes:
        """The bytes of an input. Raises BadInput where it is quantized in two ways."""
        known = self.inputs.setdefault(tensor.name, (scale, zero))
        if known != (scale, zero):
            raise BadInput(f"it is quantized in two ways: by {known[0]:.6g} {known[1]:+} and by {scale:.6g} {zero:+}")
        if tensor.name not in self._bytes:
            self._bytes[tensor.name] = Bytes(build("access-tensor", replace(tensor, dtype="int8")))
        return self._bytes[tensor.name]

    def constant(self, name: str, values: Array) -> Term:
        """A constant of that name, or of the next one that is free; the same values are there once."""
        known = self.constants.get(name)
        if known is None or known.dtype != values.dtype or not np.array_equal(known, values):
            name = numbered(name, self.taken)
            self.constants[name] = values
            self.taken.add(name)
        dims = Dims(values.shape)
        return build("access-tensor", Tensor(name, dims, values.dtype.name, constant=True))

    def quantized(self, value: Affine, dtype: str) -> Affine:
        """What was rounded, in 8 bits. Raises BadInput for what the machine has nothing for."""
        if value.offset is None:
            raise BadInput(f"a cast to {dtype} cuts numbers towards zero; a machine rounds them to the nearest integer")
        own = 128 if dtype == "uint8" else 0
        around = value.around()
        if around is not None:
            value = self._added_around(value, around, dtype)
        value = value.with_nearest_bias(_INT8[0] + own, _INT8[1] + own)
        assert value.offset is not None, "it is rounded"
        low, high = (_one_integer(end + value.offset - own) for end in (value.low, value.high))
        if low < _INT8[0] or high > _INT8[1]:
            raise BadInput(f"what is stored in {dtype} is clipped to its range first, else it wraps")
        zero = int(value.offset) - own
        if not _INT8[0] <= zero <= _INT8[1]:
            raise BadInput(f"a zero point lies within the range of {dtype}, got {int(value.offset)}")
        kinds = {type(leaf) for leaf in value.moved.leaves.values()}
        if kinds == {Bytes}:
            same = _same_bytes(value, low, high, zero, own)
            if same is not None:
                return replace(same, dtype=dtype)
            value = _rescaled(value, self.kind("rescale"))
        elif kinds == {Real}:
            return self._of_input(value, dtype, zero, own)
        elif kinds != {Product}:
            raise BadInput("sums of sums become no bytes")
        scales, shifts = pulled_back(value.moved, [value.scale, value.shift], "scales")
        leaves: dict[Term, Bytes] = {}
        for stand_in, leaf in value.moved.leaves.items():
            assert isinstance(leaf, Product)
            own_zero = zero if value.moved.filled else 0
            term = self._layer(leaf, scales[stand_in], shifts[stand_in], zero, low, high)
            leaves[stand_in] = Bytes(term, own_zero, low, high)
        return _stored(value.moved, leaves, dtype, zero, own)

    def _added_around(self, value: Affine, around: Array, dtype: str) -> Affine:
        """What was rounded, where those numbers stand in place of some of the zeros among sums: of bytes of these sums,
        around which there are zeros.
        """
        without = replace(value, shift=narrow(np.where(around, 0, value.shift)))
        if without.around() is not None:
            raise BadInput("0 stands around numbers that are clipped to a range without it")
        made = self.quantized(without, dtype)
        assert value.offset is not None, "it is rounded"
        real = replace(made, shift=narrow(made.shift - value.offset + around), dtype=value.dtype)
        return replace(real, low=value.low, high=value.high, offset=value.offset)

    def _of_input(self, value: Affine, dtype: str, zero: int, own: int) -> Affine:
        if value.shift.ndim or value.scale.ndim or value.shift or value.scale <= 0:
            raise BadInput("an input is quantized by one positive scale, and nothing is added to it before")
        leaves: dict[Term, Bytes] = {}
        for stand_in, leaf in value.moved.leaves.items():
            assert isinstance(leaf, Real)
            made = self.input(leaf.tensor, float(np.float32(1 / value.scale)), zero)
            leaves[stand_in] = replace(made, zero=zero if value.moved.filled else 0)
        return _stored(value.moved, leaves, dtype, zero, own)

    def solid(self, value: Affine) -> Affine:
        """Bytes with those that stand for 0 in place of zeros among them, by a layer that copies all; other values as
        they are.
        """
        own = value.widened().centred()
        if not own.moved.filled or len(own.bytes) != len(own.moved.leaves) or own.offset is not None or not own.fits:
            return value
        zeros = {leaf.zero for leaf in own.bytes}
        if len(zeros) > 1 or own.shift.any() or own.scale.ndim:
            return value
        zero, one = zeros.pop(), one_number(1)
        low, high = (one_number(end - zero) for end in _INT8)
        stored = Affine(own.moved, "float32", own.shift, one, low, high, float(zero))
        made = self.quantized(_rescaled(stored, self.kind("copy")), "int8")
        return Affine(made.moved, value.dtype, made.shift - zero, own.scale)

    def mapped(self, value: Affine, table: Array, dtype: str, name: str) -> Affine:
        """A function of bytes, as the program stores both: number b - least of the table for byte b."""
        value, own = _bytes_alone(self.solid(value)), 128 if dtype == "uint8" else 0
        stored = np.arange(-128, 128) + int(value.shift)  # of each byte of the network, what the program stores
        least = limits(value.dtype)[0]
        numbers = np.roll((table - own)[np.mod(stored - least, 256)], 128)
        return Affine(self.function(value, numbers, name), dtype, one_number(own))

    def function(self, value: Affine, numbers: Array, name: str) -> Moved:
        """A function of bytes with a zero point of 0, number b modulo 256 for byte b."""
        flat = replace(value.moved, term=reshape(value.moved.term, (value.moved.term.access.size, 1)))
        moved = weighted([flat], [[1]], name)
        moved = replace(moved, term=reshape(moved.term, value.dims))
        leaves: dict[Term, Bytes] = {}
        for stand_in, leaf in moved.leaves.items():
            assert isinstance(leaf, Product)
            one, none, table = one_number(1.0), one_number(0.0), numbers.astype(np.int8)
            low, high = int(table.min()), int(table.max())
            leaves[stand_in] = Bytes(self._layer(leaf, one, none, 0, *_INT8, table), 0, low, high)
        return moved.with_leaves(leaves)

    def _layer(
        self, product: Product, scale: Array, shift: Array, zero: int, low: int, high: int, table: Array | None = None
    ) -> Term:
        if product.normalised is None:
            product, scale, shift = _with_finer_steps(product, scale, shift)
            product, scale, shift = _with_positive_scale(product, scale, shift)
        sums, bias = self.sums(product), _bias(shift)
        by = scale.astype(np.float32)
        if not (np.isfinite(by).all() and (np.abs(by) >= np.finfo(np.float32).tiny).all()):
            raise BadInput(f"the scale of its sums is a positive normal float32, got {by.min()!s}")
        made = cast(self._biased(product, sums, bias), "float32")
        scales = self.constant(f"{product.name}.scale", by)
        made = compute("round", multiply(made, broadcast(scales, made.access.dims)))
        made = add(made, build("full", made.access.dims, zero, "float32")) if zero else made
        made = cast(compute(f"(clip {low} {high})", made), "int8")
        if table is not None:
            made = build("access-gather", self.constant(f"{product.name}.table", table), made, 0)
        requantised = Requantised(bias, by, zero, low, high, table)
        return self._once(product, shift, sums, requantised, None, made)

    def result(self, product: Product, shift: Array) -> Term:
        """A layer of which sums with a bias are the result, ()(dims) int32."""
        if product.normalised is not None:
            raise BadInput(f"a {product.normalised.kind} ends in bytes: quantize it")
        sums, bias = self.sums(product), _bias(shift)
        if not bias.any():
            made, given = split_at(sums, 0), None
        else:
            made, given = self._biased(product, sums, bias), bias
        return self._once(product, shift, sums, None, given, made)

    def _once(
        self,
        product: Product,
        shift: Array,
        sums: Term,
        requantised: Requantised | None,
        bias: Array | None,
        made: Term,
    ) -> Term:
        """A layer, once; a product whose sums become several tensors is several layers."""
        name, taken = product.name, {layer.name for layer in self.layers}
        if (np.abs(shift) > _INT32[1]).any():
            self.beyond[made] = name, shift
        if all(layer.result is not made for layer in self.layers):
            name = numbered(name, self.reserved | taken) if name in taken else name
            self.layers.append(IntegerLayer(name, sums, requantised, bias, made, product.normalised))
        return made

    def _biased(self, product: Product, sums: Term, bias: Array) -> Term:
        whole = split_at(sums, 0)
        if (own := product.normalised) is not None:
            table = None if own.table is None else self.constant(f"{product.name}.table", own.table)
            whole = changed(whole, own, table)
        if not bias.any():
            return whole
        return add(whole, broadcast(self.constant(f"{product.name}.bias", bias), whole.access.dims))

    def sums(self, product: Product) -> Term:
        """The product of two operands, of int8 where none has a zero point, else of int32, as what is not added up."""
        leaves = [*product.a.leaves.values(), *product.b.leaves.values()]
        wide = product.greatest or any(isinstance(leaf, Bytes) and leaf.zero for leaf in leaves)
        a, b = (self._operand(moved, wide) for moved in (product.a, product.b))
        pairs = build("access-product", a, b, product.shared)
        if product.greatest:
            return build("compute", "reduce-max", build("compute", "elementwise-mul", pairs))
        return build("compute", "dot-product", pairs)

    def _operand(self, moved: Moved, wide: bool) -> Term:
        done: dict[Term, Term] = {}
        for stand_in, leaf in moved.leaves.items():
            if isinstance(leaf, Known):
                if leaf.values.min(initial=0) < _INT8[0] or leaf.values.max(initial=0) > _INT8[1]:
                    ends = f"{leaf.values.min()} to {leaf.values.max()}"
                    raise BadInput(f"its weights, less their zero point, fit int8; {leaf.name} has {ends}")
                made = self.constant(leaf.name, leaf.values.astype(np.int8))
            else:
                assert isinstance(leaf, Bytes)
                made = leaf.term
            if wide:
                made = cast(made, "int32")
            if isinstance(leaf, Bytes) and leaf.zero:
                zero = build("full", made.access.dims, leaf.zero, "int32")
                made = build("compute", "subtract", build("access-product", made, zero, 0))
            done[stand_in] = made
        (found,) = rebuild_all([moved.term], lambda *_: None, done)
        return found


def _bytes_alone(value: Affine) -> Affine:
    """Bytes with a zero point of 0, to all of which one integer is added. Raises BadInput for anything else."""
    value = value.raw()
    apart = {leaf.zero for leaf in value.bytes}
    if not value.whole or value.moved.filled or apart != {0}:
        raise BadInput("a function of bytes is one of those of one tensor, with no zeros among them")
    return value


def _one_integer(numbers: Array) -> int:
    least, most = np.clip([numbers.min(), numbers.max()], *_INT8) if np.isfinite(numbers).all() else (0, 1)
    if not np.isfinite(numbers).all():
        return _INT8[0] - 1
    if least != most:
        raise BadInput(f"bytes of a layer are clipped to one range, got ends from {least:.6g} to {most:.6g}")
    return int(least)


def _bias(shift: Array) -> Array:
    """Whole steps of sums; as many as int32 holds, where they are more: such a layer is none if it is used."""
    made: Array = np.clip(np.rint(shift), -_INT32[1], _INT32[1]).astype(np.int32)
    return made


def _stored(moved: Moved, leaves: dict[Term, Bytes], dtype: str, zero: int, own: int) -> Affine:
    """Bytes as the program stores them."""
    return Affine(moved.with_leaves(leaves), dtype, one_number(own + (zero if moved.filled else 0)))


def _same_bytes(value: Affine, low: int, high: int, zero: int, own: int) -> Affine | None:
    """The same bytes, where quantizing dequantized ones changes none."""
    if value.scale.ndim or value.shift.ndim or abs(value.scale - 1) > _NEAR / 256:
        return None
    shift = np.rint(value.shift)
    found = replace(value, shift=np.asarray(shift + zero + own), scale=one_number(1), offset=None)
    found = replace(found, low=one_number(-np.inf), high=one_number(np.inf))
    least, most = found.ends
    if abs(value.shift - shift) > _NEAR or least < low + own or most > high + own:
        return None
    return found


def _rescaled(value: Affine, name: str) -> Affine:
    """Bytes times 1: sums of one product each."""
    (raw,) = alike([value])
    return replace(raw, moved=weighted([raw.moved], [[1]], name))


def _with_finer_steps(product: Product, scale: Array, shift: Array) -> tuple[Product, Array, Array]:
    """Weights that are small times a whole number, where what is added is nearer to a whole number of such steps."""
    known = [leaf.values for leaf in product.b.leaves.values() if isinstance(leaf, Known)]
    most = max((max(-int(own.min(initial=-1)), int(own.max(initial=1))) for own in known), default=1)
    if product.greatest or len(known) < len(product.b.leaves):
        return product, scale, shift
    largest = _BYTES * most * max(1, product.count) + float(np.abs(shift).max(initial=0))
    room = min(WEIGHT // most, int(_INT32[1] / (2 * largest)))

    def off(by: int) -> float:
        """How far it is from whole numbers, in steps of the result."""
        return float(np.abs((shift - np.rint(shift * by) / by) * scale).max(initial=0))

    if room < 2 or off(1) <= _OFF:
        return product, scale, shift
    by = next((by for by in range(2, room + 1) if off(by) <= _OFF), 0) or min(range(1, room + 1), key=off)
    return with_weights(product, one_number(by), np.multiply), scale / by, shift * by


def _with_positive_scale(product: Product, scale: Array, shift: Array) -> tuple[Product, Array, Array]:
    """(s + b) c = (-s - b) (-c): the sign of a scale in the weights."""
    if (scale > 0).all():
        return product, scale, shift
    assert not product.greatest, "of negative ones the least would be the greatest"
    signs = np.sign(scale)
    return with_weights(product, signs, np.multiply), np.abs(scale), shift * signs
