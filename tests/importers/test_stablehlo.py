"""Reads StableHLO text that JAX wrote (`stablehlo/write.py`), whole and damaged; needs no JAX."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import glenside as gl
from glenside.ir.errors import BadInput
from tests.oracles.command_line import completed

SAMPLES = Path(__file__).parent / "stablehlo"
NAMES = ("mlp", "convolutions", "attention", "lstm")


@pytest.mark.parametrize("name", NAMES)
def test_samples_compute_what_jax_did(name: str) -> None:
    program = gl.load(SAMPLES / f"{name}.mlir")
    with np.load(SAMPLES / f"{name}.npz") as arrays:
        given = [arrays[f"input_{n}"] for n in range(len(program.signature.inputs))]
        wanted = [arrays[f"output_{n}"] for n in range(len(program.signature.outputs))]
    for got, want in zip(gl.compile(program)(*given), wanted, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_names_are_those_of_the_function_and_the_file() -> None:
    program = gl.load(SAMPLES / "mlp.mlir")
    assert program.name == "mlp"
    assert [own.name for own in program.signature.inputs][:3] == ["params.0.bias", "params.0.kernel", "params.1.bias"]
    assert program.signature.outputs == ("logits", "probabilities")
    assert [own.name for own in gl.load(SAMPLES / "lstm.mlir").signature.inputs] == ["arg0", "arg1", "arg2", "arg3"]


T = "tensor<2x3xf32>"
X = np.array([[1, -2, 3], [4, 5, -6]], np.float32)


def _text(body: str, result: str = T, function: str = "") -> str:
    """Returns a module whose main takes a tensor and returns %0."""
    inside = f"func.func public @main(%arg0: {T}) -> {result} {{\n{body}\nreturn %0 : {result}\n}}\n{function}"
    return f"module @jit_f {{\n{inside}\n}}\n"


def _reduced(kind: str, init: str) -> str:
    types = f"({T}, tensor<f32>) -> tensor<2xf32>"
    how = f"applies stablehlo.{kind} across dimensions = [1] : {types}"
    constant = f"%c = stablehlo.constant dense<{init}> : tensor<f32>"
    return _text(f"{constant}\n%0 = stablehlo.reduce(%arg0 init: %c) {how}", "tensor<2xf32>")


def _branch(index: int) -> str:
    """Returns a choice by an index that depends on data: it is the first element, 1, times a number."""
    return _text(
        f"""%c = stablehlo.constant dense<{index}> : tensor<i32>
%i = stablehlo.convert %arg0 : ({T}) -> tensor<2x3xi32>
%s = stablehlo.slice %i [0:1, 0:1] : (tensor<2x3xi32>) -> tensor<1x1xi32>
%r = stablehlo.reshape %s : (tensor<1x1xi32>) -> tensor<i32>
%m = stablehlo.multiply %r, %c : tensor<i32>
%0 = "stablehlo.case"(%m) ({{
  stablehlo.return %arg0 : {T}
}}, {{
  %4 = stablehlo.negate %arg0 : {T}
  stablehlo.return %4 : {T}
}}) : (tensor<i32>) -> {T}"""
    )


def _constant(value: str, of: str, after: str = "") -> str:
    return _text(f"%0 = stablehlo.constant {value} : {of}", of) + after


_BLOB = '{-# dialect_resources: { builtin: { r: "0x0400000007000000" } } #-}'
_UNREAD = "%1 = stablehlo.fft %arg0, type = FFT, length = [3]"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (_reduced("add", "1.5"), X.sum(1) + 1.5),
        (_reduced("maximum", "4.0"), [4, 5]),
        (_reduced("maximum", "0xFF800000"), [3, 5]),
        (_branch(0), X),
        (_branch(1), -X),
        (_branch(-7), -X),
        (_constant('dense<"0x0000803F000000400000404000008040">', "tensor<4xf32>"), [1, 2, 3, 4]),
        (_constant("dense<[[1, -2], [3, 4]]>", "tensor<2x2xi8>"), [[1, -2], [3, 4]]),
        (_constant("dense<>", "tensor<0x2xi8>"), np.zeros((0, 2))),
        (_constant('dense<"0x05">', "tensor<4xi1>"), [1, 0, 1, 0]),
        (_constant("dense_resource<r>", "tensor<1xi32>", _BLOB), [7]),
        (_text(f"%0 = stablehlo.negate %arg0 : {T} // reads nothing of:\n{_UNREAD} : {T}"), -X),
    ],
)
def test_text_means_what_the_specification_says(text: str, want: object) -> None:
    program = gl.from_stablehlo(text)
    (found,) = gl.evaluate([program.term], {**program.constants, "arg0": X})
    np.testing.assert_array_equal(found, np.asarray(want))


_IDENTITY = _text(f"%0 = stablehlo.add %arg0, %arg0 : {T}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (_text(f"%0 = stablehlo.fft %arg0, type = FFT, length = [3] : {T}"), r"stablehlo.fft \(line 3\): has no mean"),
        (_text(f"%0 = stablehlo.custom_call @lapack_svd(%arg0) : ({T}) -> {T}"), "calls lapack_svd, which has no"),
        (_text(f"%0 = call @g(%arg0) : ({T}) -> {T}"), r"line 3\): calls @g, which the text does not have"),
        (_text(f"%0 = call @main(%arg0) : ({T}) -> {T}"), "calls itself"),
        (_text(f"%0 = stablehlo.add %arg0, %1 : {T}"), r"line 3\): reads %1, which nothing before it defines"),
        (_text("%0 = stablehlo.add %arg0, %arg0 : tensor<3x2xf32>"), r"line 3\): requires a result of"),
        (_text(f"%0 = stablehlo.add %arg0 : {T}"), "other operands or attributes than JAX writes"),
        (_constant("dense<[1.0, 2.0]>", T), "line 3: a constant of 6 elements has 2"),
        (_constant("dense<300>", "tensor<2xi8>"), "line 3: a constant of int8 has an element that is none"),
        (_constant("dense_resource<__elided__>", T), "line 3: the text leaves out the values"),
        (_reduced("power", "1.0"), "reduces by power"),
        (_IDENTITY.replace("2x3", "?x3"), r"line 2: a tensor of type tensor<\?x3xf32>"),
        (_IDENTITY.replace("f32", "complex<f32>"), "its dtype is not supported"),
        ("func.func @main() {}", "line 1: expected module, got func.func"),
        ("module { }", "has no function @main"),
        ("module attributes {a = " + "[" * 5000, "brackets inside of brackets"),
        ("", "expected module"),
        ("\x00\x01", "is no part of StableHLO"),
    ],
)
def test_what_has_no_meaning_is_refused_with_its_line(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        gl.from_stablehlo(text)


def _refusal(text: str) -> str:
    """Returns why a text is refused, or "": some characters change nothing, such as those of a location."""
    try:
        gl.from_stablehlo(text)
    except BadInput as error:
        return str(error)
    return ""


def test_files_cut_short_and_damaged_are_refused_in_one_sentence() -> None:
    draw = random.Random(0)
    texts = [(SAMPLES / f"{name}.mlir").read_text() for name in NAMES]
    found = []
    for _ in range(60):
        text = draw.choice(texts)
        place = draw.randrange(len(text))
        found.append(_refusal(draw.choice((text[:place], text[:place] + text[place + draw.randrange(1, 20) :]))))
    assert sum(map(bool, found)) > 30
    assert not [words for words in found if "\n" in words or "Error" in words]


def test_the_command_line_refuses_a_file_that_is_cut_with_status_2(tmp_path: Path) -> None:
    path = tmp_path / "cut.mlir"
    path.write_text((SAMPLES / "mlp.mlir").read_text()[:3000])
    found = completed("check", path, folder=tmp_path)
    assert found.returncode == 2
    assert "cut.mlir: line " in found.stderr
    path.write_bytes(b"ML\xefR\x00")
    assert "is no text" in completed("check", path, folder=tmp_path).stderr
    with pytest.raises(BadInput, match="is only read"):
        gl.save(gl.load(SAMPLES / "mlp.mlir"), tmp_path / "out.mlir")
