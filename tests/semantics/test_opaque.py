"""Tests black boxes: the same function everywhere, in every arithmetic; nothing runs, folds or loses one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from command_line import run

import glenside as gl
from glenside.builder import Builder
from glenside.check import EXACT, check, check_floating
from glenside.ir.dtypes import DTYPES, REALS
from glenside.ir.errors import BadInput, GlensideError, TypeMismatch
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.report.text import report_html, sentences
from glenside.semantics.interpreter import evaluate
from glenside.semantics.native import Arithmetic, Native
from glenside.semantics.ordered_field import OrderedField
from glenside.semantics.prime_field import PRIMES, PrimeField

add, reshape = Builder.add, Builder.reshape


def box(*operands: Term, key: str = "mystery", dims: tuple[int, ...] = (2, 3), dtype: str = "float32") -> Term:
    return build("opaque", key, ((), dims), dtype, *operands)


def between() -> Program:
    """Returns a product, a black box, a product."""
    b = Builder("between")
    x, w, v = b.input("x", (5, 9)), b.constant("w", (9, 6)), b.constant("v", (4, 7))
    inner = box(b.matmul(x, w, name="before"), v, key="domain/Été/3#0 abc", dims=(5, 4))
    return b.finish(b.matmul(inner, v, name="after"))


@pytest.mark.parametrize("arithmetic", [Native(), *map(PrimeField, PRIMES)], ids=["native", "p", "q"])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_it_is_a_function_of_the_key_and_the_values(arithmetic: Arithmetic, dtype: str) -> None:
    b = Builder()
    x, y = b.input("x", (2, 3), dtype), b.input("y", (2, 3), dtype)
    values = {"x": np.arange(-2, 4).reshape(2, 3).astype(dtype), "y": np.ones((2, 3), dtype)}
    terms = [
        box(add(x, y), dims=(40,)),
        box(add(y, x), dims=(40,)),
        box(add(add(x, y), b.full((2, 3), 0, dtype)), dims=(40,)),
        box(x, dims=(40,)),
        box(add(x, y), key="other", dims=(40,)),
        box(add(x, y), y, dims=(40,)),
        box(reshape(add(x, y), (3, 2)), dims=(40,)),
    ]
    same, *others = evaluate(terms, values, arithmetic)
    equal = [bool((same == other).all()) for other in others]
    assert equal == [True, True, False, False, False, False]
    assert 0 <= np.mean(same == others[2]) < 0.6


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_has_values_of_its_own(dtype: str) -> None:
    term = box(dims=(500,), dtype=dtype)
    for arithmetic, kept in ((Native(), dtype), (PrimeField(), "float32" if dtype in REALS else dtype)):
        (value,) = evaluate([term], {}, arithmetic)
        assert value.dtype.name == kept
        assert len(np.unique(value)) > 1
        assert np.isfinite(value.astype(float)).all()


@pytest.mark.parametrize(
    "arithmetic", [Native(), OrderedField(PrimeField()), PrimeField()], ids=["native", "ordered", "p"]
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_one_of_each_element_is_a_function_of_it_by_itself(arithmetic: Arithmetic, dtype: str) -> None:
    b = Builder()
    x = b.input("x", (4, 60), "float32")
    values = {"x": np.random.default_rng(0).integers(-99, 99, (4, 60)).astype(np.float32)}

    def of_each(operand: Term, key: str = "f") -> Term:
        return build("opaque-pointwise", key, operand, dtype, (), ())

    terms = [of_each(x), b.transpose(of_each(b.transpose(x, (1, 0))), (1, 0)), of_each(x, "g"), of_each(add(x, x))]
    same, moved, *others = evaluate(terms, values, arithmetic)
    assert (same == moved).all()
    assert len(np.unique(same)) > 1
    assert all(np.mean(same == other) < 0.7 for other in others)


@pytest.mark.parametrize(
    "arithmetic", [Native(), OrderedField(PrimeField()), PrimeField()], ids=["native", "ordered", "p"]
)
def test_one_that_asks_for_places_differs_between_those_alone(arithmetic: Arithmetic) -> None:
    x = build("full", (4, 6, 5), 2, "float32")
    (value,) = evaluate([build("opaque-pointwise", "f", x, "int64", (4, 6, 5), (2, 0))], {}, arithmetic)
    assert (value == value[:, :1]).all()
    assert len(np.unique(value)) > 10
    with pytest.raises(TypeMismatch, match="parts of 120 elements"):
        build("opaque-pointwise", "f", x, "int64", (4, 6), (0,))
    with pytest.raises(TypeMismatch, match="axes of 2 parts, each once"):
        build("opaque-pointwise", "f", x, "int64", (4, 30), (0, 2))


def test_one_of_each_element_is_in_no_onnx_file(tmp_path: Path) -> None:
    program = Program(build("opaque-pointwise", "gelu", Builder().input("x", (2, 3)), "float32", (), ()))
    assert gl.parse(str(program)).term is program.term
    with pytest.raises(BadInput, match="black boxes that were imported from ONNX, got gelu"):
        gl.save(program, tmp_path / "boxed.onnx")


def test_zeros_of_both_signs_are_equal_operands() -> None:
    x = Builder().input("x", (2,))
    results = [evaluate([box(x, dims=(20,))], {"x": np.array([zero, 1], np.float32)})[0] for zero in (0.0, -0.0)]
    assert (results[0] == results[1]).all()


def test_products_around_a_black_box_are_mapped_and_checked() -> None:
    program = between()
    result = gl.optimize(program, gl.SystolicArray(4, 4))
    assert [(row.mapped, row.checked) for row in result.report.layers] == [(True, "exact")] * 2
    assert result.report.checked == "exact"
    assert result.report.remarks == ["no price for the black box domain/Été/3#0"]
    assert result.report.black_boxes == {"domain/Été/3": 1}
    assert json.loads(json.dumps(result.report.as_dict()))["black_boxes"] == {"domain/Été/3": 1}
    known = "Every product whose meaning is known is mapped onto the machine."
    box = "1 black box is neither mapped nor counted, as nobody here knows the meaning: domain/Été/3."
    said = sentences(result.report)
    assert said[said.index(known) + 1] == box
    assert box in report_html(result.report)
    assert "2 of 2 mapped, 1 black box not counted" in report_html(result.report)
    report = check(program, result.program)
    assert report.result == EXACT
    assert "pseudo-random functions stand for domain/Été/3#0" in report.how
    assert gl.parse(str(program)).term is program.term


def test_a_black_box_of_something_else_is_found_unequal() -> None:
    b = Builder()
    x, y = b.input("x", (2, 3)), b.input("y", (2, 3))
    report = check(Program(add(box(x), y)), Program(add(box(y), y)))
    assert report.result.startswith("differs in")


def test_whole_numbers_of_a_black_box_can_serve_as_indices() -> None:
    b = Builder()
    table, x = b.input("table", (3, 4)), b.input("x", (2, 3))
    program = Program(Builder.gather(table, box(x, dims=(50,), dtype="int64")))
    assert check(program, program).result == EXACT
    integers = Program(Builder.gather(b.input("t", (3,), "int8"), box(dims=(50,), dtype="int32")))
    assert check(integers, integers).result == EXACT


def test_it_is_not_folded_and_costs_what_depends_on_data_costs() -> None:
    b = Builder()
    weights = b.constant("w", (4, 6), value=np.ones((4, 6), np.float32))
    made = box(weights, dims=(6, 8))
    program = b.finish(b.matmul(b.input("x", (3, 6)), made, name="fc"))
    folded = gl.fold(gl.optimize(program, gl.SystolicArray(4, 4)).program)
    assert "(opaque " in str(folded)
    assert list(folded.constants_declared) == ["w"]


def test_it_is_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "boxed.glenside"
    path.write_text(str(between()))
    np.save(tmp_path / "x.npy", np.zeros((5, 9), np.float32))
    assert run("run", path, "--input", f"x={tmp_path / 'x.npy'}") == 2
    assert "got the black box domain/Été/3#0" in capsys.readouterr().err
    with pytest.raises(BadInput, match=r"in floating point requires .* the black box domain/Été/3#0$"):
        check_floating(between(), between())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(opaque name (access-shape (shape) (shape 2)) int8)", "1:9: opaque requires key to be a text in quotes"),
        ('(opaque "name" (shape 2) int8)', "1:16: opaque requires type to be an access shape"),
        ('(opaque "name" (access-shape (shape) (shape 2)) i8)', "1:49: opaque requires dtype to be a dtype"),
        ('(opaque "name" (access-shape (shape) (shape 2)))', "opaque requires the arguments key type dtype operands"),
    ],
)
def test_texts_that_are_wrong(text: str, message: str) -> None:
    with pytest.raises(GlensideError, match=re.escape(message)):
        gl.parse(text)
