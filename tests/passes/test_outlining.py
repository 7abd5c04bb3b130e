"""Tests outlining: terms without a layout of their own become one node in the layout search, and are restored
afterwards.
"""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import pytest
from fuzzing import Fuzzing
from random_terms import drawn

import glenside as gl
from glenside.builder import Builder
from glenside.builder.layout import broadcast, reshape, transpose
from glenside.builder.pointwise import add, cast, compute, divide, filled, gelu, multiply, relu, sigmoid, subtract
from glenside.check import EXACT, check
from glenside.ir.program import Program
from glenside.ir.rearrangement import canonical_axes
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
    """Returns the outlined program, which is the program again when it is inlined."""
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


def _scaled(b: Builder, x: Term, name: str, axis: int = 1) -> Term:
    """x, scaled and shifted by a constant for each place along an axis."""
    dims = [1] * x.access.rank
    dims[axis] = x.access.dims[axis]
    return add(multiply(x, b.constant(f"{name}.scale", dims)), b.constant(f"{name}.shift", dims))


def test_what_differs_between_channels_is_one_node_without_its_constants() -> None:
    b = Builder()
    x = b.input("x", (2, 3, 4, 5))
    program = b.finish(relu(_scaled(b, x, "norm")))
    found = _equal(program)
    assert found.term.operator.name == "opaque-pointwise"
    assert found.term.attributes[2:] == ((2, 3, 20), (1,))
    assert list(found.tensors) == ["x"]


@pytest.mark.parametrize("shape", [(1, 4), (3, 1), (3, 4), (1, 1), (2, 3, 1)])
def test_constants_of_any_axes_are_put_back_in_any_order(shape: tuple[int, ...]) -> None:
    b = Builder()
    x, c, z = b.input("x", (2, 3, 4)), b.constant("c", shape), b.constant("z", (4,))
    program = b.finish(subtract(multiply(c, x), z))
    found = outlined(program)
    key, dtype, *_ = found.program.term.attributes
    assert check(program, found.inlined(found.program)).result == EXACT
    turned, moved = transpose(x, (1, 2, 0)), (1, 2, 0)
    parts, after = canonical_axes(turned.access.dims, [moved.index(a) for a in _axes_of(shape, (4,))])
    again = build("opaque-pointwise", key, reshape(turned, (6, 4)), dtype, parts, after)
    result = transpose(reshape(again, (3, 4, 2)), (2, 0, 1))
    assert check(program, found.inlined(Program(result))).result == EXACT


def _axes_of(*shapes: tuple[int, ...]) -> list[int]:
    """Returns the axes of three along which constants of these shapes differ."""
    return sorted({3 - len(shape) + i for shape in shapes for i, n in enumerate(shape) if n != 1})


def test_scales_and_shifts_of_a_product_are_one_of_each() -> None:
    b = Builder()
    x = b.matmul(b.input("x", (5, 6)), b.constant("w", (6, 7)))
    y = _scaled(b, _scaled(b, add(x, b.constant("bias", (7,))), "norm"), "scale")
    found = _equal(b.finish(relu(divide(y, filled(y, 2)))))
    kinds = [str(t.attributes[0]) for t in postorder(found.term) if t.operator.name == "compute"]
    assert kinds == ["dot-product", "elementwise-mul"]


def _normalized(b: Builder, x: Term, split: int) -> Term:
    """x, each item after `split` axes with mean 0 and variance 1, in as many steps as an old export has."""
    ones = (*x.access.dims[:split], *(1,) * (x.access.rank - split))

    def mean(y: Term) -> Term:
        return broadcast(reshape(build("compute", "reduce-mean", build("access", y, split)), ones), x.access.dims)

    centered = subtract(x, mean(x))
    spread = mean(multiply(centered, centered))
    y = divide(centered, compute("sqrt", add(spread, filled(spread, "0.001"))))
    sizes = x.access.dims[split:]
    return add(multiply(y, b.constant("norm.scale", sizes)), b.constant("norm.shift", sizes))


@pytest.mark.parametrize("split", [1, 2])
def test_a_normalization_is_one_node_of_its_items(split: int) -> None:
    b = Builder()
    program = b.finish(relu(_normalized(b, add(b.input("x", (2, 3, 4)), b.input("y", (2, 3, 4))), split)))
    found = _equal(program)
    kinds = _count(found)
    assert (kinds["opaque-items"], kinds["reduce-mean"], kinds["opaque-pointwise"]) == (1, 0, 0)
    assert list(found.tensors) == ["x", "y"]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_items_are_put_back_wherever_they_lie(order: tuple[int, ...]) -> None:
    b = Builder()
    x = b.input("x", (2, 3, 4))
    program = b.finish(_normalized(b, x, 1))
    found = outlined(program)
    key, dtype, *_ = found.program.term.attributes
    parts, axes = canonical_axes([x.access.dims[axis] for axis in order], [order.index(1), order.index(2)])
    again = build("opaque-items", key, transpose(x, order), dtype, parts, axes)
    back = transpose(again, sorted(range(3), key=order.__getitem__))
    inlined = found.inlined(Program(back))
    assert check(program, inlined).result.startswith((EXACT, "equal"))
    varies = [t for t in postorder(inlined.term) if t.operator.name == "access-transpose" and Program(t).inputs]
    assert len(varies) <= 2  # there and back: reductions are windows where their items do not lie last


def test_a_softmax_that_is_spelled_out_is_one_node() -> None:
    b = Builder()
    x = b.input("x", (2, 3, 4))
    highest = reshape(build("compute", "reduce-max", build("access", x, 2)), (2, 3, 1))
    powers = compute("exp", subtract(x, highest))
    total = reshape(build("compute", "reduce-sum", build("access", powers, 2)), (2, 3, 1))
    assert _equal(b.finish(divide(powers, total))).term.operator.name == "opaque-items"


def test_a_mean_that_others_read_stays_itself() -> None:
    b = Builder()
    x = b.input("x", (2, 3, 4))
    mean = reshape(build("compute", "reduce-mean", build("access", x, 2)), (2, 3, 1))
    program = b.finish(multiply(reshape(subtract(x, mean), (3, 2, 4)), reshape(mean, (3, 2, 1))))
    assert _count(_equal(program))["reduce-mean"] == 1


def test_what_tells_places_within_an_item_stays_itself() -> None:
    """argmax depends on the order of the elements."""
    b = Builder()
    x = b.input("x", (2, 3, 4))
    first = reshape(cast(build("compute", "argmax", build("access", x, 2)), "float32"), (2, 3, 1))
    assert _count(_equal(b.finish(subtract(x, first))))["argmax"] == 1


def test_values_of_constants_are_kept() -> None:
    """Of those too that no node of the outlined program names."""
    b = Builder()
    x = b.input("x", (1, 4, 6, 5))
    y = relu(_scaled(b, b.conv(x, b.constant("w", (8, 4, 3, 3)), padding=1), "norm"))
    y = _quantized(b, gelu(_scaled(b, y, "other")), "y")
    program = b.finish(b.conv(y, b.constant("v", (4, 8, 3, 3)), padding=1)).seeded_constants(0)
    result = gl.optimize(program, gl.ConvolutionUnit("nhwc"))
    assert result.program is not program
    assert result.program.constants.keys() == program.constants.keys() == result.program.constants_declared.keys()


def test_counts_of_an_average_are_numbers() -> None:
    """A constant is taken as it is, whatever it is computed of: here a sum over a padded tensor of ones."""
    b = Builder()
    x = b.input("x", (1, 2, 4, 4))
    ones = build("full", (1, 1, 3, 3), 1, "float32")
    padded = build("access-pad", ones, "zero-padding", 2, 0, 1)
    count = compute("reduce-sum", build("access", padded, 0))
    counted = compute("sqrt", divide(x, broadcast(reshape(build("access", count, 0), (1, 1, 1, 1)), x.access.dims)))
    assert _equal(b.finish(counted)).term.operator.name == "opaque-pointwise"


def test_a_function_is_put_back_under_any_dims() -> None:
    b = Builder()
    x = b.input("x", (2, 3, 4))
    program = b.finish(reshape(gelu(x), (6, 4)))
    found = outlined(program)
    (box,) = (t for t in postorder(found.program.term) if t.operator.name == "opaque-pointwise")
    key, *rest = box.attributes
    moved = found.inlined(Program(build("access", build("opaque-pointwise", key, reshape(x, (6, 4)), *rest), 1)))
    assert moved.term.access.split == 1
    assert check(Program(build("access", program.term, 1)), moved).result == EXACT


def test_a_black_box_of_the_program_stays_one() -> None:
    b = Builder()
    x = b.input("x", (5, 6))
    own = transpose(build("opaque-pointwise", "relu-sigmoid 1", x, "float32", (), ()), (1, 0))
    program = b.finish(add(own, transpose(sigmoid(relu(x)), (1, 0))))
    found = outlined(program)
    assert len(found.functions) == 1
    assert found.inlined(found.program).term is program.term


@pytest.mark.slow
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
