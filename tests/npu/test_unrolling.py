"""Tests loops that are unrolled because fields cannot hold their strides: same addresses in the same order."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from onnx_integer_networks import Graph

import glenside as gl
from glenside.ir.errors import BadInput
from glenside.npu.isa.address_generators import generated
from glenside.npu.isa.base import Spread, Store, Stream
from glenside.npu.isa.fields import Address
from glenside.npu.lowering.emission import emit_layer
from glenside.npu.lowering.emission.legalize_loops import unrolled
from glenside.npu.lowering.pipeline.compile_mapped import compile_mapped
from glenside.npu.lowering.pipeline.compile_network import map_layers
from glenside.npu.machine.model import Machine
from glenside.npu.model import execute
from glenside.npu.model.reference_results import wrong
from glenside.quantization.network import integer_network

LANES = 7


def test_addresses_are_the_same() -> None:
    pick, taken_apart = random.Random(0), 0
    for _ in range(300):
        counts = pick.randint(1, 3), pick.randint(1, 3), pick.randint(1, 3)

        def address(most: int, counts: tuple[int, int, int] = counts) -> Address:
            first, second, third = (pick.randint(-most, most) if n > 1 else 0 for n in counts)
            return Address(4 * most, (first, second, third))

        column, turn = address(700), Address(pick.randrange(LANES), (pick.randrange(LANES), pick.randrange(LANES), 3))
        own = Store(counts, address(9), address(9), 1, address(3), True, column, turn)
        found = [*unrolled(own, LANES)]
        for name in ("accumulators", "lanes", "parameters", "column", "turn"):
            of = LANES if name == "turn" else 1 << 30
            every = np.concatenate([generated(getattr(each, name), each.counts) for each in found])
            assert np.array_equal(every % of, generated(getattr(own, name), counts) % of)
        for each in found:
            assert all(-512 <= stride < 512 for stride in each.column.strides)
        taken_apart += len(found) > 1
        if all(-512 <= stride < 512 for stride in column.strides):
            assert found == [own]
    assert 50 < taken_apart < 250


def test_weights_are_taken_once() -> None:
    own = Stream((2, 1, 1), Address(0, (1, 0, 0)), 0, Address(40000, (-40000, 0, 0)), False, True)
    assert [each.fresh for each in unrolled(own, LANES)] == [True, False]


def test_tables_go_on_with_the_innermost_loop() -> None:
    own = Spread((3, 2, 1), Address(0, (32, 1 << 31, 0)), Address(40, (1 << 23, 5, 0)), 7, True)
    found = [*unrolled(own, LANES)]
    assert [(each.table, each.weights.base) for each in found] == [
        (7 + i0, 40 + (i0 << 23) + 5 * i1) for i1 in range(2) for i0 in range(3)
    ]
    assert [each.tables for each in unrolled(replace(own, weights=Address(40)), LANES)] == [3, 3]


@pytest.mark.slow
def test_a_machine_of_a_thousand_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters stream; their parameters are alike in a row, and lie in a row of 1024."""
    g, count = Graph(), 1030
    zero, zeros = g.constant(0, "int8"), g.constant(np.zeros(count), "int8")
    filters, scales = g.bytes((count, 4, 1, 1)), g.scales((count,))
    y = g.node("QLinearConv", "x", g.scales(), zero, filters, scales, zeros, g.constant(0.5, "float32"), zero)
    found = integer_network(g.program({"x": ((1, 4, 3, 3), "int8")}, y))
    more = {"scratchpad": 1 << 17, "weights": 1 << 15, "accumulators": 682, "parameters": 256, "latency": 3}
    machine = Machine(8, 1024, **more)  # type: ignore[arg-type]
    result = gl.optimize(found.program, gl.NPU(machine), verify=False)
    ((name, front),) = map_layers(result, found).items()
    mapped = {name: front[-1][0]}
    made = compile_mapped(found, mapped, machine)
    assert wrong(made, execute.run(made).dram) == []
    monkeypatch.setattr(emit_layer, "unrolled", lambda instruction, _: [instruction])
    with pytest.raises(BadInput, match="column_stride0 of store is from -512 to 511, got"):
        compile_mapped(found, mapped, machine)
