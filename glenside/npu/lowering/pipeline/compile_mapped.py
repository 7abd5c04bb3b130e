"""Compiles integer networks with given mappings, and describes the quantization of inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import replace

import numpy as np

from glenside.analysis.element_sources import places
from glenside.analysis.layers import product_sizes
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term
from glenside.npu.lowering.pipeline.emit_network import chained
from glenside.npu.lowering.selection.tensor_placement import Where
from glenside.npu.lowering.tiling.mapped_layers import Mapped, results_of
from glenside.npu.machine.model import Machine
from glenside.npu.program.affine_quantization import StandsFor, narrow
from glenside.npu.program.program import NpuProgram, Place
from glenside.npu.program.results import with_host
from glenside.quantization.layers import IntegerNetwork


def compile_mapped(
    network: IntegerNetwork,
    mapped: Mapping[str, Mapped],
    machine: Machine,
    seed: int = 0,
    axes: Mapping[Term, int] | None = None,
    show: Callable[[str, int, int], None] = lambda *_: None,
    stay: Container[Term] | None = None,
    where: Where | None = None,
    most: int | None = None,
) -> NpuProgram:
    """Compiles layers as they are mapped: see `chained` for tensors that stay on chip and for axis orders."""
    program = chained(network, mapped, machine, None, seed, axes, show, stay, where, most)
    inputs = {
        name: replace(place, stands_for=StandsFor.of(*network.inputs.get(name, (1.0, 0))))
        for name, place in program.inputs.items()
    }
    sizes = {layer.name: product_sizes(layer.sums).macs for layer in network.layers if not layer.greatest}
    stretches = tuple(replace(own, macs=sizes.pop(own.name, None)) for own in program.stretches)
    whole = replace(program, inputs=inputs, outputs=_outputs(program, network), stretches=stretches)
    return with_host(whole, network)


def _outputs(program: NpuProgram, network: IntegerNetwork) -> dict[str, Place]:
    whole = network.program
    return {
        name: _output(program, network, root, *stands_for)
        for name, root, stands_for in zip(whole.result_names(), results_of(network), network.outputs, strict=True)
    }


def _output(program: NpuProgram, network: IntegerNetwork, root: Term, scale: Array, zero: Array) -> Place:
    """Returns the place of a result, whose elements are moved elements of layers' results. Raises BadInput."""
    done = {stretch.name: stretch.result for stretch in program.stretches}
    held = {layer.result: done[layer.name] for layer in network.layers}
    biases = {layer.result: layer.bias for layer in network.layers}
    own = places(root, held)
    addresses, bias = [np.full(1, -1)], [np.zeros(1, np.int64)]
    for leaf in own.first:
        place = held.get(leaf) or next((p for name, p in program.inputs.items() if _is_tensor(leaf, name)), None)
        if place is None:
            raise BadInput(f"a result is neither of layers nor of inputs, but {leaf.operator.name}")
        addresses.append(place.addresses.ravel())
        given = np.asarray(0 if biases.get(leaf) is None else biases[leaf], np.int64)
        if place.stands_for is not None:
            given = given - place.stands_for.zero.array.astype(np.int64)
        bias.append(np.broadcast_to(given, tuple(leaf.access.dims)).ravel())
    at = np.concatenate(addresses)[own.numbers]
    lacking = np.concatenate(bias)[own.numbers]
    found = Place.of(at, root.access.dtype)
    return replace(found, stands_for=StandsFor.of(scale, narrow(np.asarray(zero - lacking))))


def _is_tensor(leaf: Term, name: str) -> bool:
    return leaf.operator.name == "access-tensor" and getattr(leaf.attributes[0], "name", None) == name
