"""Networks as integer layers: from a program of quantized tensors to products of bytes, exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from glenside.builder.layout import split_at
from glenside.ir.dtypes import FLOATS
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.operators.compute import name_of
from glenside.ir.program import Program, Signature, is_product
from glenside.ir.term import Term, build, postorder, rebuild_all
from glenside.quantization.affine import Affine
from glenside.quantization.building import BeyondSums, Network
from glenside.quantization.curves import Curve
from glenside.quantization.following import Follower, Refused
from glenside.quantization.layers import IntegerLayer, IntegerNetwork, Requantised, leaf_of
from glenside.quantization.values import BYTES, Bytes, Product, Real, pulled_back

__all__ = ["IntegerLayer", "IntegerNetwork", "Requantised", "integer_network", "leaf_of"]


def integer_network(program: Program, constants: Mapping[str, Array] | None = None) -> IntegerNetwork:
    """A program of dequantized and quantized tensors, or of bytes, as integer layers; `constants` are values by name,
    over those of the program.

    Products of bytes that QLinear operators have are the same bit for bit. Where floats are computed between, bytes are
    those of exact arithmetic: a bias is rounded to a multiple of the scale of its sums, which files have, and a number
    halfway between two bytes may become the other one.

    Raises BadInput: what a machine of products has nothing for, with the layer and the operator; a constant without a
    value.
    """
    values = {**program.constants, **(constants or {})}
    program = program.as_written()
    network = Network({*program.inputs}, frozenset(program.layers))
    follower = Follower(program, values, network)
    follower.follow()
    roots = _results(program.term)
    results = [_Result(follower, root) for root in roots]
    terms = [result.term for result in results]
    term = terms[0] if program.term.operator.name != "construct-tuple" else build("construct-tuple", *terms)
    read = Program(term).tensors
    signature = Signature(tuple(t for t in program.inputs.values() if t.name in read), program.signature.outputs)
    found = Program(term, name=program.name, signature=signature)
    used = {*postorder(term)}
    beyond = dict(own for made, own in network.beyond.items() if made in used)
    if beyond:
        raise BeyondSums(beyond)
    layers = tuple(layer for layer in network.layers if layer.result in used)
    if not layers:
        raise BadInput("the network has no product of bytes: there is no layer for a machine")
    kept = {name: array for name, array in network.constants.items() if name in found.constants_declared}
    products = {layer.name: layer.sums for layer in layers if not layer.greatest}
    found = replace(found, layers=products, constants=kept)
    inputs = {name: known for name, known in network.inputs.items() if name in found.inputs}
    rest = "; ".join(dict.fromkeys(result.rest for result in results if result.rest))
    return IntegerNetwork(found, kept, layers, inputs, tuple(result.stands_for for result in results), rest)


def _results(term: Term) -> Sequence[Term]:
    return term.children if term.operator.name == "construct-tuple" else (term,)


class _Result:
    """A result of the network: its term, what its numbers stand for, and what is left to do."""

    def __init__(self, follower: Follower, root: Term) -> None:
        self.follower, self.left = follower, list[str]()
        value = self._cut(root)
        self.stands_for: tuple[float | Array, int]
        if len(value.bytes) == len(value.moved.leaves):
            self.term = self._of_bytes(value)
        else:
            self.term = self._of_sums(value)
        self.rest = ", ".join(self.left)

    def _cut(self, root: Term) -> Affine:
        """What the network computes of a result: all of it, or what the host goes on with. Raises BadInput."""
        follower = self.follower
        if follower.constant[root]:
            raise BadInput("a result is made of constants alone: there is nothing to compute")
        value = follower.found.get(root)
        if value is None:
            raise BadInput("a result is a tensor, not a tuple of them")
        if isinstance(value, Affine):
            return value
        found = follower.found
        known = {t for t, own in found.items() if not isinstance(own, Refused | Curve)}
        steps = [t for t in postorder(root, without=known) if isinstance(found.get(t), Refused | Curve)]
        below = {c for t in steps for c in _read(t) if isinstance(found.get(c), Affine)}
        order = {t: number for number, t in enumerate(postorder(root))}
        while len(below) > 1:  # as a tensor beside itself, scaled: the host takes the last step again
            latest = max(below, key=order.__getitem__)
            if _is_computed(latest) or not (read := {c for c in _read(latest) if isinstance(found.get(c), Affine)}):
                break
            steps.append(latest)
            below = below - {latest} | read
        if any(_is_computed(t) for t in steps) or len(below) != 1:
            raise BadInput(value.why)
        self.left = [name_of(t) for t in sorted(steps, key=order.__getitem__) if t.operator.index_map is None]
        (last,) = (follower.value(c) for c in below)
        if any(isinstance(leaf, Real) for leaf in last.moved.leaves.values()):
            raise BadInput(value.why)
        return last

    def _of_bytes(self, value: Affine) -> Term:
        """Bytes, where one scale and zero point says what they are."""
        if value.offset is not None:
            value = self.follower.cast(value, "int8")
        if value.scale.ndim or value.shift.ndim:
            raise BadInput("the bytes of a result have one scale and one zero point")
        leaves = [leaf for leaf in value.moved.leaves.values() if isinstance(leaf, Bytes)]
        zeros = {leaf.zero for leaf in leaves}
        if len(zeros) != 1 or (value.moved.filled and zeros != {0}):
            raise BadInput("zeros stand around the bytes of a result, whose zero point is another number")
        least, most = value.ends
        if value.low.max() > least or value.high.min() < most:
            self.left.insert(0, f"clip to {float(value.low.max()):.6g} .. {float(value.high.min()):.6g}")
        zero = zeros.pop() - round(float(value.shift))
        self.stands_for = float(value.scale), zero
        done = {s: leaf.term for s, leaf in value.moved.leaves.items() if isinstance(leaf, Bytes)}
        (found,) = rebuild_all([value.moved.term], lambda *_: None, done)
        return split_at(found, 0)

    def _of_sums(self, value: Affine) -> Term:
        """Sums of the last product, in int32."""
        if value.offset is not None or any(not isinstance(leaf, Product) for leaf in value.moved.leaves.values()):
            raise BadInput("a result is bytes, or sums of a product")
        if value.around() is not None:
            raise BadInput("something is added to the zeros around the sums of a result: quantize it")
        if np.isfinite(value.low).any() or np.isfinite(value.high).any():
            self.left.insert(0, "clip")
        if value.dtype in FLOATS:
            self.left.insert(0, "scale")
        self.stands_for = float(value.scale) if not value.scale.ndim else value.scale, 0
        (shifts,) = pulled_back(value.moved, [value.shift], "biases")
        done = {
            stand_in: self.follower.network.result(leaf, shifts[stand_in])
            for stand_in, leaf in value.moved.leaves.items()
            if isinstance(leaf, Product)
        }
        (found,) = rebuild_all([value.moved.term], lambda *_: None, done)
        return split_at(found, 0)


def _is_computed(term: Term) -> bool:
    """Whether a term is a machine's: a product, or bytes that are made."""
    return is_product(term) or (term.operator.name == "cast" and term.access.dtype in BYTES)


def _read(term: Term) -> list[Term]:
    return [b for c in term.children for b in (c.children if c.operator.name == "access-product" else (c,))]
