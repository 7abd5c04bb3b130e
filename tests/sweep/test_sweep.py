"""Tests sweeps: rows, saved and resumed results, refusals, Ctrl-C, and a cluster that loses a worker."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from sweep_programs import DOT, HANG, sample_programs, without_seconds

from glenside.cli.commands import sweep as command
from glenside.ir.packages import install_command
from glenside.sweep.cells import Cell, Row, Stop, cells, code_fingerprint, optimize_cell, sweep
from glenside.sweep.history import History
from glenside.sweep.plots import sweep_figure, write_sweep_plot
from glenside.sweep.processes import CellProcess, in_processes

NO_CLUSTER = importlib.util.find_spec("distributed") is None


@pytest.fixture
def programs(tmp_path: Path) -> list[str]:
    return sample_programs(tmp_path)


class Counting:
    """A runner in this process that counts what it runs; the answers are made up."""

    def __init__(self, row: Row | None = None) -> None:
        self.ran: list[Cell] = []
        self.row = row or Row(
            layers=1, mapped=1, baseline_cycles=9, cycles=3, stopped="saturated", checked="not checked"
        )

    def __call__(self, wanted: Sequence[Cell], stop: Stop) -> Generator[tuple[int, Row], None, None]:
        for number in reversed(range(len(wanted))):  # rows come in any order
            if stop():
                return
            self.ran.append(wanted[number])
            yield number, self.row


def test_cells_are_models_then_arrays_then_objectives(programs: list[str]) -> None:
    wanted = cells(programs, "4x2, 8x8", "cycles;bytes,cycles")
    assert [(c.model, c.array, c.objective) for c in wanted][:4] == [
        ("small", "4x2", "cycles"),
        ("small", "4x2", "bytes,cycles"),
        ("small", "8x8", "cycles"),
        ("small", "8x8", "bytes,cycles"),
    ]
    assert len(wanted) == 8
    assert [Cell.of_dict(json.loads(json.dumps(c.as_dict()))) for c in wanted] == wanted


def test_machines_are_every_choice_between_slashes(programs: list[str], tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text('target = "npu"\n[array]\nrows = 4\ncolumns = 2\n[dram]\nlatency = 3\n')
    wanted = cells(
        programs[:1], "8x8", targets=f"npu:8x8/4x2,bandwidth=16/64;double-buffered:4x4;{tmp_path}/small.toml"
    )
    assert [(c.array, c.multipliers) for c in wanted] == [
        ("8x8", 64),
        ("npu:8x8,bandwidth=16", 64),
        ("npu:8x8,bandwidth=64", 64),
        ("npu:4x2,bandwidth=16", 8),
        ("npu:4x2,bandwidth=64", 8),
        ("double-buffered:4x4", 16),
        ("npu:4x2,latency=3", 8),
    ]
    rows = [optimize_cell(cell) for cell in wanted]
    assert all(row.complete and row.cycles == row.lower_bound > 0 for row in rows)
    assert all(row.bytes > 0 for row in rows)
    assert rows[1].cycles == rows[2].cycles
    assert rows[1].bytes == rows[2].bytes, "a row of 8 weights takes 8 bytes of a beat, however wide that is"


@pytest.mark.slow
def test_the_table_has_a_row_for_each_cell_in_order(
    programs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, plot = tmp_path / "r.json", tmp_path / "p.png"
    models = [*programs, "mobilenet-v1", "--set", "resolution=32", "--set", "width=0.25"]
    assert run("sweep", *models, "--arrays", "16x16,8x4", "--check", "--json", report, "--plot", plot) == 0
    captured = capsys.readouterr()
    lines = [line.split() for line in captured.out.splitlines() if " x" not in line and "of" in line.split()]
    assert [line[:3] for line in lines] == [
        [model, array, "cycles"] for model in ("small", "large", "mobilenet-v1") for array in ("16x16", "8x4")
    ]
    assert all(line[-1] == "exact" for line in lines)
    assert not captured.err  # progress is for terminals
    content = json.loads(report.read_text())
    assert [(c["model"], c["array"]) for c in content["cells"]] == [(line[0], line[1]) for line in lines]
    (small, *_, network) = content["cells"]
    # 16x16 holds the whole product: m + 2R + C - 2 cycles as it stands, and no fewer than the bound in any case.
    assert small["baseline_cycles"] == 5 + 2 * 16 + 16 - 2
    assert network["layers"] == network["mapped"] == 28
    for cell in content["cells"]:
        assert cell["lower_bound"] <= cell["cycles"] <= cell["baseline_cycles"]
        assert cell["ratio"] == cell["baseline_cycles"] / cell["cycles"]
        assert 0 < cell["utilization"] <= 1
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_answers_are_the_same_in_this_process_and_in_others(programs: list[str]) -> None:
    wanted = cells(programs, "4x2", "cycles;bytes")
    here = [optimize_cell(cell) for cell in wanted]
    assert all(row.ok for row in here)
    for jobs in (1, 3):
        assert without_seconds(sweep(wanted, in_processes(jobs))) == without_seconds(here)


def test_finished_cells_are_not_run_again(programs: list[str], tmp_path: Path) -> None:
    path, first = str(tmp_path / "s.jsonl"), Counting()
    rows = sweep(cells(programs, "4x2"), first, History(path))
    assert len(first.ran) == 2
    second = Counting()
    more = cells(programs[::-1], "8x8,4x2")
    assert sweep(more, second, History(path))[1::2] == rows
    assert {c.array for c in second.ran} == {"8x8"}
    assert not History(path).foreign
    # Everything that an answer depends on is part of what is compared.
    known = History(path)
    assert all(known.row(cell) is not None for cell in more)
    changed = {
        "text": f"{more[0].text} ",
        "objectives": ("bytes",),
        "code": "0.0+0",
        "array": "4x9",
        "parameters": {"a": "1"},
    }
    for name, value in changed.items():
        assert known.row(replace(more[0], **{name: value})) is None, name
    # A check that was not made is made; an answer that is checked serves unchecked, too.
    assert known.row(replace(more[0], check=True)) is None
    known.append(more[0], replace(first.row, checked="exact"))
    checked = replace(first.row, checked="exact")
    assert [History(path).row(replace(more[0], check=check)) for check in (False, True)] == [checked, checked]


def test_a_failure_is_a_row_and_is_tried_again(
    programs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.jsonl"
    failing = Counting(Row(failed="[red]no memory"))
    monkeypatch.setattr(command, "_runner", lambda *_: _entered(failing))
    assert run("sweep", *programs, "--arrays", "4x2", "-o", path) == 1
    assert capsys.readouterr().out.count("[red]no memory") == 2
    assert len(path.read_text().splitlines()) == 2
    good = Counting()
    monkeypatch.setattr(command, "_runner", lambda *_: _entered(good))
    assert run("sweep", *programs, "--arrays", "4x2", "-o", path) == 0
    assert len(good.ran) == 2
    assert run("sweep", *programs, "--arrays", "4x2", "-o", path) == 0
    assert len(good.ran) == 2


@contextmanager
def _entered(runner: Any) -> Iterator[Any]:
    yield runner


def test_what_is_unmapped_or_unequal_is_status_1_and_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pairs.glenside").write_text(
        "(input p (shape 3 2 5)) (compute dot-product (access (access-tensor p) 1))"
    )
    assert run("sweep", tmp_path / "pairs.glenside", "--arrays", "4x4") == 1
    assert "1 not mapped" in capsys.readouterr().out
    row = Counting().row
    assert row.ok
    assert not replace(row, checked="the results differ").ok
    assert replace(row, checked="the results differ").note() == "check: the results differ"
    assert replace(row, stopped="time-limit").note() == "stopped: time-limit"
    assert replace(row, mapped=0).ratio is None


def test_a_process_that_dies_fails_its_cell_only(programs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    original = CellProcess.start

    def start(self: CellProcess, cell: Cell) -> None:
        started.append(self)
        if len(started) == 1:
            self._process.kill()
        original(self, cell)

    monkeypatch.setattr(CellProcess, "start", start)
    first, *others = sweep(cells(programs, "4x2,8x8"), in_processes(1))
    assert first is not None
    assert "ended by SIGKILL" in first.failed
    assert all(row is not None and row.ok for row in others)
    assert all(not process.alive for process in started)


def test_a_cell_of_other_code_or_with_a_wrong_program_is_a_reason(programs: list[str]) -> None:
    (cell, _) = cells(programs, "4x2")
    assert code_fingerprint() == cell.code
    assert "the code here is" in optimize_cell(replace(cell, code="0.0+0")).failed
    assert "small:1:1" in optimize_cell(replace(cell, text="(((")).failed


def test_torn_and_foreign_lines_are_skipped_with_a_note_and_kept(
    programs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.jsonl"
    assert run("sweep", *programs, "--arrays", "4x2", "-o", path) == 0
    first, second = path.read_bytes().splitlines(keepends=True)
    wrong = json.loads(first)
    wrong["row"]["cycles"] = "many"
    odd = [
        b"[1, 2]\n",
        b"\xff\xfe\n",
        b"\n",
        json.dumps(wrong).encode() + b"\n",
        b'{"sweep": 1, "row": {}}\n',
        b"[" * 9999,
    ]
    odd[-1] += b"\n"
    path.write_bytes(b"".join([*odd, first, second[:-20]]))
    history = History(str(path))
    assert history.foreign == [1, 2, 4, 5, 6, 8]
    assert sum(history.row(cell) is not None for cell in cells(programs, "4x2")) == 1
    capsys.readouterr()
    assert run("sweep", *programs, "--arrays", "4x2", "-o", path) == 0
    error = capsys.readouterr().err
    assert "lines 1, 2, 4, 5, 6, 8 are no finished cells; skipped, and left in the file" in error
    assert path.read_bytes().startswith(b"".join([*odd, first, second[:-20]]))
    again = History(str(path))
    assert all(again.row(cell) is not None for cell in cells(programs, "4x2"))
    # One torn line by itself is a sweep that was ended early, however short.
    for length in (1, 9, 40):
        path.write_bytes(first[:length])
        assert History(str(path)).foreign == [1]


def test_a_file_of_something_else_is_not_appended_to(programs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    before = Path(programs[0]).read_bytes()
    assert run("sweep", *programs, "--arrays", "4x2", "-o", programs[0]) == 2
    assert "holds no line of a sweep" in capsys.readouterr().err
    assert Path(programs[0]).read_bytes() == before


BAD = {
    "no arrays": ("sweep mobilenet-v1", "--arrays"),
    "a machine without options": ("sweep {small} --targets npu", "written with its options, such as npu:64x64"),
    "a machine that is none": ("sweep {small} --targets npu:4x4,bandwidth=16/3", "power of two"),
    "a machine that counts no cycles": ("sweep {small} --targets mpc:semi2k", "mpc:semi2k counts none"),
    "machine twice": ("sweep {small} --targets npu:4x4;npu:4x4", "each array once, got npu:4x4 twice"),
    "a file of more than a name says": (
        "sweep {small} --targets examples/targets/npu-int8.toml",
        "command line can say",
    ),
    "no model": ("sweep --arrays 4x4", "MODEL"),
    "array syntax": ("sweep {small} --arrays 16", "written ROWSxCOLUMNS"),
    "array of one number more": ("sweep {small} --arrays 16x16,", "written ROWSxCOLUMNS"),
    "array of 0": ("sweep {small} --arrays 16x16,0x4", "at least 1"),
    "array too large": ("sweep {small} --arrays 4097x1", "from 1 to 4096"),
    "array twice": ("sweep {small} --arrays 4x4,8x8,4x4", "each array once, got 4x4"),
    "unknown objective": ("sweep {small} --arrays 4x4 --objectives joules", "one of cycles, bytes"),
    "objective twice": ("sweep {small} --arrays 4x4 --objectives cycles,cycles", "each may be given once"),
    "objectives twice": ("sweep {small} --arrays 4x4 --objectives bytes;cycles;bytes", "list of objectives once"),
    "unknown model": ("sweep {small} mobilnet --arrays 4x4", "did you mean mobilenet-v"),
    "model twice": ("sweep mobilenet-v1 mobilenet_v1 --arrays 4x4", "each model once"),
    "file twice": ("sweep {small} {small} --arrays 4x4", "each model once"),
    "missing file": ("sweep {folder}/none.glenside --arrays 4x4", "none.glenside"),
    "program with an error": ("sweep {folder}/open.glenside --arrays 4x4", "open.glenside:1:1"),
    "shape not given": ("sweep {folder}/plain.glenside --arrays 4x4", "no shape for tensor"),
    "shapes of no file": ("sweep mobilenet-v1 --shape a=1 --arrays 4x4", "are for files"),
    "unknown parameter": ("sweep mobilenet-v1 --set depth=3 --arrays 4x4", "requires parameters among"),
    "bad parameter": ("sweep mobilenet-v1 --set resolution=0 --arrays 4x4", "at least 1, got 0"),
    "parameter twice": ("sweep mobilenet-v1 --set width=1 --set width=2 --arrays 4x4", "each parameter once"),
    "parameter of files": ("sweep {small} --set resolution=32 --arrays 4x4", "the sweep has files only"),
    "no jobs": ("sweep {small} --arrays 4x4 --jobs 0", "--jobs must be at least 1"),
    "no such folder": ("sweep {small} --arrays 4x4 -o {folder}/no/s.jsonl", "there is no folder"),
    "no such folder of a plot": ("sweep {small} --arrays 4x4 --plot {folder}/no/s.png", "there is no folder"),
    "no such folder of JSON": ("sweep {small} --arrays 4x4 --json {folder}/no/s.json", "there is no folder"),
    "plot of another kind": ("sweep {small} --arrays 4x4 --plot {folder}/s.gif", ".png, .svg or .pdf"),
    "rows on stdout": ("sweep {small} --arrays 4x4 -o -", "--json - prints them"),
    "one file for two": ("sweep {small} --arrays 4x4 -o {folder}/s --json {folder}/./s", "two of them are one file"),
    "no file for rows": ("sweep {small} --arrays 4x4 -o /dev/null", "go to a file"),
    "jobs of a cluster": ("sweep {small} --arrays 4x4 --jobs 2 --scheduler tcp://127.0.0.1:1", "has its own"),
}
if not NO_CLUSTER:
    BAD["scheduler syntax"] = ("sweep {small} --arrays 4x4 --scheduler 127.0.0.1:8786", "written tcp://HOST:PORT")
    BAD["scheduler port"] = ("sweep {small} --arrays 4x4 --scheduler tcp://127.0.0.1:99999", "written tcp://HOST:PORT")
    BAD["no scheduler"] = (
        "sweep {small} --arrays 4x4 --scheduler tcp://127.0.0.1:9",
        "no scheduler at tcp://127.0.0.1:9",
    )


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_and_status_2(
    name: str, programs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "open.glenside").write_text("(access (access-tensor a")
    (tmp_path / "plain.glenside").write_text(DOT)
    before = sorted(tmp_path.iterdir())
    words, expected = BAD[name]
    assert run(*words.format(small=programs[0], folder=tmp_path).split()) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("glenside: error: ")
    assert expected in captured.err
    assert captured.err.count("\n") == 1
    assert not captured.out
    assert sorted(tmp_path.iterdir()) == before


def test_shapes_are_given_beside_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plain.glenside").write_text(DOT)
    (tmp_path / "s.json").write_text('{"a": [5, 9]}')
    given = ["--shapes", tmp_path / "s.json", "--shape", "b=7,9"]
    assert run("sweep", tmp_path / "plain.glenside", *given, "--arrays", "4x4", "--json", "-") == 0
    assert [c["model"] for c in json.loads(capsys.readouterr().out)["cells"]] == ["plain"]


def test_files_of_one_name_are_told_apart(programs: list[str], tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "small.glenside"
    other.write_text(Path(programs[1]).read_text())
    assert [cell.model for cell in cells([*programs, str(other)], "4x4")] == [programs[0], "large", str(other)]


def test_ctrl_c_keeps_finished_cells_and_leaves_no_process(programs: list[str], tmp_path: Path) -> None:
    """The small programs are done, seven networks are not: what is finished is printed, the status is 130."""
    out = tmp_path / "s.jsonl"
    words = ["sweep", *programs, "mobilenet-v1", "--arrays", "4x4,5x5,6x6,7x7,9x9,10x10,11x11", "--check", "-o", out]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), SWEEP_TEST=str(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-m", "glenside", *map(str, words), "--jobs", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    deadline = time.monotonic() + HANG
    while time.monotonic() < deadline and not (out.exists() and out.read_bytes().count(b"\n") >= 3):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    printed, errors = process.communicate(timeout=HANG)
    assert process.returncode == 130, errors
    assert time.monotonic() - started < 5.0
    kept = out.read_bytes().splitlines()
    assert len(kept) >= 3
    assert all(json.loads(line)["row"]["failed"] == "" for line in kept)
    assert printed.decode().count(" of 1 ") + printed.decode().count(" of 28 ") == len(kept)
    assert f"Interrupted: {len(kept)} of 21 cells are finished." in errors.decode()
    while _processes_with(str(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _processes_with(str(tmp_path))


def _processes_with(word: str) -> list[int]:
    """Processes whose environment has SWEEP_TEST of that value; empty where the system does not tell."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"SWEEP_TEST={word}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def test_cells_come_no_more_after_a_stop(programs: list[str]) -> None:
    wanted = cells(programs, "4x2,8x8")
    seen: list[Row] = []
    rows = sweep(wanted, Counting(), stop=lambda: len(seen) == 3, on_row=lambda _, row: seen.append(row))
    assert [row is None for row in rows] == [True, False, False, False]


def test_a_plot_shows_complete_cells_with_marks_and_lines_that_differ(programs: list[str], tmp_path: Path) -> None:
    wanted = cells(programs, "16x16,4x4,8x2", "cycles;bytes")
    good = Row(layers=1, mapped=1, baseline_cycles=900, cycles=300)
    rows = [good if cell.array != "8x2" else replace(good, mapped=0) for cell in wanted]
    figure = sweep_figure(list(zip(wanted, rows, strict=True)))
    panels = [panel for panel in figure.axes if panel.get_visible()]
    assert [panel.get_title() for panel in panels] == ["small", "large"]
    for panel in panels:
        assert panel.get_yscale() == "log"
        assert [label.get_text() for label in panel.get_xticklabels()] == ["4x4", "8x2", "16x16"]
        lines = panel.get_lines()
        assert [list(line.get_ydata()) for line in lines] == [[900, 900], [300, 300], [300, 300]]
        assert [list(line.get_xdata()) for line in lines] == [[0, 2]] * 3
        assert len({line.get_marker() for line in lines}) == len({line.get_linestyle() for line in lines}) == 3
    assert len(figure.legends[0].get_texts()) == 3
    for name in ("a.svg", "b.svg"):
        write_sweep_plot(list(zip(wanted, rows, strict=True)), str(tmp_path / name))
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    write_sweep_plot([(wanted[0], Row(failed="no"))], str(tmp_path / "c.png"))  # nothing to draw is no error


def test_distributed_that_is_not_installed_is_said(
    programs: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert run("sweep", programs[0], "--arrays", "4x4", "--scheduler", "tcp://127.0.0.1:8786") == 2
    assert install_command("distributed") in capsys.readouterr().err


def test_distributed_is_loaded_for_a_cluster_only(programs: list[str]) -> None:
    code = (
        "import sys; from glenside.cli.commands.sweep import _runner; from glenside.sweep.cells import cells, sweep\n"
        f"cells([{programs[0]!r}], '4x4'); _runner(None, 1); assert 'distributed' not in sys.modules"
    )
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    assert subprocess.run([sys.executable, "-c", code], env=environment, timeout=HANG).returncode == 0
