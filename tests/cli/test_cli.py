"""Tests the command line as a user runs it: output, files, exit status and bad input."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from command_line import run

from glenside.cli.commands.optimize import STAGES
from glenside.ir.files import load

PROGRAMS = Path(__file__).parent.parent / "programs"
DOT = "(compute dot-product (access-cartesian-product (access (access-tensor a) 1) (access (access-tensor b) 1)))"
DECLARED = f"(input a (shape 5 9)) (constant b (shape 7 9)) {DOT}"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "my.glenside"
    path.write_text(DECLARED)
    return path


def test_tensorize_prints_a_row_for_each_layer_and_writes_the_report(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, report = tmp_path / "out.glenside", tmp_path / "report.json"
    assert run("tensorize", program, "--array", "4x2", "-o", out, "--json", report) == 0
    printed = capsys.readouterr().out
    assert "product-1" in printed
    assert "saturated" in printed
    assert "Every product is mapped" in printed
    content = json.loads(report.read_text())
    assert {"program", "target", "layers", "totals", "search", "seconds"} <= set(content)
    (layer,) = content["layers"]
    wanted = "name operator groups m k n macs utilization mapped label checked"
    assert set(wanted.split()) <= set(layer)
    assert (layer["m"], layer["k"], layer["n"]) == (5, 9, 7)
    assert layer["variants"]["chosen"]["measures"]["tiles"] == content["totals"]["chosen"]["tiles"] == 9
    assert layer["mapped"] is True
    assert layer["checked"] == "exact"
    assert {"tiles", "cycles"} <= set(content["totals"]["chosen"])
    assert (content["mapped"], content["macs"]) == (1, 5 * 9 * 7)
    assert set(content["search"]) >= {"e_nodes", "e_classes", "iterations", "stopped", "rules"}
    assert {"load", "saturate", "extract", "check", "total"} <= set(content["seconds"])
    assert all(set(r) == {"matches", "seconds"} for r in content["search"]["rules"].values())
    # The text of an optimized program is a program: it parses, and has no product left.
    assert not any(t == "dot-product" for t in out.read_text().split())
    assert load(out).term.access.dims == (5, 7)


def test_json_on_stdout_is_only_json(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tensorize", program, "--array", "4x2", "--json", "-") == 0
    assert json.loads(capsys.readouterr().out)["mapped"] == 1


@pytest.mark.parametrize("name", sorted(p.stem for p in PROGRAMS.glob("*.glenside")))
def test_every_sample_program_is_tensorized(name: str, tmp_path: Path) -> None:
    """What a Glenside program already was, runs through unchanged and equal."""
    path, shapes = PROGRAMS / f"{name}.glenside", PROGRAMS / f"{name}.shapes.json"
    given = ["--shapes", shapes] if shapes.exists() else []
    assert run("tensorize", path, *given, "--array", "5x3", "--json", tmp_path / "r.json") == 0
    content = json.loads((tmp_path / "r.json").read_text())
    assert content["checked"] == "exact"
    assert content["search"]["stopped"] == "saturated"


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_is_printed(stage: str, program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = program.with_suffix(".npz")
    np.savez(weights, b=np.ones((7, 9), np.float32))
    more = ("--weights", weights) if stage == "folded" else ()
    assert run("optimize", program, "--target", "systolic-array:4x2", "--emit", stage, *more) == 0
    out = capsys.readouterr().out
    start = {
        "typed": "; product-1",
        "egraph": "digraph",
        "extracted": "(constant",
        "folded": "(constant",
        "report": "{",
        "egglog": "; Operators",
    }[stage]
    assert out.startswith(start)


def test_an_egraph_goes_where_its_ending_says(program: Path, tmp_path: Path) -> None:
    for ending in ("dot", "json", "png"):
        path = tmp_path / f"e.{ending}"
        assert run("optimize", program, "--array", "4x2", "--emit", "egraph", "-o", path) == 0
        assert path.stat().st_size > 100


def test_the_egraph_of_a_layer_is_written_alone(program: Path, tmp_path: Path) -> None:
    path, none = tmp_path / "e.json", tmp_path / "none.json"
    more = ("tensorize", program, "--array", "4x2", "--emit", "egraph", "--layer")
    assert run(*more, "product-1", "-o", path) == 0
    assert json.loads(path.read_text())["nodes"]
    assert run(*more, "product-2", "-o", none) == 2
    assert not none.exists()


@pytest.mark.parametrize("command", [("tensorize", "--array", "4x2"), ("compare", "--target", "cpu:1MB"), ("layout",)])
def test_a_report_is_a_page_too(program: Path, tmp_path: Path, command: Sequence[str]) -> None:
    path = tmp_path / "report.html"
    name, *machine = command
    assert run(name, program, *machine, "--html", path) == 0
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_run_is_the_interpreter(tmp_path: Path) -> None:
    (tmp_path / "p.glenside").write_text(DOT)
    a, b = np.arange(15.0).reshape(3, 5), np.arange(20.0).reshape(4, 5)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    inputs = [f"--input={name}={tmp_path / name}.npy" for name in "ab"]
    assert run("run", tmp_path / "p.glenside", *inputs, "-o", tmp_path / "out.npy") == 0
    assert np.array_equal(np.load(tmp_path / "out.npy"), a @ b.T)


def test_listings_have_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    for command, word in (("models", "mobilenet-v1"), ("ops", "access-slice"), ("rules", "Sound"), ("targets", "RxC")):
        assert run(command) == 0
        text = capsys.readouterr().out
        assert word in text or command == "rules"
        assert run(command, "--json") == 0
        assert all(row["name"] and row["about"] for row in json.loads(capsys.readouterr().out))


def test_check_prints_types_and_sizes(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", program) == 0
    assert "(5 7)() float32" in capsys.readouterr().out


def test_something_unmapped_is_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.glenside"
    path.write_text("(compute dot-product (access (access-tensor p) 1))")
    assert run("tensorize", path, "--shape", "p=3,2,5", "--array", "4x4") == 1
    assert "stayed off the machine" in capsys.readouterr().out


def test_a_limit_that_stops_the_search_is_no_error_of_itself(program: Path, tmp_path: Path) -> None:
    assert run("tensorize", program, "--array", "4x2", "--iter-limit", 2, "--json", tmp_path / "r.json") == 0
    content = json.loads((tmp_path / "r.json").read_text())
    assert content["search"]["stopped"] == "iteration-limit"
    assert content["checked"] == "exact"
    assert content["layers"][0]["mapped"], "the baseline mapping, where the search had none"


BAD = {
    "array zero": ("tensorize mobilenet-v1 --array 0x64", "written ROWSxCOLUMNS"),
    "array one number": ("tensorize mobilenet-v1 --array 64", "written ROWSxCOLUMNS"),
    "array words": ("tensorize mobilenet-v1 --array axb", "written ROWSxCOLUMNS"),
    "array too large": ("tensorize mobilenet-v1 --array 5000x1", "from 1 to 4096"),
    "no array": ("tensorize mobilenet-v1", "--array RxC"),
    "unknown model": ("tensorize mobilnet --array 4x4", "did you mean mobilenet-v"),
    "unknown target": ("optimize mobilenet-v1 --target gpu:1x1", "there is no target 'gpu'"),
    "a layer of no egraph": ("tensorize mobilenet-v1 --array 4x4 --layer dw1", "give --emit egraph too"),
    "unknown output": ("tensorize mobilenet-v1 --array 4x4 --emit code", "--emit must be one of table, passes, egraph"),
    "no page": ("tensorize mobilenet-v1 --array 4x4 --html report.pdf", "a page is written as .html"),
    "a folder for a page": ("compare mobilenet-v1 --array 4x4 --html .", "it is a folder"),
    "unknown stage": ("optimize mobilenet-v1 --array 4x4 --emit code", "--emit must be one of"),
    "unknown parameter": ("tensorize mobilenet-v1 --array 4x4 --set depth=3", "requires parameters among"),
    "bad parameter": ("tensorize mobilenet-v1 --array 4x4 --set resolution=0", "at least 1, got 0"),
    "unknown blocking": ("tensorize mobilenet-v1 --array 4x4 --blocking rows --set resolution=32", "must be one of"),
    "bad memory": ("tensorize mobilenet-v1 --array 4x4 --memory-limit lots", "500MB or 2GB"),
    "unknown command": ("fly", "No such command"),
    "missing argument": ("tensorize", "Missing argument"),
    "missing file": ("check {0}/none.glenside", "none.glenside"),
    "unbalanced": ("check {0}/open.glenside", "open.glenside:1:1"),
    "many parentheses": ("check {0}/many.glenside", "many.glenside:1:1"),
    "name without a shape": ("check {0}/plain.glenside", "no shape for tensor"),
    "shape that does not fit": ("check {0}/plain.glenside --shape a=3,4 --shape b=3,5", "plain.glenside:1:"),
    "cyclic let": ("check {0}/cycle.glenside", "cycle.glenside:1:"),
    "bad shape": ("check {0}/plain.glenside --shape a=x", "as in 1,3,32,32, is a whole number"),
    "many digits of a shape": (f"check {{0}}/plain.glenside --shape a={'9' * 5000}", "is a whole number from 0"),
    "many digits of a dimension": (f"check {{0}}/plain.glenside --dim n={'9' * 5000}", "is a whole number from 0"),
    "many digits of an array": (f"tensorize mobilenet-v1 --array {'9' * 5000}x4", "written ROWSxCOLUMNS"),
    "a seed below 0": ("tensorize mobilenet-v1 --array 4x4 --seed -1", "--seed is a whole number from 0"),
    "rows beyond 64 bits": (
        "tensorize mobilenet-v1 --array 4x4 --max-rows 9223372036854775808",
        "from 1 to 2147483647",
    ),
    "an infinite growth": ("tensorize mobilenet-v1 --array 4x4 --max-weight-growth inf", "from 1 to 1e+06, got inf"),
    "no number for a growth": (
        "tensorize mobilenet-v1 --array 4x4 --max-weight-growth nan",
        "from 1 to 1e+06, got nan",
    ),
    "an infinite balance": ("tensorize mobilenet-v1 --target cpu:8MB,balance=1e308", "from 0 to 1e+06"),
    "a wide model": ("tensorize mobilenet-v1 --array 4x4 --set width=1e308", "a width is a number from 0"),
    "a number of many digits in TOML": ("tensorize mobilenet-v1 --target {0}/digits.toml", "a number that is too long"),
    "a large Winograd": ("winograd 200 200", "m + r - 1 <= 64"),
    "a long path": (f"tensorize mobilenet-v1 --array 4x4 -o {'x' * 300}.glenside", "File name too long"),
    "a device": ("tensorize /dev/zero --array 4x4", "/dev/zero: it is not a regular file"),
    "a device for weights": ("tensorize {0}/plain.glenside --array 4x4 --weights /dev/zero", "not a regular file"),
    "a pipe": ("check {0}/pipe.glenside", "it is not a regular file"),
    "more than 64 bits count": ("tensorize {0}/vast.glenside --array 1x1", "the number of multiply-adds of product-1"),
    "an array that declares more than it holds": (
        "run {0}/vast.glenside --weights {0}/lie.npz",
        "the program has no constant other",
    ),
    "truncated array": ("run {0}/plain.glenside --input a={0}/cut.npy", "cut.npy"),
    "pickled array": ("run {0}/plain.glenside --input a={0}/pickled.npy", "pickled.npy"),
    "no such array": ("run {0}/plain.glenside --input a={0}/none.npy", "none.npy"),
    "no such folder": ("tensorize mobilenet-v1 --array 4x4 -o {0}/no/out.glenside", "there is no folder"),
    "a folder as output": ("tensorize mobilenet-v1 --array 4x4 --json {0}", "it is a folder"),
}


@pytest.fixture(scope="module")
def bad_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    (folder / "open.glenside").write_text("(access (access-tensor a")
    (folder / "many.glenside").write_text("(" * 10_000_000)
    (folder / "plain.glenside").write_text(DOT)
    (folder / "cycle.glenside").write_text("(let ((p (access q 1)) (q (access p 1))) p)")
    np.save(folder / "cut.npy", np.zeros((5, 9), np.float32))
    (folder / "cut.npy").write_bytes((folder / "cut.npy").read_bytes()[:-7])
    np.save(folder / "pickled.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (folder / "digits.toml").write_text(f"[array]\nrows = {'9' * 4400}\ncolumns = 4\n")
    vast = "(input a (shape 2147483648 1) float32) (input b (shape 2147483647 1) float32)"
    (folder / "vast.glenside").write_text(vast + DOT)
    os.mkfifo(folder / "pipe.glenside")
    outline = io.BytesIO()
    np.lib.format.write_array_header_1_0(outline, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40,)})
    with zipfile.ZipFile(folder / "lie.npz", "w") as archive:
        archive.writestr("other.npy", outline.getvalue())
    return folder


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_and_status_2(name: str, bad_files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command, words = BAD[name]
    before = sorted(bad_files.iterdir())
    assert run(*command.format(bad_files).split()) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("glenside: error: ")
    assert words in captured.err
    assert "Traceback" not in captured.err
    assert captured.err.count("\n") == 1
    assert not captured.out
    assert sorted(bad_files.iterdir()) == before


@pytest.mark.slow
def test_ctrl_c_answers_soon_with_the_best_so_far(tmp_path: Path) -> None:
    """A search that would take minutes: the program as found so far is written, the status is 130.

    That it takes less than 2 s is for an idle machine to show (`test_stops.py`, slow).
    """
    out = tmp_path / "best.glenside"
    command = [sys.executable, "-m", "glenside", "tensorize", "mobilenet-v1", "--array", "6x6", "--no-check", "-o", out]
    command += ["--blocking", "unrolled-tiles"]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    process = subprocess.Popen(
        [*map(str, command), "--set", "resolution=32"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    time.sleep(6.0)
    assert process.poll() is None, "the search ended before it could be interrupted"
    process.send_signal(signal.SIGINT)
    started = time.perf_counter()
    printed, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert time.perf_counter() - started < 15
    assert b"stopped: interrupted" in printed
    assert load(out).term.access.dims == (1, 1000)


@pytest.mark.parametrize("listing", ["ops", "rules"])
def test_an_unknown_name_says_what_lists_the_known_ones(capsys: pytest.CaptureFixture[str], listing: str) -> None:
    assert run(listing, "zzz") == 2
    assert f"zzz; `glenside {listing}` lists them" in capsys.readouterr().err
