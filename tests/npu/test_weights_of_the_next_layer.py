"""Tests sharing between layers: of weight memory with the next layer, and of parameter rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import glenside as gl
from glenside.analysis.element_sources import Places
from glenside.ir.operand import Array
from glenside.npu.isa.base import Spread, Weights
from glenside.npu.lowering.emission.emit_layer import Writer
from glenside.npu.lowering.emission.emit_results import Bytes, BytesOut
from glenside.npu.lowering.tiling.layer_tiles import Group, Layer, Product
from glenside.npu.lowering.transfer.column_packing import abreast
from glenside.npu.machine.model import Machine
from glenside.npu.model import execute
from glenside.npu.model.reference_results import wrong
from glenside.npu.program import requantization
from glenside.npu.program.program import NpuProgram

MACHINE = Machine(8, 8, scratchpad=1 << 14, weights=8 * 8 * 24, accumulators=64, bandwidth=4, latency=40)


def _program(machine: Machine, channels: int = 16) -> NpuProgram:
    """Returns a depthwise layer of few weights between two that have many: the network's own results, in the told
    cycles.
    """
    b = gl.Builder("three")
    x = b.relu(b.conv(b.input("x", (1, 4, 8, 8)), b.constant("a", (channels, 4, 1, 1)), name="first"))
    y = b.relu(b.conv(x, b.constant("b", (channels, 1, 3, 3)), padding=1, groups=channels, name="dw"))
    z = b.relu(b.conv(y, b.constant("c", (6 * channels, channels, 1, 1)), name="last"))
    program = gl.npu_program(b.finish(z).seeded_constants(0), gl.NPU(machine), quantize="random")
    done = execute.run(program)
    assert wrong(program, done.dram) == []
    assert done.cycles == program.predicted
    return program


def _of(program: NpuProgram, name: str, kind: type) -> int:
    """Instructions of DMA that are written down with a layer."""
    (stretch,) = (own for own in program.stretches if own.name == name)
    return sum(isinstance(own, kind) for own in stretch.of(program, "dma"))


def test_weights_come_while_the_layer_before_runs() -> None:
    program = _program(MACHINE)
    assert _of(program, "dw", Spread)
    assert _of(program, "dw", Weights), "those of the layer after it, as its own are spread"
    few = _program(replace(MACHINE, weights=8 * 8 * 8))  # no room for two layers
    assert not _of(few, "dw", Weights)
    assert program.predicted is not None
    assert few.predicted is not None
    assert program.predicted < few.predicted


def _layer(groups: int, m: int, columns: int, used: int) -> Layer:
    """Tiles of their own sums, of the first columns, whose rows and weights are numbered one after the other."""
    rows = np.arange(1, 1 + groups * m * columns).reshape(groups, m, columns)
    weights = np.zeros((groups, columns, columns), np.int64)
    weights[:, :, :used] = np.arange(1, 1 + groups * columns * used).reshape(groups, columns, used)
    x = gl.Builder("x").input("x", (1,))
    tile, row, column = np.meshgrid(np.arange(groups), np.arange(m), np.arange(used), indexing="ij")
    elements = 1 + (tile * m + row) * columns + column
    product = Product(x, Places(rows, {}), Places(weights, {}))
    return Layer(x, product, tuple(Group((each,)) for each in range(groups)), elements)


def _sums(layer: Layer) -> Array:
    """Of the elements."""
    product = layer.product
    every = product.rows.numbers @ product.weights.numbers
    found: Array = every.reshape(-1)[layer.elements - 1]
    return found


@pytest.mark.parametrize(("columns", "used"), [(16, 3), (16, 8), (16, 9), (5, 1)])
def test_tiles_of_few_columns_share_rows_of_parameters(columns: int, used: int) -> None:
    machine = Machine(columns, columns, bandwidth=1, parameters=8)  # where parameters take longer than tables
    layer = _layer(12, 2, columns, used)
    channel = np.arange(12 * used).reshape(12, 1, used) + np.zeros((12, 2, used), np.int64)
    made = abreast(layer, channel, machine)
    assert np.array_equal(_sums(made), _sums(layer))
    entries = np.zeros(12 * used, requantization.PARAMETER)
    entries["scale"], entries["bias"] = 1, np.arange(12 * used)
    writer, every = Writer(machine), np.arange(layer.elements.size)
    before, after = (
        len(BytesOut(writer, own, Bytes(entries[channel], every, every)).contents) for own in (layer, made)
    )
    several = columns // used
    assert before == 12 if used > 1 else before <= 12, (before, after)
    assert after == before if several == 1 or used == 1 else after <= -(-12 // 2)


@pytest.mark.slow
@pytest.mark.parametrize("channels", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (12, 17))])
def test_whatever_is_shared_results_are_the_networks(channels: int) -> None:
    small, wide = replace(MACHINE, parameters=4, tables=24), replace(MACHINE, weights=8 * 8 * 17, bandwidth=8)
    for machine in (MACHINE, small, wide):
        _program(machine, channels)
