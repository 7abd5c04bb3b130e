"""Tests machines whose scratchpad is small beside tensors: windows are priced as lowering lays them out."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from slow_cases import quick

import glenside as gl
from glenside.ir.program import Program
from glenside.npu.lowering.allocation.scratchpad_allocation import Wanted, for_windows
from glenside.npu.lowering.allocation.skewed_layout import Reads
from glenside.npu.lowering.pipeline import compile_network
from glenside.npu.lowering.pipeline.compile_mapped import compile_mapped
from glenside.npu.lowering.selection.candidates import options_of
from glenside.npu.lowering.selection.feasible_choice import best
from glenside.npu.lowering.selection.lazy_bounds import Estimate
from glenside.npu.lowering.selection.window_cost import cycles_of_windows
from glenside.npu.lowering.tiling.mapped_layers import Front
from glenside.npu.machine.model import Machine
from glenside.npu.model import execute
from glenside.npu.model.reference_results import wrong
from glenside.quantization.layers import IntegerNetwork
from glenside.quantization.quantize_program import integers as asked_for

MACHINE = Machine(16, 16, scratchpad=1 << 13, accumulators=64)


def _network() -> Program:
    return gl.models.load("mobilenet-v1", resolution=32, width=0.25).seeded_constants(0)


@cache
def _mapped() -> tuple[IntegerNetwork, Front]:
    """Returns the network in integers, and the mappings that were found of its layers."""
    asked = asked_for(_network(), "random", 0)
    assert asked is not None
    result = gl.optimize(asked.network.program, gl.NPU(MACHINE), verify=False)
    return asked.network, compile_network.map_layers(result, asked.network)


@pytest.mark.slow
def test_what_is_chosen_by_prices_of_windows_is_right() -> None:
    network, fronts = _mapped()
    priced, known = options_of(network, fronts, MACHINE), dict[tuple[int, str, object], Estimate]()
    taken, choice = best(network, fronts, MACHINE, priced=priced, known=known, windows=True)
    made = compile_mapped(network, taken, MACHINE, axes=choice.axes, stay=choice.held, where=choice.where)
    done = execute.run(made)
    assert not wrong(made, done.dram)
    assert done.cycles == made.predicted


@pytest.mark.parametrize("rows", quick([4, 16, 64, 256], 1, 3))
def test_windows_have_room_or_take_infinitely_long(rows: int) -> None:
    network, fronts = _mapped()
    priced = options_of(network, fronts, MACHINE).every
    seen = set()
    for own in priced.values():
        option = own[0]
        ((leaf, tensor),) = option.streams.items() if len(option.streams) == 1 else ((None, None),)
        if leaf is None or tensor is None:
            continue
        dims = tuple(tensor.access.dims)
        reads = Reads.of(option.price.layer, dims, leaf)
        for axis, skew in for_windows(Wanted(dims, {"": reads}, None, 0, 0), MACHINE).items() if reads else ():
            assert reads is not None
            cycles = cycles_of_windows(reads, skew.strides, axis, rows, MACHINE)
            elements = np.unique(option.price.layer.product.rows.numbers)
            assert cycles * MACHINE.bandwidth >= np.count_nonzero(elements)
            seen.add(np.isfinite(cycles))
    assert (rows > 4) in seen
