"""Targets that choose between variants of layers, from the command line."""

from __future__ import annotations

import json
from fractions import Fraction
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from command_line import run
from rich.console import Console

import glenside as gl
from glenside.cli.output import WRONG
from glenside.cli.table import report_tables
from glenside.report.plots import front_figure


@pytest.fixture
def upsampling(tmp_path: Path) -> Path:
    """Returns a transposed convolution of 4 to 3 channels: 60 places become 122, 1,464 bytes."""
    b = gl.Builder("upsampling")
    program = b.finish(b.conv_transpose(b.input("x", (1, 4, 60)), b.constant("w", (4, 3, 4)), strides=2, name="up"))
    path = tmp_path / "up.glenside"
    gl.save(program, path)
    return path


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    """One 3x3 convolution that Winograd's algorithm serves."""
    b = gl.Builder("layer")
    x, w = b.input("x", (1, 8, 16, 16)), b.constant("w", (8, 8, 3, 3))
    path = tmp_path / "layer.glenside"
    gl.save(b.finish(b.relu(b.conv(x, w, padding=1, name="conv"))), path)
    return path


def test_bytes_of_two_parties_are_compared(layer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.json"
    assert run("tensorize", layer, "--target", "mpc:semi2k", "--objective", "bytes", "--json", report) == 0
    printed = capsys.readouterr().out
    assert "Winograd everywhere" in printed
    assert "between layers" in printed
    assert "% under" in printed
    content = json.loads(report.read_text())
    (row,) = content["layers"]
    sent = {name: choice["measures"]["bytes"] for name, choice in row["variants"].items()}
    assert sent["chosen"] < sent["plain"] == 8 * (256 * 72 + 72 * 8) + 4 * 256 * 8
    assert content["checked"] == row["checked"] == "equal as reals"  # fixed point is not exact
    assert any("not exact" in remark and "seen on random" in remark for remark in content["remarks"])
    assert content["totals"]["chosen"]["bytes"] == sent["chosen"] + content["between_layers"]["chosen"]["bytes"]
    assert len(row["front"]) == 16  # of each axis windows, two of Winograd's, or sums of windows


def test_a_slow_network_takes_few_messages(layer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("compare", layer, "--target", "mpc:semi2k", "--link", "1Mbit,1s") == 0
    assert "overlap-add along axis 1 (chosen)" in capsys.readouterr().out


def test_the_answer_is_a_program_again(layer: Path, tmp_path: Path) -> None:
    out = tmp_path / "chosen.glenside"
    assert run("optimize", layer, "--target", "mpc:semi2k,max_error=inf", "--objective", "bytes", "-o", out) == 0
    program = gl.load(out)
    assert "linear-map" in str(program)
    assert run("tensorize", out, "--target", "cpu:1MB") == 0


@pytest.mark.parametrize("target", ["mpc:semi2k", "cpu:1MB", "systolic-array:8x8"])
def test_an_answer_with_the_names_of_its_layers_is_a_program_again(
    layer: Path, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What became of a product keeps its name, but is none: a program has the products that it is written with."""
    out = tmp_path / "chosen.json"
    assert run("tensorize", layer, "--target", target, "-o", out) == 0
    for again in ("mpc:semi2k", "cpu:1MB", "systolic-array:8x8"):
        assert run("tensorize", out, "--target", again) == 0
    capsys.readouterr()
    assert run("check", out) == 0
    products = str(gl.load(out)).count("compute dot-product")
    assert len(capsys.readouterr().out.splitlines()) == 1 + products


@pytest.mark.parametrize("target", [gl.MPC(), gl.CPU("1MB", balance=2)])
def test_tables_fit_the_terminal(layer: Path, target: gl.MPC | gl.CPU) -> None:
    """No figure and no name is cut off, whatever is left out."""
    report = gl.optimize(gl.load(layer), target, verify=False).report
    (row,) = report.layers
    for width in (60, 80, 100, 140, 200):
        out = Console(width=width, file=StringIO())
        out.print(*report_tables(report, width))
        assert isinstance(out.file, StringIO)
        printed = out.file.getvalue()
        assert "…" not in printed
        for measure in report.compared:
            assert f" {row.chosen.measures[measure]:,} " in printed
        assert row.name in printed
        assert all(word in printed for word in row.label.split())
        assert max(map(len, printed.splitlines())) <= width


def test_axes_of_a_plot_name_each_unit_once(layer: Path) -> None:
    for target, labels in ((gl.MPC(), ("messages", "bytes")), (gl.CPU(), ("peak, bytes", "multiply-adds, operations"))):
        (panel,) = front_figure(gl.optimize(gl.load(layer), target, verify=False).report).axes
        assert (panel.get_xlabel(), panel.get_ylabel()) == labels


def test_a_function_for_two_parties_has_its_weights_prepared(layer: Path, tmp_path: Path) -> None:
    out = tmp_path / "chosen.py"
    least = ("--target", "mpc:semi2k,max_error=inf", "--objective", "bytes", "--no-check")
    assert run("tensorize", layer, *least, "-o", out) == 0
    with np.load(out.with_suffix(".npz")) as given:
        shapes = [given[name].shape for name in given.files]
    assert shapes
    assert all(np.prod(shape) > 8 * 8 * 9 for shape in shapes)  # transformed: more numbers than were given
    assert "(6, 6" in out.read_text() or "(4, 4" in out.read_text()
    assert run("tensorize", layer, "--target", "mpc:semi2k,weights=shared", "-o", out, "--no-check") == 0


@pytest.mark.parametrize(("budget", "status"), [(40_000, 0), (4_500, 1)])
def test_a_budget_is_held_or_the_excess_is_said(upsampling: Path, tmp_path: Path, budget: int, status: int) -> None:
    """The smaller budget is above the memory of the layer, and below that of the interpreter's own tables."""
    report = tmp_path / "report.json"
    assert run("tensorize", upsampling, "--target", f"cpu:{budget}", "--json", report) == status
    content = json.loads(report.read_text())
    (row,), whole = content["layers"], content["totals"]["chosen"]["peak"]
    assert "2 phases" in row["label"]
    assert row["variants"]["chosen"]["measures"]["peak"] <= budget
    said = f"the program exceeds the memory budget by {whole - budget:,} bytes: no variant takes less"
    assert content["notes"] == ([said] if status else [])
    assert (whole > budget) == bool(status)


def test_a_front_is_listed_and_drawn(upsampling: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot = tmp_path / "front.png"
    assert run("tensorize", upsampling, "--target", "cpu:1MB", "--pareto", "--plot", plot) == 0
    printed = capsys.readouterr().out
    assert "multiply-adds against peak" in printed
    assert printed.count("(chosen)") == 1
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_a_program_over_its_budget_says_by_how_much(
    upsampling: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The result fits, a tile beside it does not."""
    out = tmp_path / "out.glenside"
    assert run("tensorize", upsampling, "--target", "cpu:1470", "-o", out) == WRONG
    assert "exceeds the memory budget by" in capsys.readouterr().out
    assert out.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--target", "cpu:1463"), "1,464 bytes is larger than the memory budget of 1,463"),
        (("--target", "cpu:many"), "a memory budget"),
        (("--target", "cpu:0"), "at least 1 byte"),
        (("--target", "cpu:1MB,balance=-1"), "the balance of a processor is a number from 0"),
        (("--target", "cpu:1MB,colour=red"), "an option of cpu is one of"),
        (("--target", "cpu:1MB", "--link", "lan"), "the target cpu has no link"),
        (("--target", "mpc:aby3"), "a protocol is one of semi2k"),
        (("--target", "mpc:semi2k", "--link", "lon"), "a link is lan, wan, or RATE,LATENCY"),
        (("--target", "mpc:semi2k", "--blocking", "unrolled-tiles"), "mpc:semi2k has no option --blocking"),
        (("--target", "mpc:semi2k", "--mapping", "baseline"), "mpc:semi2k has no option --mapping"),
        (("--target", "cpu:1MB", "--extract", "exact"), "cpu:1MB has no option --extract"),
        (("--target", "cpu:1MB", "--explain"), "cpu:1MB has no option --explain"),
        (("--target", "cpu:1MB", "--objective", "bytes"), "the target cpu has no objectives"),
        (("--target", "convolution-unit:nhwc", "--plot", "front.png"), "a picture of a network is written as .svg"),
        (("--array", "4x4", "--plot", "front.png"), "--plot is for targets whose variants trade"),
        (("--target", "mpc:semi2k", "--max-rows", "3"), "the target mpc has no max-rows"),
        (("--array", "4x4", "--link", "lan"), "the target systolic-array has no link"),
        (("--array", "4x4", "--pareto"), "--pareto is for targets whose variants trade one measure for another"),
        (("--target", "cpu:1MB", "--plot", "front.gif"), ".png, .svg or .pdf"),
    ],
)
def test_bad_input_is_a_sentence(
    upsampling: Path, arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("tensorize", upsampling, *arguments) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_the_listing_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("targets") == 0
    printed = capsys.readouterr().out
    assert "mpc:semi2k" in printed
    assert "cpu:8MB" in printed


def test_the_matrices_of_winograd(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("winograd", 2, 3, "--json") == 0
    content = json.loads(capsys.readouterr().out)
    found = {name: np.array([[float(Fraction(x)) for x in row] for row in rows]) for name, rows in content.items()}
    d, g = np.array([3.0, -1, 4, 2]), np.array([2.0, -5, 1])
    assert np.array_equal(found["output"] @ ((found["filter"] @ g) * (found["data"] @ d)), np.correlate(d, g))
    assert run("winograd", 4, 3, "--points", "0,1,-1,1/2,-2") == 0
    assert "6 products instead of 12" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("2", "3", "--points", "0,1,1"), "F(2, 3) requires distinct points, got 0 1 1"),
        (("2", "3", "--points", "0,1"), "requires 3 points besides infinity, got 2"),
        (("2", "3", "--points", "0,1,x"), "points are exact numbers"),
        (("0", "3"), "requires m >= 1, r >= 1"),
    ],
)
def test_matrices_that_are_none(arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("winograd", *arguments) == 2
    assert words in capsys.readouterr().err
