"""Tests that programs with open sizes are written as C whose functions take the sizes."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import completed
from slow_cases import quick

import glenside as gl
from glenside.builder import layout
from glenside.builder.pointwise import compute
from glenside.check import written_c
from glenside.check.open_function import lowered_for_c, lowered_open
from glenside.check.written_c import write
from glenside.codegen.c_library.exported import exported
from glenside.codegen.processor.model import machine_of
from glenside.codegen.runtime.compile_and_load import compiler, flags
from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.ir.term import build
from tests.oracles.open_programs import PROGRAMS, drawn

STRICT = ("-Wall", "-Wextra", "-Werror")


class _Library:
    """A written program as a shared object, called by its C function."""

    def __init__(self, folder: Path, program: gl.OpenProgram, machine: str, threads: int = 1) -> None:
        self.lowered = lowered_open(program, machine_of(machine))
        self.program, _ = program, write([self.lowered], folder / "net.c")
        build = [*compiler(), *flags(machine_of(machine)), *STRICT, "-fPIC", "-shared", "net.c", "-o", "net.so"]
        subprocess.run([*build, "-lm", "-pthread"], cwd=folder, check=True, timeout=120)
        self.c = ctypes.CDLL(str(folder / "net.so"))
        self.c.net_open.restype = ctypes.c_void_p
        self.opened = [ctypes.c_void_p(self.c.net_open(str(folder / "net.weights").encode(), threads)) for _ in "ab"]
        assert all(self.opened)

    def __call__(self, sizes: Mapping[str, int], given: Mapping[str, Any], number: int = 0) -> Any:
        own = exported(self.lowered)
        within = {name: min(max(low, sizes[name]), high) for name, (low, high, _) in own.ranges.items()}
        results = [np.full(b.at(within), 7, b.dtype) for b in own.results]
        inputs = [np.ascontiguousarray(given[b.name]) for b in own.inputs]
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*inputs, *results)]
        status = self.c.net_run(self.opened[number], *map(ctypes.c_int64, sizes.values()), *pointers)
        return results if status == 0 else status


def _flat(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _agrees(library: _Library, sizes: Mapping[str, int], number: int = 0) -> None:
    program = library.program.at(sizes)
    given = drawn(program, sum(sizes.values()))
    wanted = gl.evaluate([program.term], {**program.constants, **given})[0]
    for own, right in zip(library(sizes, given, number), _flat(wanted), strict=True):
        np.testing.assert_allclose(own, right, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(right).max(initial=0))))


QUICK = ("columns",)


@pytest.mark.needs_compiler
@pytest.mark.parametrize("machine", ["plain", "native"])
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PROGRAMS]
)
def test_one_c_function_for_all_sizes(tmp_path: Path, name: str, machine: str) -> None:
    """Calls of two programs of one library alternate: neither reads the numbers of the other's sizes."""
    library = _Library(tmp_path, gl.open_program(PROGRAMS[name], name, n=(3, 71, 2)), machine, threads=2)
    for number, n in enumerate((3, 5, 71, 17, 17, 49, 3)):
        _agrees(library, {"n": n}, number % 2)
    given = drawn(library.program.at({"n": 71}), 0)
    assert [library({"n": n}, given) for n in (0, 1, 2, 4, 72, 73, -1, 1 << 40)] == [-3] * 8


def _with_constants(past: int, seq: int) -> Program:
    """A mask by the distance, in two axes; a table whose first rows are read; and one whose last ones are."""
    b = gl.Builder("tables")
    x, k = b.input("x", (seq, 16)), b.input("k", (past, 16))
    rows, columns = np.arange(seq)[:, None], np.arange(past)[None]
    mask = b.constant("mask", (seq, past), value=(np.sin(rows) * 10 + columns).astype("float32"))
    first = b.constant("first", (seq, 16), value=np.arange(seq * 16).reshape(seq, 16).astype("float32"))
    last = b.constant("last", (past, 16), value=np.arange(-past * 16, 0).reshape(past, 16).astype("float32"))
    scores = b.add(b.matmul(b.add(x, first), layout.transpose(k, (1, 0))), mask)
    return b.finish(build("construct-tuple", scores, b.add(k, last)))


@pytest.mark.needs_compiler
@pytest.mark.parametrize("machine", quick(["plain", "native"], 0))
def test_constants_are_windows_of_those_of_the_greatest_sizes(tmp_path: Path, machine: str) -> None:
    library = _Library(tmp_path, gl.open_program(_with_constants, past=(1, 40), seq=(1, 12)), machine)
    assert {*library.lowered.windows} == {"mask", "first", "last"}
    for past, seq in ((1, 1), (40, 12), (7, 12), (40, 1), (7, 3)):
        _agrees(library, {"past": past, "seq": seq})


def _scaled(n: int) -> Program:
    b = gl.Builder("scaled")
    value = np.linspace(0, 1, n, dtype="float32")
    return b.finish(b.add(b.input("x", (n,)), b.constant("ramp", (n,), value=value)))


@pytest.mark.parametrize("machine", ["plain", "native"])
def test_a_constant_that_is_no_window_is_refused_by_its_name(machine: str) -> None:
    lowered = lowered_open(gl.open_program(_scaled, n=(2, 50)), machine_of(machine))
    with pytest.raises(BadInput, match=r"the constant ramp .* depends on the sizes n, .* requires numbers for them"):
        exported(lowered)


def _file(folder: Path) -> Path:
    """An ONNX file with the open dimensions batch and seq."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    draw = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(draw.standard_normal(dims).astype("float32") / 4, name)
        for name, dims in (("w", (24, 40)), ("v", (40, 24)))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"], axis=1),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", "seq", 24]) for n in "xy")
    model = helper.make_model(helper.make_graph(nodes, "net", [x], [y], weights))
    onnx.save(model, folder / "net.onnx")
    return folder / "net.onnx"


CALLER = r"""
#include <stdio.h>
#include <stdlib.h>
#include "net.h"
int main(int count, char **words)
{
    net_program *program = net_open("net.weights", 1);
    static float x[3 * 20 * 24], y[3 * 20 * 24];
    for (int i = 1; i + 1 < count; i += 2) {
        int64_t batch = atoi(words[i]), seq = atoi(words[i + 1]);
        size_t elements = (size_t)(batch * seq * 24);
        if (fread(x, sizeof *x, elements, stdin) != elements || net_run(program, batch, seq, x, y)) return 1;
        if (fwrite(y, sizeof *y, elements, stdout) != elements) return 2;
    }
    if (net_run(program, 4, 1, x, y) != -3 || net_run(program, 1, 0, x, y) != -3) return 3;
    if (net_run(program, 1, 21, x, y) != -3 || net_run(program, 1, 2, 0, y) != -2) return 4;
    net_close(program);
    return 0;
}
"""


@pytest.mark.needs_compiler
def test_a_range_on_the_command_line_is_one_function(tmp_path: Path) -> None:
    path = _file(tmp_path)
    words = [
        "compile",
        path,
        "--dim",
        "batch=1..3",
        "--dim",
        "seq=2..20:2",
        "-o",
        "net.c",
        "--check",
        "--machine",
        "plain",
    ]
    done = completed(*words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "one function for batch from 1 to 3, seq from 2 to 20 by 2" in done.stdout
    (tmp_path / "caller.c").write_text(CALLER)
    command, *build = done.stdout.split("Compile it: ")[1].strip().split()
    assert command == "cc"
    build = [*compiler(), *build, *STRICT, "caller.c", "-o", "caller"]
    subprocess.run(build, cwd=tmp_path, check=True, timeout=120)
    function = gl.compile(path, dims={"batch": (1, 3), "seq": (2, 20, 2)}, machine="plain")
    draw, sizes = np.random.default_rng(1), [(1, 2), (3, 20), (2, 6), (2, 6), (1, 14)]
    given = [draw.standard_normal((*own, 24)).astype("float32") for own in sizes]
    content = b"".join(array.tobytes() for array in given)
    run = [str(n) for own in sizes for n in own]
    got = subprocess.run(["./caller", *run], input=content, cwd=tmp_path, capture_output=True, check=True, timeout=60)
    want = np.concatenate([function(array).reshape(-1) for array in given])
    np.testing.assert_allclose(np.frombuffer(got.stdout, np.float32), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("compile net.onnx -o net.c --dim seq=5..2", "the range of seq is empty: 5 is greater than 2"),
        ("compile net.onnx -o net.c --dim seq=1..", "a range of the dimension seq, as in --dim seq=1..512"),
        ("compile net.onnx -o net.c --dim seq=..9", "a range of the dimension seq, as in --dim seq=1..512"),
        ("compile net.onnx -o net.c --dim seq=1..two", "a range of the dimension seq, as in --dim seq=1..512"),
        ("compile net.onnx -o net.c --dim seq=1..9:", "a range of the dimension seq, as in --dim seq=1..512"),
        ("compile net.onnx -o net.c --dim seq=1..9:0", "the step of seq"),
        ("compile net.onnx -o net.c --dim seq=-3..9", "a range of the dimension seq"),
        ("compile net.onnx -o net.c --dim seq=1..9 --dim seq=1..9", "one size or one range, got two"),
        ("compile net.onnx -o net.c --dim sec=1..9", "has no open dimension 'sec'; there are batch, seq"),
        ("compile net.onnx -o net.c --dim seq=1..9", "batch"),
        (
            "compile net.onnx -o net.c --dim batch=1 --dim seq=1..9 --target npu:4x4",
            "npu:4x4 requires numbers for the open sizes seq",
        ),
        ("compile net.onnx -o net.c --dim batch=1 --dim seq=1..9 --without fuse-padding", "of fixed sizes"),
        ("compile net.onnx --emit loops --dim batch=1 --dim seq=1..9", "of fixed sizes"),
        ("compile net.onnx --dim batch=1 --dim seq=1..9", "C is written to a file"),
        ("compile mobilenet-v1 -o net.c --dim seq=1..9", "--dim, --outputs and --allow-opaque are for"),
        ("optimize net.onnx --array 4x4 --dim batch=1 --dim seq=1..9", "this command requires a number"),
        ("optimize net.onnx --target mpc:semi2k --dim batch=1 --dim seq=1..9:2", "such as --dim seq=9"),
        ("optimize net.onnx --target npu:4x4 --dim batch=1 --dim seq=1..9", "this command requires a number"),
        ("bench net.onnx --dim batch=1 --dim seq=1..9", "this command requires a number"),
    ],
)
def test_ranges_that_are_refused(tmp_path: Path, words: str, said: str) -> None:
    _file(tmp_path)
    done = completed(*words.split(), folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in " ".join(done.stderr.split())
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]


def _logarithms(n: int) -> Program:
    b = gl.Builder("logarithms")
    return b.finish(compute("log", b.input("x", (n, 8))))


def _gathered(n: int) -> Program:
    b = gl.Builder("gathered")
    return b.finish(layout.gather(b.input("x", (n, 8)), b.input("i", (5,), "int64")))


@pytest.mark.needs_compiler
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_logarithms, "values as those of the function in Python on random inputs of sizes 1, 10, 20"),
        (_gathered, "values not compared: access-gather got an index that is outside of its axis"),
    ],
)
def test_results_that_are_no_numbers_or_none_are_compared_with_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, said: str
) -> None:
    monkeypatch.setattr(written_c, "MOST_SECONDS", -1)
    lowered = lowered_for_c(gl.open_program(make, n=(1, 20)), None, machine_of("native"), False)
    assert said in write([lowered], tmp_path / "net.c")[1]
