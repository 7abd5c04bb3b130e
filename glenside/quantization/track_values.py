"""Tracks the integer form of every term of a program, from its inputs on, and builds the network."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from glenside.analysis.element_sources import moves
from glenside.builder.layout import reshape, split_at
from glenside.ir.dtypes import FLOATS, INTEGERS
from glenside.ir.errors import BadInput, TypeMismatch
from glenside.ir.operand import Array
from glenside.ir.operators.compute import compute_of
from glenside.ir.program import Program, is_product
from glenside.ir.rational import exact
from glenside.ir.term import Term, make, postorder, tensors, weave
from glenside.ir.types import Tensor
from glenside.passes.element_functions import operands_of
from glenside.quantization.additions import added
from glenside.quantization.affine import Affine, beside, moved_by, one_number
from glenside.quantization.building import Network
from glenside.quantization.byte_functions import Curve, base_of, table_of, unviewed
from glenside.quantization.file_nodes import read_by
from glenside.quantization.gating import gated, without_zeros
from glenside.quantization.max_pools import fills_with_least, maximum, with_least
from glenside.quantization.merging import merged
from glenside.quantization.multiplying import multiplied, operand, weights
from glenside.quantization.normalizing import softmax_of, standardisation, standardised
from glenside.quantization.products import value_of
from glenside.quantization.steps import FUNCTIONS, PAIRS
from glenside.quantization.values import (
    BYTES,
    Bytes,
    Known,
    Leaf,
    Moved,
    Product,
    Real,
    Summed,
    bytes_of_weights,
    name_in,
    narrow,
    place_of,
    standing_for,
)
from glenside.semantics.interpreter import evaluate


@dataclass(frozen=True, eq=False)
class Refused:
    """A term that the machine cannot compute, and the reason."""

    why: str


class _LocatedRefusal(BadInput):
    """A refusal that names its place, to which later terms add nothing."""


class Follower:
    """Tracks the values of a program's terms, and builds the integer network that computes them.

    found  term -> its value, for terms that are not constants
    nodes  returns the file's node of a term, or ""
    """

    def __init__(
        self, program: Program, constants: Mapping[str, Array], network: Network, nodes: Callable[[Term], str]
    ) -> None:
        self.program, self.constants, self.network, self.nodes = program, constants, network, nodes
        self.roots = program.roots
        self.constant = dict(program.info.constant)
        self.names = {term: name for name, term in reversed(list(program.layers.items()))}
        self.found: dict[Term, Affine | Curve | Refused] = {}
        self._known: dict[Term, Array] = {}
        self._with_least: set[Term] = set()
        found = ((term, standardisation(term, self.constant)) for term in postorder(*self.roots))
        self._standard = {term: own for term, own in found if own is not None}
        self._sources = defaultdict[Term, list[tuple[Term, Affine]]](list)

    def follow(self) -> None:
        """Tracks every term, operands first."""
        for term in postorder(*self.roots):
            if self.constant[term] or term.operator.name in ("access-product", "construct-tuple"):
                continue
            self.found[term] = self._followed(term)

    def _followed(self, term: Term) -> Affine | Curve | Refused:
        if term in self._standard:
            return self._standardised(term)
        below = [self.found.get(c) for c in read_by(term)]
        refused = next((value for value in below if isinstance(value, Refused)), None)
        if refused is not None:
            return refused
        try:
            bent = any(isinstance(value, Curve) for value in below)
            value = self._curve(term) if bent else self._step(term)
        except (BadInput, TypeMismatch) as error:
            why = self._with_place(term, error)
            return (None if bent else self._as_function(term, why)) or Refused(why)
        if isinstance(value, Curve):
            return value
        if value.dtype in BYTES and value.whole:
            for leaf in value.bytes:
                if leaf.term.access.size == term.access.size:
                    self._sources[leaf.term].append((term, value))
        return value

    def _standardised(self, term: Term) -> Affine | Refused:
        """Returns a normalized tensor, before the scale and shift of a layer norm."""
        own = self._standard[term]
        name = self.network.kind("layer-norm" if own.centred else "rms-norm")
        try:
            value = standardised(self.network.solid(self.value(own.base)), own, name)
        except BadInput as error:
            return Refused(self._with_place(term, error))
        viewed = split_at(reshape(value.moved.term, term.access.dims), term.access.split)
        return replace(value, moved=replace(value.moved, term=viewed))

    def _as_function(self, term: Term, why: str) -> Curve | None:
        """Returns a term as a function of the bytes of one tensor, or None."""
        base = None if operands_of(unviewed(term)) is None else base_of(term, self.constant)
        if base is None or base is term or not isinstance(self.found.get(base), Affine):
            return None
        return Curve(base, why)

    def _curve(self, term: Term) -> Affine | Curve:
        """Returns the value of a term computed from a function of bytes: another such function, or bytes from its
        table. Raises BadInput.
        """
        own = next(value for c in read_by(term) if isinstance(value := self.found.get(c), Curve))
        found = self._as_function(term, own.why)
        if found is None and term.access.dtype in BYTES and operands_of(term) is not None:
            base = base_of(term.children[0], self.constant)
            if base is not None and isinstance(self.found.get(base), Affine):
                table = table_of(term, base, self.constants, self.constant)
                made = self.network.mapped(self.value(base), table, term.access.dtype, self.network.kind("function"))
                return replace(made, moved=replace(made.moved, term=reshape(made.moved.term, term.access.dims)))
        if found is None:
            raise _LocatedRefusal(own.why)
        return found

    def _with_place(self, term: Term, error: BadInput | TypeMismatch) -> str:
        """Returns why and where a term is refused."""
        if isinstance(error, _LocatedRefusal):
            return error.message
        return f"{place_of(term, self.names, self.constant, self.nodes(term))}: {error.message}"

    def _step(self, term: Term) -> Affine:
        operator = term.operator.name
        if operator == "access-tensor":
            return self._input(term)
        if operator == "cast":
            return self.cast(self.value(term.children[0]), term.access.dtype)
        if operator == "compute":
            return self._computed(term)
        if fills_with_least(term):
            return self._least(term)
        if operator == "tuple-get-item":
            return self.value(term)
        if not moves(term):
            raise BadInput(_NOTHING.format(operator))
        if any(self.constant[c] for c in term.children):
            return self._concatenated(term)
        least = any(c in self._with_least for c in term.children)
        if least and (term.index_map is None or term.index_map.fill is not None):
            raise BadInput("the windows of a max-pool contain both zero padding and minimum padding")
        found = moved_by(term, [self.value(c, least) for c in term.children])
        if least:
            self._with_least.add(term)
        return found

    def _concatenated(self, term: Term) -> Affine:
        """Concatenates known numbers, such as a class token, and a tensor."""
        if term.operator.name != "access-concatenate":
            raise BadInput(f"{term.operator.name} combines constants with bytes; a machine can only concatenate them")
        known, other = term.children if self.constant[term.children[0]] else term.children[::-1]
        before = known is term.children[0]
        return beside(term, self.value(other), self.known(known).astype(np.float64), before)

    def _computed(self, term: Term) -> Affine:
        if is_product(term):
            return self._product(term)
        kind, parameters = compute_of(term)
        if kind.name in ("reduce-sum", "reduce-mean"):
            return self._sum(term, kind.name == "reduce-mean")
        if kind.name == "reduce-max":
            return self._maximum(term)
        if kind.name == "softmax":
            child = term.children[0]
            return softmax_of(self.network.solid(self.value(child)), child.access.split, self.network.kind("softmax"))
        pair = _pair(term)
        if pair is not None and kind.name in PAIRS:
            return self._pair(term, kind.name, pair)
        if kind.name in FUNCTIONS:
            return FUNCTIONS[kind.name](self.value(term.children[0]), [float(exact(p) or 0) for p in parameters])
        raise BadInput(_NOTHING.format(kind.name))

    def value(self, term: Term, least: bool = False) -> Affine:
        """Returns the value of a term that is not constant. Raises BadInput for minimum padding unless `least` allows
        it.
        """
        if term.operator.name == "tuple-get-item" and term.children[0].operator.name == "construct-tuple":
            term = term.children[0].children[int(str(term.attributes[0]))]
        value = self.found.get(term)
        if not isinstance(value, Affine):
            raise BadInput("a tuple cannot be bytes") if value is None else _LocatedRefusal(value.why)
        if term in self._with_least and not least:
            raise BadInput("minimum padding is only supported in a max-pool")
        return value

    def _least(self, term: Term) -> Affine:
        """Pads bytes with the least byte, as zeros if it is the zero point."""
        self._with_least.add(term)
        name = self.network.kind("max-pool")
        value = with_least(self.value(term.children[0], True).widened(), name, self._bytes)
        value = replace(value, dtype=term.access.dtype)
        words = weave(term.operator, term.children, term.attributes)
        zeros = ["zero-padding" if word == "min-padding" else word for word in words]
        return moved_by(make(term.operator, zeros), [value], least=True)

    def _bytes(self, value: Affine) -> Affine:
        return self.network.quantized(value, "int8")

    def _maximum(self, term: Term) -> Affine:
        child, name = term.children[0], self.network.kind("max-pool")
        value = self.value(child, True).widened()
        found = maximum(value, child.access.split, name, self._bytes)
        moved = replace(found.moved, term=split_at(found.moved.term, term.access.split))
        return replace(found, moved=moved, dtype=term.access.dtype)

    def known(self, term: Term) -> Array:
        """Returns the value of a constant. Raises BadInput."""
        if term not in self._known:
            (found,) = evaluate([term], self.constants)
            self._known[term] = np.asarray(found)
        return self._known[term]

    def _input(self, term: Term) -> Affine:
        (tensor,) = term.attributes
        assert isinstance(tensor, Tensor)
        if tensor.dtype in FLOATS:
            return Affine(standing_for(Real(tensor), tensor.dims), tensor.dtype)
        if tensor.dtype not in BYTES:
            raise BadInput(f"inputs must be bytes, or floats that are quantized, got {tensor.dtype}")
        own = 128 if tensor.dtype == "uint8" else 0
        moved = standing_for(self.network.input(tensor, 1.0, -own), tensor.dims)
        return Affine(moved, tensor.dtype, one_number(own))

    def cast(self, value: Affine, dtype: str) -> Affine:
        """Casts; rounded numbers in 8 bits become bytes of the network."""
        if value.dtype in BYTES:
            return replace(value, dtype=dtype) if dtype in BYTES else replace(value.widened(), dtype=dtype)
        if dtype in BYTES:
            if value.whole:
                return replace(value, dtype=dtype)
            return self.network.quantized(replace(value, offset=0.0) if value.integral else value, dtype)
        if value.offset is not None and dtype in _OTHERS:
            raise BadInput(f"numbers are quantized to {dtype}; a machine has only bytes")
        integral = value.offset is not None or value.dtype not in FLOATS or value.whole
        if dtype in FLOATS or integral:
            return replace(value, dtype=dtype)
        raise BadInput(f"a cast to {dtype} truncates towards zero; a machine rounds to the nearest integer")

    def _pair(self, term: Term, kind: str, pair: tuple[Term, Term]) -> Affine:
        first, second = pair
        if not self.constant[first] and not self.constant[second]:
            return self._both(term, kind, self.value(first), self.value(second))
        x, by = (second, first) if self.constant[first] else (first, second)
        numbers = narrow(self.known(by)).astype(np.float64)
        value = self.value(x)
        if kind in ("elementwise-mul", "elementwise-div") and value.offset is not None:
            value = self._fake(value)
        return PAIRS[kind](value, numbers, self.constant[first])

    def _fake(self, value: Affine) -> Affine:
        """Returns rounded and rescaled floats that were not bytes, as bytes."""
        low = float(value.low.max()) + (value.offset or 0)
        return replace(self.network.quantized(value, "uint8" if low >= 0 else "int8").widened(), dtype=value.dtype)

    def _both(self, term: Term, kind: str, first: Affine, second: Affine) -> Affine:
        if kind in ("elementwise-add", "subtract") and first.dtype == "int32":
            by = -1 if kind == "subtract" else 1
            found = merged(first, second, by, self._agrees(term))
            if found is not None:
                return found
        if kind in ("elementwise-add", "subtract"):
            name = self.network.kind("addition")
            return added(first, second.times(one_number(-1)) if kind == "subtract" else second, name)
        if kind == "elementwise-mul" and base_of(term, self.constant) is None:
            return gated(first, second, self.network.kind("gate"), self._part)
        raise BadInput(f"{kind} of two tensors is not supported; a machine adds, subtracts and multiplies them")

    def _part(self, value: Affine, numbers: Array) -> Moved:
        return self.network.function(value, numbers, self.network.kind("part"))

    def _agrees(self, term: Term) -> Callable[[Affine, Mapping[Term, Bytes]], bool]:
        """True if a value equals that of an int32 term, on random bytes."""

        def agrees(value: Affine, leaves: Mapping[Term, Bytes]) -> bool:
            draw = np.random.default_rng(0)
            drawn = {leaf.term: draw.integers(-128, 128, leaf.term.access.dims) for leaf in leaves.values()}
            read, given = {*postorder(term)}, dict[Term, Array]()
            for source, stored in (own for x in drawn for own in self._sources[x]):
                if source in read:
                    given[source] = value_of(stored, _integers(stored.moved.leaves, drawn)).astype(source.access.dtype)
            if not all(self.constant[t] for t in postorder(term, without=given) if not t.children):
                return False
            (wanted,) = evaluate([term], self.constants, given=given)
            return bool((np.asarray(wanted) == value_of(value, _integers(leaves, drawn))).all())

        return agrees

    def _sum(self, term: Term, mean: bool) -> Affine:
        value = self.value(term.children[0])
        split, item = term.children[0].access.split, term.children[0].access.item
        if value.dtype in BYTES or term.access.dtype in BYTES:
            raise BadInput("sums of bytes in 8 bits may wrap")
        if np.isfinite(value.low).any() or np.isfinite(value.high).any() or value.offset is not None:
            raise BadInput("an average pool requires bytes: quantize its clipped operand first")
        over = tuple(range(split, len(value.dims)))
        counts, name = prod(item), self.network.kind("average-pool" if mean else "sum")
        scale, shift = value.scale, np.broadcast_to(value.shift, value.dims).sum(over)
        if scale.ndim and any(scale.shape[axis] != 1 for axis in over):
            raise BadInput("an average pool requires one scale along each sum")
        scale = scale.reshape(scale.shape[:split]) if scale.ndim else scale
        leaf: Product | Summed
        if value.bytes and len(value.bytes) == len(value.moved.leaves):
            a = replace(value.moved, term=split_at(value.moved.term, split))
            ones = standing_for(Known(np.ones((1, *item), np.int64), f"{name}.weight"), (1, *item))
            leaf = Product(a, replace(ones, term=split_at(ones.term, 1)), 0, name, True)
            sums = standing_for(leaf, (*value.dims[:split], 1))
            moved = replace(sums, term=reshape(sums.term, value.dims[:split]))
        else:
            inner = [leaf for leaf in value.moved.leaves.values() if isinstance(leaf, Product | Summed)]
            if len(inner) != 1 or not inner[0].summed:
                raise BadInput("an average pool requires bytes, got sums of products: quantize them first")
            moved = standing_for(Summed(inner[0].bytes, inner[0].count * counts), value.dims[:split])
        moved = replace(moved, term=split_at(moved.term, term.access.split))
        return Affine(moved, term.access.dtype, narrow(shift), narrow(scale / (counts if mean else 1)))

    def _product(self, term: Term) -> Affine:
        pair = term.children[0]
        if pair.operator.name != "access-product":
            raise BadInput("a product of the two halves of one tensor is not supported: a machine takes two operands")
        (shared,) = pair.attributes
        assert isinstance(shared, int), "axes are counted"
        known = [self.constant[c] for c in pair.children]
        values = [None if own else self.value(c) for c, own in zip(pair.children, known, strict=True)]
        splits = [c.access.split for c in pair.children]
        values = without_zeros(values, splits, self._part)
        a, b = (
            weights(self.known, c, self._dequantized) if own is None else operand(own, split, alone=None not in values)
            for c, own, split in zip(pair.children, values, splits, strict=True)
        )
        value = multiplied(a, b, shared, self.names.get(term, "product"), term.access.dtype)
        return replace(value, moved=replace(value.moved, term=split_at(value.moved.term, term.access.split)))

    def _dequantized(self, term: Term) -> Affine:
        """Returns float weights: constants that are dequantized. Raises BadInput for weights that are not bytes."""
        inner = _Weights(Program(term), self.constants, self.network)
        inner.follow()
        value = inner.found.get(term)
        if value is None:
            raise BadInput(f"its weights are {term.access.dtype}: a machine multiplies bytes, so quantize them")
        if isinstance(value, Refused | Curve):
            raise BadInput(f"in its weights, {value.why}")
        return value


class _Weights(Follower):
    """Tracks weights, from constants that hold bytes or are quantized."""

    def __init__(self, program: Program, constants: Mapping[str, Array], network: Network) -> None:
        super().__init__(program, constants, network, lambda _: "")
        self.held = bytes_of_weights(program.term)
        for term in postorder(program.term):
            self.constant[term] = term not in self.held and all(self.constant[c] for c in term.children)

    def _step(self, term: Term) -> Affine:
        if term not in self.held:
            return super()._step(term)
        values = self.known(term)
        return Affine(
            standing_for(Known(values.astype(np.int32), name_in(next(iter(tensors(term))))), values.shape), "int32"
        )


_OTHERS = tuple(dtype for dtype in INTEGERS if dtype not in (*BYTES, "int32", "int64"))
_NOTHING = "{} needs a vector unit; a machine scales, shifts, clips and rounds sums of products"


def _integers(leaves: Mapping[Term, Leaf], drawn: Mapping[Term, Array]) -> dict[str, Array]:
    """Returns bytes minus their zero point, by the names of their stand-ins."""
    return {
        name_in(stand_in): (drawn[leaf.term] - leaf.zero).astype(np.int32)
        for stand_in, leaf in leaves.items()
        if isinstance(leaf, Bytes)
    }


def _pair(term: Term) -> tuple[Term, Term] | None:
    """Returns the two tensors that a fold combines elementwise, or None."""
    pair = term.children[0]
    if pair.operator.name != "access-product":
        return None
    a, b = pair.children
    same = a.access.dims == b.access.dims and a.access.split == b.access.split == pair.attributes[0]
    return (a, b) if same and term.access.dims == a.access.dims else None
