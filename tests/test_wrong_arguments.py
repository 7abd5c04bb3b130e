"""Tests that wrong arguments of public functions are refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import glenside as gl
from glenside.ir.errors import BadInput, GlensideError

B: Any = gl.Builder("b")
X = B.input("x", (2,))
OPERANDS = "operands are terms of a builder b, such as b.full((), 2) for the number 2"
SMALL = gl.parse("(access-tensor x)", shapes={"x": (2,)})
PATH: Any = "net.onnx"
TAKE_PROGRAMS: list[tuple[Callable[[], Any], str]] = [
    (lambda: gl.gradient(PATH, "x"), "differentiated"),
    (lambda: gl.value_and_gradient(PATH, "x"), "differentiated"),
    (lambda: gl.jvp(PATH, "x"), "differentiated"),
    (lambda: gl.training_step(PATH, "squared-error", gl.SGD("0.1")), "trained"),
    (lambda: gl.train(PATH, {}, loss="squared-error"), "trained"),
    (lambda: gl.check_gradient(SMALL, PATH, "x"), "checked"),
    (lambda: gl.check_onnxruntime(SMALL, PATH), "checked"),
    (lambda: gl.fold(PATH), "folded"),
    (lambda: gl.export_jax(PATH), "exported"),
    (lambda: gl.export_onnx(PATH), "exported"),
]


@pytest.mark.parametrize(("name", "hint"), [("net.pt", "gl.from_torch"), ("net.pth", ".pt2"), ("net.h5", "net.h5")])
def test_files_of_others_name_what_is_read(tmp_path: Path, name: str, hint: str) -> None:
    (tmp_path / name).write_bytes(b"PK\x03\x04\0\xff")
    with pytest.raises(BadInput, match=rf"a program is read from a .glenside, .*{hint}"):
        gl.load(tmp_path / name)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gl.fuzz(minutes="a"), "minutes must be a number above 0, got 'a'"),
        (lambda: gl.fuzz(jobs=None), "jobs must be from 1 to 256, got None"),
        (lambda: gl.fuzz(cases=1.5), "cases must be at least 1, got 1.5"),
        (lambda: gl.save(None, "x.glenside"), "save takes a program and a path, got NoneType as the program"),
        *((call, f"only a program, such as gl.load returns, can be {use}, got str") for call, use in TAKE_PROGRAMS),
        (lambda: gl.evaluate(SMALL, {}), "evaluate takes a list of terms, such as [program.term], got Program"),
        (lambda: gl.parse(None), "parse takes a text, got NoneType"),
        (lambda: gl.gradient(SMALL, [3]), "a gradient requires names of tensors, got [3]"),
        (
            lambda: gl.training_step(SMALL, "squared-error", "sgd"),
            "training requires an optimizer such as gl.Adam('0.001'), got 'sgd'",
        ),
        (
            lambda: gl.compile(SMALL, "none", without="fuse-padding"),
            "without= is a list of passes, such as ['fuse-padding']",
        ),
        (lambda: gl.SystolicArray(1.5, 4), "systolic-array requires sizes from 1 to 4096, got 1.5x4"),
        (lambda: gl.SystolicArray("a", 4), "systolic-array requires sizes from 1 to 4096, got ax4"),
        (lambda: gl.CPU(True), "a memory budget is at least 1 byte, got True"),
        (
            lambda: gl.open_program(SMALL, n=(1, 5)),
            "open sizes require a function that builds the program of given sizes, got "
            "<program program: 1 input, 0 constants, 0 layers -> ()(2) float32>",
        ),
        (
            lambda: gl.open_program(lambda n: n, n=(1, 5)).at({"n": 2}),
            "the function of open sizes must return a program, got int",
        ),
        (
            lambda: gl.load("x.gguf", cache="int4"),
            "a cache is of float32, bfloat16, float16, int8, got 'int4'; did you mean int8?",
        ),
        (
            lambda: gl.load("x.gguf", dims={"rows": 1.5}),
            "the size rows is a whole number from 0 to 9223372036854775807, got 1.5",
        ),
        (lambda: B.add(X, 1), f"{OPERANDS}, got 1"),
        (lambda: B.relu(2.5), f"{OPERANDS}, got 2.5"),
        (lambda: B.finish([X]), f"{OPERANDS}, got [(access-tensor x)]"),
        (lambda: B.input("y", (1.5, 2)), "access-tensor requires sizes of at least 0, got (1.5 2)"),
        (lambda: gl.load("x.onnx", dims="batch=1"), "dims= is a dict by name, got 'batch=1'"),
        (lambda: gl.load(3), "the path of a file must be a text or a Path, got 3"),
    ],
)
def test_wrong_arguments_are_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(GlensideError) as error:
        call()
    assert str(error.value) == message
