"""Outlining: what has no layout of its own is one node while layouts are searched for, and all of it comes back."""

from __future__ import annotations

from collections import Counter

import pytest
from fuzzing import Fuzzing
from random_terms import drawn

import glenside as gl
from glenside.builder import Builder
from glenside.builder.layout import broadcast, reshape, transpose
from glenside.builder.pointwise import add, cast, compute, divide, filled, gelu, multiply, relu, sigmoid
from glenside.check import EXACT, check
from glenside.ir.program import Program
from glenside.ir.term import Term, build, postorder
from glenside.passes.outlining import outlined


def _count(program: Program) -> Counter[str]:
    return Counter(
        str(t.attributes[0]) if t.operator.name == "compute" else t.operator.name for t in postorder(program.term)
    )


def _quantized(b: Builder, x: Term, name: str) -> Term:
    """x, rounded to multiples of a scale, as QuantizeLinear and DequantizeLinear do."""
    scale, zero = broadcast(b.constant(f"{name}.scale", ()), x.access.dims), b.constant(f"{name}.zero", (), "int8")
    rounded = add(compute("round", divide(x, scale)), cast(broadcast(zero, x.access.dims), "float32"))
    code = cast(compute("(clip -128 127)", rounded), "int8")
    return multiply(cast(code, "float32"), scale)


def _equal(program: Program) -> Program:
    """The outlined program, which is the program again when it is inlined."""
    found = outlined(program)
    again = found.inlined(found.program)
    assert list(again.layers) == list(program.layers)
    assert check(program, again).result.startswith((EXACT, "equal"))
    return found.program


def test_a_quantization_is_one_node() -> None:
    b = Builder()
    x, w = b.input("x", (5, 6)), b.constant("w", (6, 7))
    program = b.finish(_quantized(b, b.matmul(_quantized(b, x, "x"), _quantized(b, w, "w")), "y"))
    counts = _count(_equal(program))
    # The scale of the product stays: it is folded into the weights.
    assert (counts["opaque-pointwise"], counts["elementwise-div"], counts["access-tensor"]) == (2, 1, 3)
    assert counts["round"] == counts["cast"] == 0


def test_what_reads_a_tensor_twice_is_one_function_of_it() -> None:
    b = Builder()
    x = b.matmul(b.input("x", (5, 6)), b.constant("w", (6, 7)))
    program = b.finish(b.matmul(gelu(multiply(x, sigmoid(x))), b.constant("v", (7, 4))))
    counts = _count(_equal(program))
    assert counts["opaque-pointwise"] == 1
    assert not counts.keys() & {"sigmoid", "erf", "elementwise-mul", "elementwise-add", "elementwise-div"}


def test_what_others_read_is_computed_once() -> None:
    b = Builder()
    x, y = b.input("x", (2, 3, 4)), b.input("y", (2, 3, 4))
    inner = sigmoid(gelu(x))
    outer = relu(multiply(inner, filled(x, 3)))
    program = b.finish(add(add(transpose(inner, (0, 2, 1)), transpose(outer, (0, 2, 1))), transpose(y, (0, 2, 1))))
    found = _equal(program)
    boxes = [t for t in postorder(found.term) if t.operator.name == "opaque-pointwise"]
    assert len(boxes) == 2
    assert boxes[1].children == (boxes[0],)


def test_one_step_stays_itself_and_so_does_what_reads_two_tensors() -> None:
    b = Builder()
    x, y = b.input("x", (5, 6)), b.input("y", (5, 6))
    program = b.finish(relu(add(transpose(relu(x), (1, 0)), transpose(y, (1, 0)))))
    assert outlined(program).program.term is program.term


def test_a_function_is_put_back_under_any_dims() -> None:
    b = Builder()
    x = b.input("x", (2, 3, 4))
    program = b.finish(reshape(gelu(x), (6, 4)))
    found = outlined(program)
    (box,) = (t for t in postorder(found.program.term) if t.operator.name == "opaque-pointwise")
    key, dtype = box.attributes
    moved = found.inlined(Program(build("access", build("opaque-pointwise", key, reshape(x, (6, 4)), dtype), 1)))
    assert moved.term.access.split == 1
    assert check(Program(build("access", program.term, 1)), moved).result == EXACT


def test_a_black_box_of_the_program_stays_one() -> None:
    b = Builder()
    x = b.input("x", (5, 6))
    own = transpose(build("opaque-pointwise", "relu-sigmoid 1", x, "float32"), (1, 0))
    program = b.finish(add(own, transpose(sigmoid(relu(x)), (1, 0))))
    found = outlined(program)
    assert len(found.functions) == 1
    assert found.inlined(found.program).term is program.term


@pytest.mark.parametrize("layout", ["nhwc", "nchw", "nchw4c"])
def test_layouts_of_what_is_outlined_are_found(layout: str) -> None:
    """A convolution, its quantization and a gelu in one layout: no copy between them."""
    b = Builder()
    x = b.input("x", (1, 4, 6, 5))
    y = gelu(_quantized(b, b.conv(x, b.constant("w", (8, 4, 3, 3)), padding=1), "y"))
    program = b.finish(b.conv(y, b.constant("v", (4, 8, 3, 3)), padding=1))
    result = gl.optimize(program, gl.ConvolutionUnit(layout))
    assert result.check().result.startswith((EXACT, "equal"))
    assert result.report.total["copies inside"] == 0
    assert "opaque" not in str(result.program)


@pytest.mark.slow
def test_random_programs_come_back_equal(fuzzing: Fuzzing) -> None:
    for seed in fuzzing.seeds(40):
        for term in drawn(seed, 20):
            program = Program(term)
            found = outlined(program)
            again = found.inlined(found.program)
            assert check(program, again, layers=False).result.startswith((EXACT, "equal")), str(program)
