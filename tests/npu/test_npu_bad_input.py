"""Tests what an npu does not support: one sentence and status 2; no file is written or changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import run

import glenside as gl
from glenside import stages
from glenside.egraph.saturation import Limits
from glenside.ir.packages import install_command
from glenside.npu.program import binary_format
from glenside.npu.rtl import verilator
from glenside.targets.npu.target import NPU

OLD = b"as it was"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a network of floats, and a program of it for npu:8x8."""
    b = gl.Builder("two")
    y = b.relu(b.conv(b.input("x", (1, 3, 5, 5)), b.constant("a", (4, 3, 3, 3)), padding=1))
    network = b.finish(b.conv(y, b.constant("c", (5, 4, 1, 1)))).seeded_constants(0)
    own = tmp_path_factory.mktemp("bad")
    gl.save(network, own / "two.glenside")
    binary_format.save(gl.npu_program(network, NPU(8), quantize="random"), own / "two.bin")
    (own / "short.bin").write_bytes((own / "two.bin").read_bytes()[:-100])
    (own / "no.toml").write_text('target = "npu"\n[array]\nrows = 8\ncolumns = 8\n[dram]\nbandwidth = "0 B/cycle"\n')
    (own / "unit.toml").write_text('target = "npu"\n[array]\nrows = 8\ncolumns = 8\n[dram]\nbandwidth = "4 GB/s"\n')
    return own


BAD = {
    "weights of no tile": ("npu:64x64,scratchpad=2KB", "holds a tile of 64 rows of 64 bytes, 4,096 bytes, and has 512"),
    "by how much": ("npu:64x64,scratchpad=5KB", "and has 1,280: 2,816 are missing"),
    "no lanes": (
        "npu:8x8,scratchpad=72,weights=64",
        "two bytes of each of 8 lanes beside 64 bytes of weights, and has 8",
    ),
    "lanes of no results": (
        "npu:8x8,scratchpad=96,weights=64",
        "32 bytes beside 64 of weights; results that pass through 2 rows of each half need 48: 16 are missing",
    ),
    "no bandwidth": ("npu:8x8,bandwidth=0", "bandwidth of an npu is an integer from 1 to 1,024, got 0"),
    "no bandwidth in a file": ("no.toml", "no.toml: bandwidth of an npu is an integer from 1 to 1,024, got 0"),
    "unknown unit": ("npu:8x8,scratchpad=256kg", "the option scratchpad of npu is a size such as '256 KB'"),
    "unknown unit in a file": ("unit.toml", "unit.toml:6: bandwidth in [dram] is whole bytes, such as '32 B/cycle'"),
    "unknown energies": ("npu:8x8,energy=mine", "a published table of energies is one of horowitz-2014, got 'mine'"),
}


@pytest.mark.parametrize(("name", "ending"), [*((name, "bin") for name in BAD), ("no lanes", "asm")])
def test_a_machine_that_runs_nothing(
    name: str,
    ending: str,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    machine, said = BAD[name]
    out = tmp_path / f"out.{ending}"
    out.write_bytes(OLD)
    words = ("--target", machine, "--quantize", "random", "--no-cache", "-o", out, "--json", tmp_path / "out.json")
    assert run("tensorize", "two.glenside", *words) == 2
    _told(capsys, said)
    assert out.read_bytes() == OLD
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_with_what_is_missing_it_runs(folder: Path, tmp_path: Path) -> None:
    words = ("--target", "npu:8x8,scratchpad=112,weights=64", "--quantize", "random", "--no-cache")
    assert run("tensorize", folder / "two.glenside", *words, "-o", tmp_path / "two.bin") == 0
    assert run("run", tmp_path / "two.bin", "--on", "simulator") == 0


def _told(capsys: pytest.CaptureFixture[str], said: str) -> None:
    found = capsys.readouterr()
    assert found.err.startswith("glenside: error: ")
    assert said in found.err
    assert found.err.count("\n") == 1
    assert not found.out


@pytest.mark.parametrize("on", ["simulator", "rtl"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("two.bin", "--target", "npu:16x16"), "two.bin: it is for another machine, npu:8x8, and not for npu:16x16"),
        (("short.bin",), "short.bin: it has "),
        (("two.glenside",), "two.glenside is a network and no program of an npu yet: `glenside tensorize two.glenside"),
        (("two.bin", "--target", "systolic-array:8x8"), "--target of a program of an npu is an npu"),
    ],
)
def test_a_program_that_is_none(
    words: tuple[str, ...],
    said: str,
    on: str,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    paths = ("-o", tmp_path / "y.npz", "--json", tmp_path / "y.json", "--plot", tmp_path / "y.png")
    assert run("run", *words, "--on", on, *paths) == 2
    _told(capsys, said)
    assert not [*tmp_path.iterdir()]


def test_no_verilator(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verilator, "verilator", lambda: None)
    paths = ("-o", tmp_path / "y.npz", "--json", tmp_path / "y.json", "--plot", tmp_path / "y.png")
    assert run("run", folder / "two.bin", "--on", "rtl", *paths) == 2
    _told(capsys, f"there is no Verilator: {install_command('rtl')}, or install Verilator 5.030 or later")
    assert not [*tmp_path.iterdir()]


def test_verilator_without_what_compiles_what_it_makes(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is Verilator and no make, no g++, or neither."""
    monkeypatch.setattr(verilator, "verilator", lambda: verilator.Verilator(Path("verilator"), None, "Verilator 5.048"))
    monkeypatch.setattr(verilator, "find", lambda _: None)  # no program that was built before
    for there, said in (
        ({"g++"}, "there is no make in PATH"),
        ({"make"}, "there is no g++ in PATH"),
        ((), "there is no make and no g++ in PATH"),
    ):
        monkeypatch.setattr(verilator.shutil, "which", lambda name, there=there: name if name in there else None)
        assert run("run", folder / "two.bin", "--on", "rtl", "-o", tmp_path / "y.npz") == 2
        _told(capsys, said)
        assert not [*tmp_path.iterdir()]


def test_a_verilator_that_is_too_old(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = verilator.Verilator(Path("/usr/bin/verilator_bin"), None, "Verilator 5.006 2023-01-22 rev (Debian 5.006-3)")
    monkeypatch.setattr(verilator, "verilator", lambda: old)
    assert run("run", folder / "two.bin", "--on", "rtl", "-o", tmp_path / "y.npz") == 2
    _told(capsys, "/usr/bin/verilator_bin is Verilator 5.006 2023-01-22 rev (Debian 5.006-3), which is too old: pip")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("limit", "words"), [("iter-limit", "iterations"), ("node-limit", "e-nodes"), ("time-limit", "seconds")]
)
@pytest.mark.parametrize("quantized", [False, True])
def test_a_search_that_ends_before_a_layer_is_mapped(
    limit: str,
    words: str,
    quantized: bool,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the one for the mapping as written too, as it does on a large network or a busy computer."""
    monkeypatch.setattr(stages, "_FALLBACK_LIMITS", Limits(iterations=0))
    npu = ("--target", "npu:8x8", "--no-cache", "-o", tmp_path / "y.bin", f"--{limit}", 0)
    assert run("tensorize", folder / "two.glenside", *npu, *(("--quantize", "random") if quantized else ())) == 2
    _told(capsys, f"had no mapping yet when the search ended at its limit of {words}: a greater --{limit}")
    assert not [*tmp_path.iterdir()]


def test_a_network_of_other_numbers(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is neither quantized nor can be; a machine of floats for bytes; samples that are none."""
    b = gl.Builder("ids")
    table = b.constant("table", (7, 4))
    gl.save(
        b.finish(b.matmul(b.gather(table, b.input("ids", (3,), "int64")), b.constant("w", (4, 2)))),
        tmp_path / "ids.glenside",
    )
    npu = ("--target", "npu:8x8", "--no-cache", "-o", tmp_path / "y.bin")
    for words, said in (
        (
            (tmp_path / "ids.glenside", *npu, "--quantize", "random"),
            "inputs must be bytes, or floats that are quantized",
        ),
        ((folder / "two.glenside", *npu, "--quantize", tmp_path / "none.npz"), "cannot read"),
        ((folder / "two.glenside", *npu, "--quantize", "well"), "--quantize is random, or an .npz file"),
        ((folder / "two.glenside", "--array", "8x8", "--quantize", "random"), "--quantize is for a machine of bytes"),
    ):
        assert run("tensorize", *words) == 2
        _told(capsys, said)
        assert [path.name for path in tmp_path.iterdir()] == ["ids.glenside"]


def test_a_network_without_a_product(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    b = gl.Builder("none")
    gl.save(b.finish(b.relu(b.input("x", (3, 5)))), tmp_path / "none.glenside")
    npu = ("--target", "npu:8x8", "--no-cache", "-o", tmp_path / "y.bin")
    assert run("tensorize", tmp_path / "none.glenside", *npu) == 2
    _told(capsys, "the network has no product: there is nothing to make")
    assert run("tensorize", tmp_path / "none.glenside", *npu, "--quantize", "random") == 2
    _told(capsys, "a result must be bytes, or sums of a product, and this one is computed from no product")
    assert not (tmp_path / "y.bin").exists()
