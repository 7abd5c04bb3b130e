"""Tests sweeps of whole programs: cycles, bytes, energy and area of each machine, and Pareto-optimal machines."""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from pathlib import Path

import pytest
from command_line import run

import glenside as gl
from glenside.npu.analysis.critical_path import accounts
from glenside.sweep.cells import Row, cells, optimize_cell
from glenside.sweep.plots import front, pareto_figure
from glenside.targets.npu.target import NPU

MACHINES = "npu:4x4/8x8,scratchpad=4KB,energy=horowitz-2014"


@pytest.fixture
def network(tmp_path: Path) -> Path:
    b = gl.Builder("two")
    y = b.relu(b.conv(b.input("x", (1, 3, 6, 6)), b.constant("a", (4, 3, 3, 3)), padding=1))
    path = tmp_path / "two.glenside"
    gl.save(b.finish(b.conv(y, b.constant("c", (5, 4, 1, 1)))), path)
    return path


@pytest.mark.slow
def test_a_cell_is_a_whole_program(network: Path) -> None:
    for cell in cells([str(network)], targets=MACHINES, quantize="random"):
        row = optimize_cell(cell)
        assert not row.failed
        target = gl.parse_target(cell.array)
        assert isinstance(target, NPU)
        made = gl.npu_program(cell.program(), target, quantize="random")
        total = accounts(made).total
        assert row.program_cycles == made.predicted == total.cycles
        assert row.program_bytes == total.read + total.written
        assert row.picojoules == total.energy(target.npu)
        assert row.gates == target.gates
        assert row.complete
        assert Row.of_dict(json.loads(json.dumps(asdict(row)))) == row
        old = {k: v for k, v in asdict(row).items() if not k.startswith("program") and k not in ("picojoules", "gates")}
        with pytest.raises(ValueError, match="fields of a row"):
            Row.of_dict(old)


def test_cells_of_programs_are_other_cells(network: Path) -> None:
    (one,), (two,) = (cells([str(network)], targets="npu:4x4", quantize=how) for how in ("", "random"))
    assert one.identity != two.identity
    row = optimize_cell(one)
    assert (row.program_cycles, row.picojoules) == (0, 0)
    assert row.gates > 0


@pytest.mark.slow
def test_the_command_plots_and_lists_them(network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot, report = tmp_path / "pareto.svg", tmp_path / "rows.json"
    words = ("--targets", MACHINES, "--quantize", "random", "--jobs", 1, "--pareto", plot, "--json", report)
    assert run("sweep", network, *words) == 0
    said = capsys.readouterr().out
    for name in ("program's", "DRAM", "uJ", "M gates"):
        assert name in said
    rows = json.loads(report.read_text())["cells"]
    assert all(f"{row['program_cycles']:,}" in said for row in rows)
    assert plot.read_bytes().startswith(b"<?xml")


def test_the_front_is_what_no_other_beats() -> None:
    for seed in range(50):
        pick = random.Random(seed)
        points = [(pick.randint(0, 9), pick.randint(0, 9)) for _ in range(pick.randint(1, 12))]
        best = {p for p in points if not any(q[0] <= p[0] and q[1] <= p[1] and q != p for q in points)}
        found = [points[number] for number in front(points)]
        assert set(found) == best
        assert len(found) == len(best)
        assert found == sorted(found)


def test_a_figure_names_the_machines_of_its_fronts(network: Path) -> None:
    wanted = cells([str(network)], "4x4", targets="npu:4x4,energy=horowitz-2014;npu:8x8")
    made = {"layers": 1, "mapped": 1, "cycles": 5, "stopped": "saturated"}
    rows = [Row(**made), Row(**made, gates=1e6, picojoules=3e6), Row(**made, gates=2e6)]  # type: ignore[arg-type]
    area, energy = pareto_figure(list(zip(wanted, rows, strict=True))).axes
    for panel in (area, energy):
        (_, _, named) = (text.get_text() for text in panel.get_legend().get_texts())
        assert named.split() == ["1", "npu:4x4,energy=horowitz-2014" if panel is area else "npu:4x4"]
    assert len(area.lines[0].get_xdata()) == 2
    assert len(energy.lines[0].get_xdata()) == 1


def test_what_it_refuses(network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (("--arrays", "8x8", "--quantize", "random"), "--quantize is for machines of bytes, such as npu:64x64"),
        (("--targets", "npu:8x8", "--quantize", "x.npz"), "--quantize of a sweep is random, got x.npz"),
        (("--targets", "npu:8x8", "--pareto", tmp_path / "p.gif"), "a plot is written as .png"),
        (("--targets", "npu:8x8", "--pareto", "a.png", "--plot", "a.png"), "two of them are one file"),
    ):
        assert run("sweep", network, *words) == 2
        assert said in capsys.readouterr().err
        assert [path.name for path in tmp_path.iterdir()] == ["two.glenside"]
