"""Networks as integer layers: from a program of quantized tensors to products of bytes, exactly."""

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
from glenside.quantization.following import Follower
from glenside.quantization.layers import IntegerLayer, IntegerNetwork, Requantised, leaf_of
from glenside.quantization.results import Results
from glenside.quantization.values import Product

__all__ = ["IntegerLayer", "IntegerNetwork", "Requantised", "integer_network", "leaf_of"]


def integer_network(
    program: Program, constants: Mapping[str, Array] | None = None, original: Program | None = None
) -> IntegerNetwork:
    """A program of dequantized and quantized tensors, or of bytes, as integer layers; `constants` are values by name,
    over those of the program. `original` knows the nodes of a file that its terms were, else the program itself does.

    Products of bytes that QLinear operators have are the same bit for bit. Where floats are computed between, bytes are
    those of exact arithmetic: a bias is rounded to a multiple of the scale of its sums, which files have, and a number
    halfway between two bytes may become the other one.

    Raises BadInput: what a machine of products has nothing for, with the layer and the operator; a constant without a
    value.
    """
    values = {**program.constants, **(constants or {})}
    program = program.as_written()
    network = Network({*program.inputs}, frozenset(program.layers))
    follower = Follower(program, values, network, node_names(original or program, program))
    follower.follow()
    results = Results.of(follower)
    terms = [term for _, term, _ in results.left]
    if not terms:
        assert results.host is not None, "results that no machine leaves are the host's"
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
        raise BadInput("the network has no product of bytes: there is no layer for a machine")
    kept = {name: array for name, array in network.constants.items() if name in found.constants_declared}
    products = {layer.name: layer.sums for layer in layers if not layer.greatest}
    found = replace(found, layers=products, constants=kept)
    inputs = {name: known for name, known in network.inputs.items() if name in found.inputs}
    outputs = tuple(stands_for for _, _, stands_for in results.left)
    return IntegerNetwork(found, kept, layers, inputs, outputs, results.host, results.rest)


def _adds_beyond(follower: Follower, layer: str) -> str:
    """The node of a file that adds to sums of a layer what int32 does not hold; "" where nothing is known of it."""
    for term, value in follower.found.items():
        if isinstance(value, Affine) and np.abs(value.shift).max(initial=0) >= 1 << 31:
            if any(isinstance(leaf, Product) and leaf.name == layer for leaf in value.moved.leaves.values()):
                return follower.nodes(term)
    return ""
