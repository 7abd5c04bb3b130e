"""Tests that `glenside compile` writes C that compiles without warnings, and runs; `glenside bench` times it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import completed, run
from slow_cases import quick

import glenside as gl
from glenside.codegen import pipeline
from glenside.codegen.c_library.export import library
from glenside.codegen.processor.model import machine_of
from glenside.codegen.runtime.compile_and_load import compiler, flags
from glenside.codegen.runtime.compiled_function import Lowered

CALLER = r"""
#include <stdio.h>
#include "net.h"
int main(void)
{
    static float x[1 * 3 * 9 * 9], y[1 * 20 * 5 * 5];
    if (net_open("nothing.weights", 1) || net_open("net.h", 1)) return 3;
    net_program *program = net_open("net.weights", 2);
    if (net_open(0, 1) || net_open("net.weights", 1 << 30)) return 4;
    if (net_run(0, x, y) != -2 || net_run(program, 0, y) != -2 || net_run(program, x, 0) != -2) return 5;
    if (!program || fread(x, sizeof x, 1, stdin) != 1 || net_run(program, x, y)) return 2;
    net_close(program);
    return fwrite(y, sizeof y, 1, stdout) == 1 ? 0 : 2;
}
"""


def _network(folder: Path) -> Path:
    b = gl.Builder("net")
    x = b.conv(b.input("x", (1, 3, 9, 9)), b.constant("w", (20, 3, 3, 3)), strides=2, padding=1)
    gl.save(b.finish(b.relu(x)).seeded_constants(0), folder / "net.onnx")
    return folder / "net.onnx"


def test_what_the_search_found(tmp_path: Path) -> None:
    path = _network(tmp_path)
    done = completed("compile", path, "-o", "net.c", "--target", "cpu:unlimited,balance=2", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "bytes in one piece, which is the least" in done.stdout


@pytest.mark.parametrize(("budget", "status", "said"), [("40KB", 0, "within the"), ("8KB", 1, "above the")])
def test_a_budget_is_of_what_is_compiled(tmp_path: Path, budget: str, status: int, said: str) -> None:
    """A layer's result takes 6,480 bytes, in addition to its input."""
    b = gl.Builder("net")
    x = b.conv(b.input("x", (1, 3, 9, 9)), b.constant("v", (20, 3, 3, 3)), padding=1)
    path = tmp_path / "net.onnx"
    gl.save(b.finish(b.conv(x, b.constant("w", (20, 20, 3, 3)), padding=1)).seeded_constants(0), path)
    done = completed("compile", path, "-o", "net.c", "--target", f"cpu:{budget}", folder=tmp_path)
    assert done.returncode == status, done.stderr
    assert f"{said} budget of" in done.stdout
    compiled = gl.compile(gl.load(path), gl.CPU(budget))
    assert f"{said} budget of" in str(compiled.report)


@pytest.mark.needs_compiler
@pytest.mark.parametrize("machine", ["native", "generic", "plain"])
def test_the_c_of_a_file(tmp_path: Path, machine: str) -> None:
    path = _network(tmp_path)
    done = completed("compile", path, "-o", "net.c", "--machine", machine, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "bytes in one piece, which is the least" in done.stdout
    (tmp_path / "caller.c").write_text(CALLER)
    build = [*compiler(), *flags(machine_of(machine)), "-Wall", "-Wextra", "-Werror", "net.c", "caller.c"]
    subprocess.run([*build, "-o", "caller", "-lm", "-pthread"], cwd=tmp_path, check=True, timeout=120)
    if shutil.which("clang"):
        subprocess.run(["clang", *build[len(compiler()) :], "-fsyntax-only"], cwd=tmp_path, check=True, timeout=120)
    x = np.random.default_rng(0).standard_normal((1, 3, 9, 9)).astype(np.float32)
    got = subprocess.run(["./caller"], input=x.tobytes(), cwd=tmp_path, capture_output=True, check=True, timeout=60)
    program = gl.load(path)
    want = np.asarray(gl.evaluate([program.term], {**program.constants, "x": x})[0])
    assert np.allclose(np.frombuffer(got.stdout, np.float32).reshape(want.shape), want, 1e-4, 1e-5)


@pytest.mark.needs_compiler
@pytest.mark.parametrize(
    "name", quick(["int", "puts", "linux", "pool", "_stdio", "EOF", "main", "program", "stdio"], 0, 3, 5, 6)
)
def test_a_file_may_have_any_name(tmp_path: Path, name: str) -> None:
    b = gl.Builder("p")
    made = library([Lowered(b.finish(b.relu(b.input("x", (2, 3)))), None)], name)
    for path, text in made.texts.items():
        (tmp_path / path).write_text(text)
    build = [*compiler(), *flags(None), "-Wall", "-Wextra", "-Werror", f"-D{name.upper()}_MAIN", f"{name}.c", "-o", "p"]
    subprocess.run([*build, "-lm", "-pthread"], cwd=tmp_path, check=True, timeout=120)


@pytest.mark.needs_compiler
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="these are machines of another processor")
def test_a_machine_is_chosen_when_it_runs(tmp_path: Path) -> None:
    path = _network(tmp_path)
    names = "generic,avx512,amx,avxvnni,avx512vnni,avx512bf16,avx2"
    done = completed("compile", path, "-o", "net.c", "--machine", names, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {"net.c", *(f"net_{name}.c" for name in names.split(","))} <= {p.name for p in tmp_path.iterdir()}
    (tmp_path / "caller.c").write_text(CALLER.replace("net_close(program)", "puts(net_machine(program))"))
    *objects, last = done.stdout.split("Compile it: ")[1].strip().split(" && ")
    for line in (*objects, last.replace("net.c", "net.c caller.c -o caller")):
        command, *words = line.split()
        assert command == "cc"
        subprocess.run([*compiler(), *words, "-Wall", "-Wextra", "-Werror"], cwd=tmp_path, check=True, timeout=120)
    x = np.random.default_rng(0).standard_normal((1, 3, 9, 9)).astype(np.float32)
    got = subprocess.run(["./caller"], input=x.tobytes(), cwd=tmp_path, capture_output=True, check=True, timeout=60)
    name, _, content = got.stdout.partition(b"\n")
    best = machine_of("native")
    assert best is not None
    assert name.decode() == best.name
    program = gl.load(path)
    want = np.asarray(gl.evaluate([program.term], {**program.constants, "x": x})[0])
    assert np.allclose(np.frombuffer(content, np.float32).reshape(want.shape), want, 1e-4, 1e-5)


@pytest.mark.needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("machine", ["native", "plain"])
def test_no_byte_outside_is_touched(tmp_path: Path, machine: str) -> None:
    """Address and undefined-behaviour sanitizers, over networks with every kind of nest."""
    networks = {
        "unet-small": ["resolution=16", "base=4", "levels=2"],
        "vit-s-16": ["resolution=32", "layers=1", "hidden=12", "heads=3"],
    }
    for name, sizes in networks.items():
        words = [word for size in sizes for word in ("--set", size)]
        done = completed("compile", name, *words, "-o", "net.c", "--machine", machine, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        build = [*compiler(), *flags(machine_of(machine)), "-O1", "-g1", "-fsanitize=address,undefined", "-DNET_MAIN"]
        subprocess.run([*build, "net.c", "-o", "net", "-lm", "-pthread"], cwd=tmp_path, check=True, timeout=300)
        ran = subprocess.run(["./net", "net.weights", "2"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
        assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.needs_compiler
@pytest.mark.parametrize("how", [[], ["--on", "native"]])
def test_more_than_memory_holds_is_a_sentence(tmp_path: Path, how: list[str]) -> None:
    b = gl.Builder("net")
    gl.save(b.finish(b.relu(b.input("x", (1 << 30, 1 << 18)))), tmp_path / "net.json")
    done = completed("run", "net.json", "--input", "x=1", *how, folder=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "memory does not suffice" in done.stderr


def test_loops_are_printed_for_any_machine(tmp_path: Path) -> None:
    done = completed("compile", _network(tmp_path), "--emit", "loops", "--machine", "neon", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "vector i" in done.stdout


def test_passes_are_listed_with_their_times(tmp_path: Path) -> None:
    words = ["compile", _network(tmp_path), "--machine", "avx2", "--without", "fuse-padding", "--emit"]
    done = completed(*words, "passes", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    listed = [line.split()[0] for line in done.stdout.splitlines() if line.startswith(" ") and line.split()]
    assert [n for n in listed if n in pipeline.NAMES] == [n for n in pipeline.NAMES[:-1] if n != "fuse-padding"]
    done = completed(*words, "loops", "--after", "lower", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    done = completed(*words, "loops", "--after", "fuse-padding", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the pass fuse-padding did not run" in done.stderr


@pytest.mark.needs_compiler
def test_bench(tmp_path: Path) -> None:
    words = ["bench", _network(tmp_path), "--rounds", "2", "--threads", "1,2", "--peers", "onnxruntime"]
    done = completed(*words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1 thread  " in done.stdout
    assert "2 threads  " in done.stdout
    assert all(done.stdout.count(f"  {name} ") == 2 for name in ("compiled", "naive loops,", "onnxruntime"))
    assert "; those that take longest" in done.stdout
    assert "predicted us" in done.stdout


@pytest.mark.needs_compiler
@pytest.mark.parametrize(("ending", "on"), [("onnx", "native"), pytest.param("json", "plain", marks=pytest.mark.slow)])
def test_run_as_c(tmp_path: Path, ending: str, on: str) -> None:
    """The cache key does not depend on the values of inputs."""
    b = gl.Builder("net")
    x, w = b.input("x", (2, 3, 8, 8)), b.constant("w", (5, 3, 3, 3))
    y = b.add(b.relu(b.conv(x, w, padding=1)), b.input("y", (1, 5, 1, 1)))
    gl.save(b.finish(y).seeded_constants(0), path := tmp_path / f"net.{ending}")
    draw = np.random.default_rng(0)
    np.save(tmp_path / "y.npy", draw.standard_normal((1, 5, 1, 1)).astype(np.float32))
    results = []
    for seed in range(2):
        np.save(tmp_path / "x.npy", draw.standard_normal((2, 3, 8, 8)).astype(np.float32))
        for how in (["--on", on], []):
            words = ["run", path, "--input", "x=x.npy", "--input", "y=y.npy", *how, "-o", "out.npy"]
            done = completed(*words, folder=tmp_path)
            assert done.returncode == 0, done.stderr
            results.append(np.load(tmp_path / "out.npy"))
        assert np.allclose(*results[-2:], 1e-4, 1e-5), seed
    assert not np.allclose(results[0], results[2])
    assert len(list(Path(os.environ["GLENSIDE_CACHE"], "native").iterdir())) == 1
    done = completed("run", path, "--input", "x=x.npy", "--on", on, folder=tmp_path)
    assert done.returncode == 2
    assert "missing inputs: y" in done.stderr


def test_nothing_is_written_where_one_file_cannot_be(tmp_path: Path) -> None:
    path = _network(tmp_path)
    (tmp_path / "net.h").mkdir()
    done = completed("compile", path, "-o", "net.c", folder=tmp_path)
    assert done.returncode == 2
    assert "cannot write net.h: it is a folder" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.h", "net.onnx"]


def test_nothing_is_written_where_the_disk_is_full(tmp_path: Path) -> None:
    """A limit of the size of files stands for it: the C fits, the weights do not."""
    b = gl.Builder("net")
    x = b.add(b.input("x", (400, 400)), b.constant("w", (400, 400)))
    gl.save(b.finish(x).seeded_constants(0), tmp_path / "net.onnx")
    command = f"trap '' XFSZ; ulimit -f 300; exec {sys.executable} -m glenside compile net.onnx -o net.c"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "cannot write net.weights: File too large" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["compile", "mobilenet-v1"], "C is written to a file: give one that ends in .c by -o"),
        (["compile", "mobilenet-v1", "-o", "x.onnx"], "C is written to a file"),
        (["compile", "mobilenet-v1", "-o", "nowhere/x.c"], "there is no folder nowhere"),
        (["compile", "mobilenet-v1", "-o", "1x.c"], "a name in C is letters, digits and _"),
        (["compile", "mobilenet-v1", "-o", "x.c", "--machine", "vax"], "a machine is native, plain, amx"),
        (["compile", "mobilenet-v1", "-o", "x.c", "--machine", "avx2,neon"], "got aarch64 and x86_64"),
        (["compile", "mobilenet-v1", "-o", "x.c", "--machine", "avx2,avx2"], "avx2,avx2 would never be selected"),
        (["compile", "mobilenet-v1", "-o", "x.c", "--machine", "plain,generic"], "at most one that runs anywhere"),
        (["compile", "mobilenet-v1", "-o", "x.c", "--machine", "avx2,"], "got ''"),
        (
            ["compile", "mobilenet-v1", "-o", "x.c", "--target", "cpu:8MB,machine=avx2", "--machine", "neon"],
            "--target cpu:8MB,machine=avx2 is of avx2, which is not among --machine neon: leave one out",
        ),
        (["compile", "mobilenet-v1", "--emit", "loops", "--machine", "avx2,avx512"], "loops are of one machine"),
        (["compile", "mobilenet-v1", "-o", "x.c", "--emit", "rust"], "--emit is c, loops or passes"),
        (["compile", "mobilenet-v1", "--after", "lower", "-o", "x.c"], "--after is for --emit loops"),
        (["compile", "mobilenet-v1", "--emit", "loops", "--after", "lowr"], "did you mean lower?"),
        (["compile", "mobilenet-v1", "--emit", "loops", "--without", "lower"], "the pass lower is required"),
        (["compile", "mobilenet-v1", "--emit", "loops", "--without", ","], "there is no pass ''"),
        (["compile", "mobilenet-v1", "--emit", "passes", "-o", "x.txt"], "--emit passes prints a table"),
        (["compile", "mobilenet-v1", "--emit", "passes", "--machine", "plain"], "no pass runs over plain loops"),
        (["bench", "mobilenet-v1", "--threads", "0"], "--threads are numbers from 1 on"),
        (["bench", "mobilenet-v1", "--rounds", "0"], "--rounds"),
        (["bench", "mobilenet-v1", "--busy", "-1"], "--busy"),
        (["bench", "mobilenet-v1", "--peers", "tvm"], "--peers are of ncnn, onnxruntime, OpenVINO, PyTorch,"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_wrong_is_a_sentence(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*words) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
