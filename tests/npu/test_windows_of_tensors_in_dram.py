"""Tests windows of a tensor in DRAM: the scratchpad addresses of its elements, and of the zeros around them."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from slow_cases import quick

import glenside as gl
from glenside.npu.lowering.allocation.skewed_layout import Reads
from glenside.npu.lowering.selection.window_cost import cycles_of_windows
from glenside.npu.lowering.tiling.elementwise_as_matmul import weighted_elements
from glenside.npu.machine.model import Machine
from glenside.npu.model import execute
from glenside.npu.model.reference_results import wrong
from glenside.quantization.calibration import quantized


def _dilated() -> gl.Program:
    """Returns a layer that reads more zeros before a line than are between two lines along another axis."""
    b = gl.Builder("dilated")
    x = b.conv(b.input("x", (2, 2, 9, 9)), b.constant("v", (6, 2, 2, 1)), padding=[(1, 2), (0, 0)], strides=(2, 3))
    w = b.constant("w", (4, 3, 2, 2))
    y = b.conv(b.gelu(x), w, padding=[(2, 0), (1, 0)], dilations=2, strides=(1, 2), groups=2)
    return b.finish(b.conv(b.relu(y), b.constant("u", (5, 4, 1, 1)))).seeded_constants(0)


@pytest.mark.parametrize(("rows", "columns"), quick([(7, 3), (16, 16), (4, 4)], 0, unpacked=True))
def test_no_element_is_where_a_zero_has_to_be(rows: int, columns: int) -> None:
    made = gl.npu_program(_dilated(), gl.NPU(rows, columns), quantize="random")
    assert wrong(made, execute.run(made).dram) == []


def test_no_windows_come_to_rows_of_several_tensors() -> None:
    """What an addition reads is of two tensors, and windows are of one."""
    b, machine = gl.Builder("sum"), Machine(8, 8)
    x = b.input("x", (2, 3, 5, 5))
    y, z = (b.conv(x, b.constant(name, (4, 3, 3, 3)), padding=1) for name in "vw")
    program = b.finish(b.conv(b.add(y, z), b.constant("u", (5, 4, 1, 1)))).seeded_constants(0)
    network = quantized(program, program.constants)
    (layer,) = (layer for layer in network.layers if layer.name.startswith("addition"))
    found = weighted_elements(layer, machine)
    assert found is not None
    assert len(found.product.rows.first) == 2
    for leaf in found.product.rows.first:
        reads = Reads.of(found, tuple(leaf.access.dims), leaf)
        assert reads is not None
        strides = np.cumprod([1, *reads.dims[:0:-1]])[::-1]
        assert cycles_of_windows(reads, strides, None, 1 << 10, machine) == inf
