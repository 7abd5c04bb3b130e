"""Tests the timeline of a program as a picture, and tables of cycles and bytes from instruction files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import run
from npu_programs import drawn_for, random_machine

import glenside as gl
from glenside.npu.analysis.occupancy import timeline
from glenside.npu.isa.base import Lanes, Out, Tables
from glenside.npu.isa.fields import UNITS, Address, Wait
from glenside.npu.machine.model import Machine
from glenside.npu.model import execute
from glenside.npu.program import binary_format, text_format
from glenside.npu.program.program import NpuProgram

MACHINE = Machine(4, 4, scratchpad=512, weights=64, accumulators=8, bandwidth=16, latency=10)


def test_units_are_as_busy_as_they_are_in_all() -> None:
    for seed in range(8):
        rng = np.random.default_rng(seed)
        program = drawn_for(random_machine(rng, int(rng.integers(1, 7)), int(rng.integers(1, 7))), seed)
        times = execute.run(program).times
        for steps in (7, 10**6):
            found = timeline(program, times, steps)
            lengths = np.diff(found.edges)
            cycles = {name: round(float((own * lengths).sum())) for name, own in found.busy.items()}
            dma = sum(count for name, count in cycles.items() if name.startswith("DMA"))
            assert {**{unit: cycles[unit] for unit in UNITS if unit in cycles}, "dma": dma} == times.busy
            for shares in found.full.values():
                assert shares.min() >= 0
                assert shares.max() <= 1


def test_a_memory_holds_what_is_read_later() -> None:
    """64 bytes of lanes come from cycle 24 on, one row of 4 a cycle, and leave for DRAM from 60 on."""
    entries = np.zeros((16, 8), np.uint8)
    entries[:, 0], entries[:, 2] = np.arange(16) % 4, np.arange(16) < 4
    dram = np.concatenate([entries.reshape(-1), np.zeros(512, np.uint8)])
    rows = Address(0, (1, 0, 0))
    queue = (
        Tables(0, 0, 1),
        Lanes((16, 1, 1), Address(128, (16, 0, 0)), rows, 0, wait=Wait(dma=1)),
        Out((16, 1, 1), Address(384, (16, 0, 0)), rows, 0, wait=Wait(dma=2)),
    )
    program = NpuProgram(MACHINE, {"dma": queue}, dram)
    found = timeline(program, execute.run(program).times)
    late, cells = MACHINE.latency + 6, MACHINE.rows * MACHINE.depth
    begin = 8 + late
    after = begin + 16 + late
    held = [4 * min(16, max(0, n - begin - late + 1)) - 4 * min(16, max(0, n - after + 1)) for n in found.edges]
    held[-1] = 0
    assert (found.full["lanes"] * cells).tolist() == held[: len(found.full["lanes"])]
    assert max(held) == 64
    assert not found.full["weights"].any()
    assert not found.layers


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """Two convolutions and a layer of floats."""
    b = gl.Builder("two")
    y = b.relu(b.conv(b.input("x", (1, 3, 6, 6)), b.constant("a", (4, 3, 3, 3)), padding=1))
    program = b.finish(b.conv(y, b.constant("c", (5, 4, 1, 1))))
    path = tmp_path / "two.glenside"
    gl.save(program, path)
    return path


@pytest.mark.slow
def test_text_of_instructions_comes_from_a_network_and_goes_back(
    tmp_path: Path, network: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--target", "npu:4x4,scratchpad=4KB", "--quantize", "random", "--no-cache")
    text, binary, report = tmp_path / "two.asm", tmp_path / "two.bin", tmp_path / "two.json"
    assert run("tensorize", network, *words, "-o", text, "--json", report) == 0
    said = capsys.readouterr().out
    assert run("tensorize", network, *words, "-o", binary) == 0
    assert text_format.text(binary_format.load(binary)) == text.read_text()
    assert run("assemble", text, "-o", tmp_path / "again.bin") == 0
    assert (tmp_path / "again.bin").read_bytes() == binary.read_bytes()
    told = json.loads(report.read_text())["instructions"]
    total, layers = told["schedule"]["total"], told["schedule"]["layers"]
    assert total["cycles"] == told["predicted"] == total["compute"] + sum(total["stalls"].values())
    assert f"Of {total['cycles']:,} cycles the array computes in {total['compute']:,}" in said
    bound = told["schedule"]["bound"]
    assert max(total["busy"].values()) <= bound <= total["cycles"]
    assert told["schedule"]["gap"] == pytest.approx(1 - bound / total["cycles"])
    assert f"The busiest unit takes {bound:,} cycles" in said
    choices = told["schedule"]["choices"]
    assert choices["all tried"]
    assert choices["count"] == choices["tried"] > 1
    assert (choices["least"], choices["gap"]) == (total["cycles"], 0)
    assert f"All {choices['count']:,} choices of the mappings that were found" in said
    assert [own["macs"] for own in layers] == [36 * 27 * 4, 36 * 4 * 5]
    assert total["utilization"] == pytest.approx(36 * (27 * 4 + 4 * 5) / (16 * total["cycles"]))
    capsys.readouterr()
    plot, ran = tmp_path / "two.svg", tmp_path / "run.json"
    assert run("run", text, "--on", "simulator", "--json", ran, "--plot", plot) == 0
    again = json.loads(ran.read_text())["schedule"]
    assert again == told["schedule"]
    assert any(own["stays"] for own in again["layers"])
    assert "on chip" in capsys.readouterr().out
    assert plot.read_bytes().startswith(b"<?xml")


def test_a_plot_is_of_a_program_and_has_an_ending(
    tmp_path: Path, network: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = drawn_for(MACHINE, 0)
    binary_format.save(program, tmp_path / "p.bin")
    for words, said in (
        (("run", tmp_path / "p.bin", "--on", "simulator", "--plot", tmp_path / "p.gif"), "a plot is written as .png"),
        (("run", network, "--plot", tmp_path / "p.png"), "--plot is for programs of an npu"),
        (
            ("tensorize", network, "--array", "4x4", "-o", tmp_path / "p.asm"),
            "a .bin or .asm file is for the target npu",
        ),
    ):
        assert run(*words) == 2
        assert said in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.bin", "two.glenside"]
