"""Builds an integer network: bytes of inputs, weights, and layers of sums that are requantized."""

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
_SAME_BYTE_TOLERANCE = 1e-3
"""Scales are floats: a byte that is rounded to itself again is within this distance of an integer, in steps."""


_BIAS_TOLERANCE = 2e-3
"""The error of a bias, in steps of bytes, above which weights are enlarged."""
_BYTES = 256


class BeyondSums(BadInput):
    """Layers whose biases exceed int32: name -> the bias of each sum, in its steps."""

    def __init__(self, shifts: Mapping[str, Array], node: str = "") -> None:
        (name, shift), *_ = shifts.items()
        place = f"{node}{', ' * bool(node)}the layer {name}"
        super().__init__(f"{place}: its bias fits int32, got {float(shift.flat[np.abs(shift).argmax()]):.6g}")
        self.shifts = shifts


@dataclass
class Network:
    """The layers so far.

    taken     names of tensors
    reserved  names of the program's layers; other layers get a number, or the name of a kind that no layer has
    beyond    result of a layer -> its name and bias, if that exceeds int32
    """

    taken: set[str]
    reserved: frozenset[str]
    constants: dict[str, Array] = field(default_factory=dict)
    layers: list[IntegerLayer] = field(default_factory=list)
    inputs: dict[str, tuple[float, int]] = field(default_factory=dict)
    beyond: dict[Term, tuple[str, Array]] = field(default_factory=dict)
    _bytes: dict[str, Bytes] = field(default_factory=dict)

    def kind(self, name: str) -> str:
        """Returns a name for layers of a kind that is not a name of the program's layers."""
        return numbered(name, self.reserved)

    def input(self, tensor: Tensor, scale: float, zero: int) -> Bytes:
        """Returns the bytes of an input. Raises BadInput if it is quantized in two ways."""
        known = self.inputs.setdefault(tensor.name, (scale, zero))
        if known != (scale, zero):
            raise BadInput(f"it is quantized in two ways: by {known[0]:.6g} {known[1]:+} and by {scale:.6g} {zero:+}")
        if tensor.name not in self._bytes:
            self._bytes[tensor.name] = Bytes(build("access-tensor", replace(tensor, dtype="int8")))
        return self._bytes[tensor.name]

    def constant(self, name: str, values: Array) -> Term:
        """Returns a constant of that name, or of the next free one; equal constants are shared."""
        known = self.constants.get(name)
        if known is None or known.dtype != values.dtype or not np.array_equal(known, values):
            name = numbered(name, self.taken)
            self.constants[name] = values
            self.taken.add(name)
        dims = Dims(values.shape)
        return build("access-tensor", Tensor(name, dims, values.dtype.name, constant=True))

    def quantized(self, value: Affine, dtype: str) -> Affine:
        """Returns rounded numbers in 8 bits. Raises BadInput for operations that the machine lacks."""
        if value.offset is None:
            raise BadInput(f"a cast to {dtype} truncates towards zero; a machine rounds to the nearest integer")
        own = 128 if dtype == "uint8" else 0
        around = value.around()
        if around is not None:
            value = self._with_fill_values(value, around, dtype)
        value = value.with_nearest_bias(_INT8[0] + own, _INT8[1] + own)
        assert value.offset is not None, "it is rounded"
        low, high = (_one_integer(end + value.offset - own) for end in (value.low, value.high))
        if not _INT8[0] <= low <= high <= _INT8[1]:
            raise BadInput(f"a cast to {dtype} wraps: clip to its range first")
        zero = int(value.offset) - own
        if not _INT8[0] <= zero <= _INT8[1]:
            raise BadInput(f"a zero point must be within the range of {dtype}, got {int(value.offset)}")
        kinds = {type(leaf) for leaf in value.moved.leaves.values()}
        if kinds == {Bytes}:
            same = _same_bytes(value, low, high, zero, own)
            if same is not None:
                return replace(same, dtype=dtype)
            value = _rescaled(value, self.kind("rescale"))
        elif kinds == {Real}:
            made = self._of_input(value, dtype, zero, own)
            return made if (low, high) == _INT8 else self._clipped(made, value)
        elif kinds != {Product}:
            raise BadInput("sums of sums cannot be requantized")
        scales, shifts = pulled_back(value.moved, [value.scale, value.shift], "scales")
        leaves: dict[Term, Bytes] = {}
        for stand_in, leaf in value.moved.leaves.items():
            assert isinstance(leaf, Product)
            own_zero = zero if value.moved.filled else 0
            term = self._layer(leaf, scales[stand_in], shifts[stand_in], zero, low, high)
            leaves[stand_in] = Bytes(term, own_zero, low, high)
        return _stored(value.moved, leaves, dtype, zero, own)

    def _with_fill_values(self, value: Affine, around: Array, dtype: str) -> Affine:
        """Returns rounded sums with filled zeros as the bytes of the sums, padded with zeros."""
        without = replace(value, shift=narrow(np.where(around, 0, value.shift)))
        if without.around() is not None:
            raise BadInput("a padding with 0 requires numbers whose clip range contains 0")
        made = self.quantized(without, dtype)
        assert value.offset is not None, "it is rounded"
        real = replace(made, shift=narrow(made.shift - value.offset + around), dtype=value.dtype)
        return replace(real, low=value.low, high=value.high, offset=value.offset)

    def _of_input(self, value: Affine, dtype: str, zero: int, own: int) -> Affine:
        if value.shift.ndim or value.scale.ndim or value.shift or value.scale <= 0:
            raise BadInput("an input requires quantizing by one positive scale, without an addition before it")
        leaves: dict[Term, Bytes] = {}
        for stand_in, leaf in value.moved.leaves.items():
            assert isinstance(leaf, Real)
            made = self.input(leaf.tensor, float(np.float32(1 / value.scale)), zero)
            leaves[stand_in] = replace(made, zero=zero if value.moved.filled else 0)
        return _stored(value.moved, leaves, dtype, zero, own)

    def _clipped(self, made: Affine, value: Affine) -> Affine:
        """Returns the bytes of an input, which the host does not clip, clipped to the ends of the rounded value."""
        assert value.offset is not None, "it is rounded"
        rounded = Affine(made.moved, "float32", made.widened().shift - value.offset)
        return self.quantized(replace(rounded, low=value.low, high=value.high, offset=value.offset), made.dtype)

    def solid(self, value: Affine) -> Affine:
        """Replaces filled zeros among bytes by bytes for 0, in a layer that copies them; other values are unchanged."""
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
        """Applies a table to bytes, both as the program stores them: entry b - least for byte b."""
        value, own = _bytes_alone(self.solid(value)), 128 if dtype == "uint8" else 0
        stored = np.arange(-128, 128) + int(value.shift)  # for each byte of the network, the program's byte
        least = limits(value.dtype)[0]
        numbers = np.roll((table - own)[np.mod(stored - least, 256)], 128)
        return Affine(self.function(value, numbers, name), dtype, one_number(own))

    def function(self, value: Affine, numbers: Array, name: str) -> Moved:
        """Applies a table to bytes with zero point 0: entry b modulo 256 for byte b."""
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
            raise BadInput(f"the scale of its sums must be a positive normal float32, got {by.min()!s}")
        made = cast(self._biased(product, sums, bias), "float32")
        scales = self.constant(f"{product.name}.scale", by)
        made = compute("round", multiply(made, broadcast(scales, made.access.dims)))
        made = add(made, build("full", made.access.dims, zero, "float32")) if zero else made
        made = cast(compute(f"(clip {low} {high})", made), "int8")
        if table is not None:
            made = build("access-gather", self.constant(f"{product.name}.table", table), made, 0)
        requantised = Requantised(bias, by, zero, low, high, table)
        return self._new_layer(product, shift, sums, requantised, None, made)

    def result(self, product: Product, shift: Array) -> Term:
        """Returns a layer whose result is its sums with a bias, ()(dims) int32."""
        if product.normalised is not None:
            raise BadInput(f"a {product.normalised.kind} must end in bytes: quantize its result")
        sums, bias = self.sums(product), _bias(shift)
        if not bias.any():
            made, given = split_at(sums, 0), None
        else:
            made, given = self._biased(product, sums, bias), bias
        return self._new_layer(product, shift, sums, None, given, made)

    def _new_layer(
        self,
        product: Product,
        shift: Array,
        sums: Term,
        requantised: Requantised | None,
        bias: Array | None,
        made: Term,
    ) -> Term:
        """Adds a layer once; a product whose sums become several tensors is several layers."""
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
        """Returns the product of two operands, of int8 if neither has a zero point, else of int32; `greatest` takes
        maxima.
        """
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
                    raise BadInput(f"its weights, less their zero point, must fit int8; {leaf.name} has {ends}")
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
    """Returns bytes with zero point 0, plus one integer for all. Raises BadInput for others."""
    value = value.raw()
    apart = {leaf.zero for leaf in value.bytes}
    if not value.whole or value.moved.filled or apart != {0}:
        raise BadInput("a function of bytes requires the bytes of one tensor, without padding zeros")
    return value


def _one_integer(numbers: Array) -> int:
    least, most = np.clip([numbers.min(), numbers.max()], *_INT8) if np.isfinite(numbers).all() else (0, 1)
    if not np.isfinite(numbers).all():
        return _INT8[0] - 1
    if least != most:
        raise BadInput(f"bytes of a layer must be clipped to one range, got ends from {least:.6g} to {most:.6g}")
    return int(least)


def _bias(shift: Array) -> Array:
    """Returns the bias in whole steps of sums, clamped to int32; a layer that exceeds it is refused if it is used."""
    made: Array = np.clip(np.rint(shift), -_INT32[1], _INT32[1]).astype(np.int32)
    return made


def _stored(moved: Moved, leaves: dict[Term, Bytes], dtype: str, zero: int, own: int) -> Affine:
    """Returns bytes as the program stores them."""
    return Affine(moved.with_leaves(leaves), dtype, one_number(own + (zero if moved.filled else 0)))


def _same_bytes(value: Affine, low: int, high: int, zero: int, own: int) -> Affine | None:
    """Returns the same bytes if quantizing dequantized ones changes none, else None."""
    if value.scale.ndim or value.shift.ndim or abs(value.scale - 1) > _SAME_BYTE_TOLERANCE / 256:
        return None
    shift = np.rint(value.shift)
    found = replace(value, shift=np.asarray(shift + zero + own), scale=one_number(1), offset=None)
    found = replace(found, low=one_number(-np.inf), high=one_number(np.inf))
    least, most = found.ends
    if abs(value.shift - shift) > _SAME_BYTE_TOLERANCE or least < low + own or most > high + own:
        return None
    return found


def _rescaled(value: Affine, name: str) -> Affine:
    """Multiplies bytes by 1, so that they are sums of one product each."""
    (raw,) = alike([value])
    return replace(raw, moved=weighted([raw.moved], [[1]], name))


def _with_finer_steps(product: Product, scale: Array, shift: Array) -> tuple[Product, Array, Array]:
    """Multiplies small weights by an integer, if the bias is then closer to an integer number of steps."""
    known = [leaf.values for leaf in product.b.leaves.values() if isinstance(leaf, Known)]
    most = max((max(-int(own.min(initial=-1)), int(own.max(initial=1))) for own in known), default=1)
    if product.greatest or len(known) < len(product.b.leaves):
        return product, scale, shift
    largest = _BYTES * most * max(1, product.count) + float(np.abs(shift).max(initial=0))
    room = min(WEIGHT // most, int(_INT32[1] / (2 * largest)))

    def off(by: int) -> float:
        """Returns the distance from integers, in steps of the result."""
        return float(np.abs((shift - np.rint(shift * by) / by) * scale).max(initial=0))

    if room < 2 or off(1) <= _BIAS_TOLERANCE:
        return product, scale, shift
    by = next((by for by in range(2, room + 1) if off(by) <= _BIAS_TOLERANCE), 0) or min(range(1, room + 1), key=off)
    return with_weights(product, one_number(by), np.multiply), scale / by, shift * by


def _with_positive_scale(product: Product, scale: Array, shift: Array) -> tuple[Product, Array, Array]:
    """Moves the sign of a scale into the weights: (s + b) c = (-s - b) (-c)."""
    if (scale > 0).all():
        return product, scale, shift
    assert not product.greatest, "negating would turn a maximum into a minimum"
    signs = np.sign(scale)
    return with_weights(product, signs, np.multiply), np.abs(scale), shift * signs
