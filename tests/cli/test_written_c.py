"""C is compiled, run and compared before it takes its name: what is wrong is not written."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import completed

import glenside as gl
from glenside.check import written_c
from glenside.codegen.c_library import export
from glenside.codegen.processor.model import MACHINES, is_here, machine_of
from glenside.codegen.runtime.compile_and_load import compiler
from glenside.codegen.runtime.compiled_function import Lowered
from glenside.ir.replacing import WrittenWrong
from glenside.ir.term import build


def _network() -> gl.Program:
    b = gl.Builder("net")
    x = b.conv(b.input("x", (1, 3, 9, 9)), b.constant("w", (20, 3, 3, 3)), strides=2, padding=1)
    y = b.matmul(b.input("y", (5, 7)), b.constant("v", (7, 4)))
    return b.finish(build("construct-tuple", b.relu(x), y)).seeded_constants(0)


FAULTS = {
    "cannot compile the generated C": ("status = run(given1,", "status = runs(given1,"),
    "net_open refuses its weights": ("_head[64] = {103", "_head[64] = {104"),
    "result 1 differs in [0-9]+ of 500": ("program->weights + 64", "program->weights + 68"),
    "net_run gives 7": ("status = run(given1, results1", "status = 7 + run(given1, results1"),
    "ends with status -11": ("given1[] = {x1,", "given1[] = {(void *)8,"),
    "result 1 differs in 20 of 500": ("results1[] = {y1, y2}", "results1[] = {y1, y1}"),
}
"""Maps a message to the text in the file and the text that replaces it."""


@pytest.mark.needs_compiler
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("machine", ["plain", pytest.param("native", marks=pytest.mark.slow)])
def test_c_that_means_something_else(machine: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (old, new), texts = FAULTS[fault], export.texts

    def changed(*given: object) -> dict[str, str]:
        found = texts(*given)  # type: ignore[arg-type]
        assert found["net.c"].count(old) == 1
        return {**found, "net.c": found["net.c"].replace(old, new)}

    one = [Lowered(_network(), machine_of(machine))]
    written_c.write(one, tmp_path / "net.c")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {*before} == {"net.c", "net.h", "net.weights"}
    monkeypatch.setattr(export, "texts", changed)
    with pytest.raises(WrittenWrong, match=f"its content reads back differently: .*{fault}"):
        written_c.write(one, tmp_path / "net.c")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.needs_compiler
def test_each_machine_that_is_here_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["generic", *(name for name, own in MACHINES.items() if is_here(own))][:3]
    every = [Lowered(_network(), machine_of(name)) for name in dict.fromkeys(names)]
    assert written_c.write(every, tmp_path / "net.c")[1] == f"compiled by {compiler()[0]} and run, " + (
        "values as meant on random inputs"
    )
    last, texts = f"net_{names[-1]}.c", export.texts

    def changed(*given: object) -> dict[str, str]:
        found = texts(*given)  # type: ignore[arg-type]
        return {**found, last: found[last].replace("given1[] = {x1, ", "given1[] = {x2, ")}

    monkeypatch.setattr(export, "texts", changed)
    with pytest.raises(WrittenWrong, match="result 1 differs"):
        written_c.write(every, tmp_path / "net.c")


def _said(path: Path, *options: str) -> str:
    b = gl.Builder("net")
    gl.save(b.finish(b.relu(b.input("x", (2, 3)))), path / "net.json")
    done = completed("compile", "net.json", "-o", "net.c", *options, folder=path)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_what_is_not_read_back_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = next(name for name, machine in MACHINES.items() if not is_here(machine))
    assert f"Not read back: this computer has no {other}.\n" in _said(tmp_path, "--machine", other)
    if compiler():
        said = _said(tmp_path, "--machine", f"{other},generic")
        assert f"values as meant on random inputs; {other} is not on this computer" in said
        monkeypatch.setattr(written_c, "MOST_SECONDS", -1)
        assert "values not compared: they take about 0 seconds.\n" in _said(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("glenside.codegen.processor.find_compiler._zig", list)
    assert "Not read back: there is no C compiler" in _said(tmp_path)


@pytest.mark.needs_compiler
def test_a_compiler_that_does_not_know_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "old-cc"
    real = " ".join(compiler())
    command.write_text(
        f'#!/bin/sh\ncase "$*" in *-march=*) echo "error: bad value" >&2; exit 1;; esac\nexec {real} "$@"\n'
    )
    command.chmod(0o755)
    monkeypatch.setenv("CC", str(command))
    name = next(name for name, machine in MACHINES.items() if is_here(machine))
    if any(word.startswith("-march") for word in MACHINES[name].flags):
        said = _said(tmp_path, "--machine", name)
        assert "Not read back:" in said
        assert "bad value" in said


@pytest.mark.needs_compiler
def test_values_of_whole_numbers_and_of_stored_floats(tmp_path: Path) -> None:
    """Every dtype passes through the files as bytes of its own size."""
    for dtype in ("float64", "float16", "bfloat16", "int8", "uint16", "int64", "bool"):
        b = gl.Builder("net")
        x, at = b.input("x", (3, 5), dtype), b.input("at", (2,), "int64")
        term = build("construct-tuple", b.gather(x, at), x)
        said = written_c.write([Lowered(b.finish(term), None)], tmp_path / "net.c")[1]
        assert said.endswith("values as meant on random inputs")
