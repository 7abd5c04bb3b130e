"""Converts a program of quantized tensors to an integer network of products of bytes, exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.program import Program, Signature
from glenside.ir.term import build, postorder
from glenside.quantization.affine import Affine
from glenside.quantization.building import BeyondSums, Network
from glenside.quantization.file_nodes import node_names
from glenside.quantization.layers import IntegerLayer, IntegerNetwork, Requantised, leaf_of
from glenside.quantization.results import Results
from glenside.quantization.track_values import Follower
from glenside.quantization.values import Product

__all__ = ["IntegerLayer", "IntegerNetwork", "Requantised", "integer_network", "leaf_of"]


def integer_network(
    program: Program, constants: Mapping[str, Array] | None = None, original: Program | None = None
) -> IntegerNetwork:
    """Returns a program of dequantized and quantized tensors, or of bytes, as integer layers.

    `constants` are values by name that override the program's; `original` has the file's nodes of its terms, by default
    the program itself. Products of bytes of QLinear operators are bit-exact. Where floats are computed in between,
    bytes are those of exact arithmetic: a bias is rounded to a multiple of the scale of its sums, and a number halfway
    between two bytes may become the other one.

    Raises BadInput for operations that a machine of products lacks, with the layer and the operator, and for a constant
    without a value.
    """
    values = {**program.constants, **(constants or {})}
    program = program.as_written()
    network = Network({*program.inputs}, frozenset(program.layers))
    follower = Follower(program, values, network, node_names(original or program, program))
    follower.follow()
    results = Results.of(follower)
    terms = [term for _, term, _ in results.left]
    if not terms:
        assert results.host is not None, "other results are computed by the host"
        return IntegerNetwork(results.host, results.host.constants, (), {}, (), results.host, results.rest)
    term = terms[0] if len(terms) == 1 else build("construct-tuple", *terms)
    names = tuple(name for name, _, _ in results.left)
    read = Program(term).tensors
    signature = Signature(tuple(t for t in program.inputs.values() if t.name in read), names)
    found = Program(term, name=program.name, signature=signature)
    used = {*postorder(term)}
    beyond = dict(own for made, own in network.beyond.items() if made in used)
    if beyond:
        raise BeyondSums(beyond, _adds_beyond(follower, next(iter(beyond))))
    layers = tuple(layer for layer in network.layers if layer.result in used)
    if not layers:
        raise BadInput("the network has no product of bytes, so a machine has no layer to run")
    kept = {name: array for name, array in network.constants.items() if name in found.constants_declared}
    products = {layer.name: layer.sums for layer in layers if not layer.greatest}
    found = replace(found, layers=products, constants=kept)
    inputs = {name: known for name, known in network.inputs.items() if name in found.inputs}
    outputs = tuple(stands_for for _, _, stands_for in results.left)
    return IntegerNetwork(found, kept, layers, inputs, outputs, results.host, results.rest)


def _adds_beyond(follower: Follower, layer: str) -> str:
    """Returns the file's node that adds a bias beyond int32 to a layer, or ""."""
    for term, value in follower.found.items():
        if isinstance(value, Affine) and np.abs(value.shift).max(initial=0) >= 1 << 31:
            if any(isinstance(leaf, Product) and leaf.name == layer for leaf in value.moved.leaves.values()):
                return follower.nodes(term)
    return ""
