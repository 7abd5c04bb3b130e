"""Compiles unusual programs: tuples, deep and doubling terms, long lists, unusual numbers, empty tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import glenside as gl
from glenside.builder import pointwise
from glenside.codegen.runtime.compile_and_load import compiler
from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.ir.term import Term, build

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def _x() -> Term:
    return gl.Builder("p").input("x", (2, 3))


def _run(term: Term, *arrays: np.ndarray) -> Any:
    return gl.compile(Program(term), "none")(*arrays)


@pytest.mark.needs_compiler
def test_one_result_twice_and_tuples_in_tuples() -> None:
    x = _x()
    positive = pointwise.relu(x)
    first, second = _run(build("construct-tuple", positive, positive), X)
    assert (first == np.maximum(X, 0)).all()
    assert (second == first).all()
    (inner, given), last = _run(build("construct-tuple", build("construct-tuple", positive, x), positive), X)
    assert (inner == last).all()
    assert (given == X).all()
    pair = build("construct-tuple", pointwise.compute("negative", x), x)
    assert (_run(pointwise.relu(build("tuple-get-item", pair, 0)), X) == np.maximum(-X, 0)).all()


def _deep(x: Term) -> Term:
    for _ in range(2000):
        x = pointwise.add(x, pointwise.filled(x, 1))
    return x


def _doubled(x: Term) -> Term:
    for _ in range(12):
        x = build("access-concatenate", x, build("access-flip", x, 0), 0)
    return x


@pytest.mark.needs_compiler
@pytest.mark.parametrize("make", [_deep, _doubled], ids=["deep", "doubled"])
def test_no_formula_grows_with_the_program(make: Callable[[Term], Term]) -> None:
    compiled = gl.compile(Program(make(_x())), "none")
    assert (compiled(X) == gl.evaluate([make(_x())], {"x": X})[0]).all()
    assert max(map(len, compiled.source.splitlines())) < 10_000


@pytest.mark.needs_compiler
def test_many_numbers_and_many_operands() -> None:
    b = gl.Builder("p")
    listed = build("numbers", (300,), " ".join(map(str, range(300))), "float32")
    assert (_run(pointwise.add(listed, b.input("n", (300,))), np.ones(300, np.float32)) == np.arange(1, 301)).all()
    folded = build("compute", "elementwise-add", b.input("w", (3000, 4)))
    assert (_run(folded, np.ones((3000, 4), np.float32)) == 3000).all()


@pytest.mark.needs_compiler
def test_odd_numbers() -> None:
    b = gl.Builder("p")
    quarter = build("full", (3,), "-1/4", "float64")
    d = b.input("d", (3,), "float64")
    assert (_run(pointwise.add(d, pointwise.compute("negative", quarter)), np.zeros(3)) == 0.25).all()
    far = gl.compile(Program(b.gather(_x(), b.input("i", (1,), "uint64"))), "none")
    with pytest.raises(BadInput, match="requires indices from -2 to 1"):
        far(X, np.array([2**64 - 1], np.uint64))


@pytest.mark.needs_compiler
def test_programs_of_no_elements() -> None:
    b = gl.Builder("p")
    assert _run(pointwise.relu(b.input("e", (0, 3))), np.zeros((0, 3), np.float32)).shape == (0, 3)
    order = build("compute", "(argsort ascending)", build("access", b.input("s", (3, 0)), 1))
    assert _run(order, np.zeros((3, 0), np.float32)).shape == (3, 0)


@pytest.mark.needs_compiler
def test_a_compiler_with_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", f"{compiler()[0]} -O1")
    assert (_run(pointwise.relu(_x()), X) == np.maximum(X, 0)).all()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ('"', "CC requires a command, got '\"'"),
        ("false", "false cannot list its predefined macros: it ended with status 1"),
        ("/nowhere/cc -O1", "/nowhere/cc -O1 does not run: No such file or directory"),
        ("/tmp", "/tmp does not run: Permission denied"),
        ("''", "does not run"),
        ("cc -fsanitize=address", "compiles with a sanitizer, which this process runs without"),
    ],
)
def test_what_is_no_compiler(monkeypatch: pytest.MonkeyPatch, command: str, said: str) -> None:
    monkeypatch.setenv("CC", command)
    with pytest.raises(BadInput) as caught:
        gl.compile(Program(pointwise.relu(_x())), "none")
    assert said in str(caught.value)
