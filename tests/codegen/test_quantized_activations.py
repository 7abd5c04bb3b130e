"""Tests of products of integers: activations rounded to int8 by block, with weights of 4 and 8 bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command_line import run
from small_weights import constants, product

import glenside as gl
from glenside.builder.pointwise import add, multiply, sigmoid
from glenside.codegen.lowering.quantized_activations import with_activations
from glenside.fuzzing.compiling import machines
from glenside.ir.errors import BadInput
from glenside.ir.program import Program

pytestmark = pytest.mark.needs_compiler
RANGES = [("uint4", -8, 7), ("uint4", 0, 15), ("uint8", -128, 127), ("uint8", 0, 255), ("uint8", -9, 3)]
"""The dtype in which weights of a range are packed: without a sign, unless an instruction takes signed bytes."""


def _compared(program: Program, function: gl.Function, scale: float = 1) -> tuple[float, float]:
    """Returns the largest differences from the interpreter of the rounded program, and from the one as given."""
    (name,) = program.inputs
    x = (scale * np.random.default_rng(1).standard_normal(tuple(program.tensors[name].dims))).astype(np.float32)
    found = np.asarray(function(x))
    rounded, exact = (
        np.asarray(gl.evaluate([p.term], {**p.constants, name: x})[0])
        for p in (with_activations(program, "int8"), program)
    )
    return tuple(float(np.abs(found - other).max() / np.abs(exact).max()) for other in (rounded, exact))


QUICK = [("native", RANGES[0]), ("native", RANGES[3]), ("generic", RANGES[0])]
CASES = [
    pytest.param(name, *own, marks=[] if (name, own) in QUICK else pytest.mark.slow)
    for name in machines()
    for own in RANGES
    if name != "plain" and (name in ("native", "avx2", "generic") or own is not RANGES[0])
]


@pytest.mark.parametrize(("machine", "dtype", "least", "most"), CASES)
def test_products_of_every_range_of_weights(machine: str, dtype: str, least: int, most: int) -> None:
    program = product(3, 70, 128, 32, least, most, "int16")
    function = gl.compile(program, "none", machine=machine, check=True, activations="int8")
    said = str(function.loops)
    assert any(f"{name}(" in said for name in ("dot4_turned", "dot4_signed", "dot16"))
    packed = "int8" if "dot4_signed(" in said else dtype
    assert constants(function)[packed] == 70 * 128 * int(dtype[4:]) // 8
    rounded, exact = _compared(program, function)
    assert rounded < 2e-6
    assert 1e-4 < exact < 3e-2


SHAPES = [
    pytest.param(rows, *shape, marks=[] if (rows + shape[0]) % 10 == 0 else pytest.mark.slow)
    for rows in (1, 5, 40)
    for shape in [(16, 4096, 16), (19, 360, 24), (65, 72, 8), (33, 384, 384), (257, 96, 12), (300, 64, 64)]
]


@pytest.mark.parametrize(("rows", "columns", "depth", "block"), SHAPES)
def test_other_shapes_and_blocks(rows: int, columns: int, depth: int, block: int) -> None:
    """Columns of no whole vector, packed bytes of one integer, and rows that share a panel of bytes."""
    program = product(rows, columns, depth, block, -8, 7)
    function = gl.compile(program, "none", check=True, activations="int8")
    assert any(f"{name}(" in str(function.loops) for name in ("dot4_turned", "dot4_signed", "dot16"))
    assert _compared(program, function)[0] < 2e-6


@pytest.mark.parametrize("scale", [0, 1e-38, 1e-30, 1e30])
def test_activations_of_any_magnitude(scale: float) -> None:
    program = product(2, 64, 128, 32, -8, 7)
    function = gl.compile(program, "none", activations="int8")
    x = (scale * np.random.default_rng(1).standard_normal((2, 128))).astype(np.float32)
    assert np.isfinite(function(x)).all()
    assert scale or not function(x).any()


def test_an_element_changes_by_at_most_what_the_report_says() -> None:
    program = product(2, 4096, 64, 32, 0, 1)
    rounded = with_activations(program, "int8")
    (remark,) = rounded.signature.remarks
    assert "1 product is rounded to int8" in remark
    bound = 1 / int(remark.partition("1/")[2].split()[0])
    (operand, _) = next(t for t in rounded.info.order if "dot-product" in t.attributes).children[0].children
    x = np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)
    (near,) = gl.evaluate([operand], {**rounded.constants, "x": x})
    blocks = x.reshape(2, 2, 32)
    assert (np.abs(near.reshape(blocks.shape) - blocks) <= (bound + 1e-6) * np.abs(blocks).max(-1, keepdims=True)).all()


@pytest.mark.slow
def test_a_gated_layer_through_the_search() -> None:
    """The search keeps products of integers; products of one input share its rounded copy."""
    rng, b = np.random.default_rng(0), gl.Builder()
    x = b.input("x", (1, 128))
    gate, up = (b.linear(x, b.constant(n, (96, 128), value=rng.standard_normal((96, 128)).astype("f4"))) for n in "gu")
    down = b.constant("d", (128, 96), value=rng.standard_normal((128, 96)).astype("f4"))
    program = b.finish(add(x, b.linear(multiply(multiply(gate, sigmoid(gate)), up), down)))
    small = gl.quantize_weights(program, "int4", 32)
    function = gl.compile(small, activations="int8", check=True)
    assert {d for d in constants(function) if "int" in d} == {"uint4"}
    assert sum(".sums" in b.name for b in function.loops.buffers) == 2
    assert _compared(small, function)[0] < 1e-5
    assert "3 products are rounded to int8" in str(function.report)


def test_command_line_rounds_activations(tmp_path: Path) -> None:
    gl.save(product(2, 64, 128, 32, -8, 7), tmp_path / "p.glenside")
    given = ("compile", tmp_path / "p.glenside", "--activations", "int8", "-o", tmp_path / "net.c")
    assert run(*given) == 0
    text = (tmp_path / "net.c").read_text()
    assert "vpdpbusd" in text or "vpmaddubsw" in text


def test_bad_activations_are_refused() -> None:
    program = product(2, 64, 128, 32, -8, 7)
    with pytest.raises(BadInput, match="activations are float32 or int8, got 'int4'"):
        gl.compile(program, activations="int4")
    b = gl.Builder()
    plain = b.finish(b.linear(b.input("x", (1, 64)), b.constant("w", (64, 64), value=np.ones((64, 64), "f4"))))
    with pytest.raises(BadInput, match=r"has none: gl\.quantize_weights rounds weights"):
        gl.compile(plain, activations="int8")
    with pytest.raises(BadInput, match="at least 4,096 elements and 16 columns, in blocks of a multiple of 4 steps"):
        gl.compile(product(2, 64, 126, 9, -8, 7), activations="int8")
