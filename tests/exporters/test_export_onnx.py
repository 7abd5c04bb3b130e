"""Tests ONNX export of every operator and compute type, and of products, windows, pools and tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compute_examples import COMPUTES as COMPUTE_EXAMPLES
from example_values import VALUES, Example
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from operator_examples import OPERATORS as OPERATOR_EXAMPLES
from random_terms import MOVES, terms, values_for

import glenside as gl
from glenside.exporters.onnx import export_onnx
from glenside.exporters.onnx.registry import COMPUTE_EXPORTS, OPERATOR_EXPORTS, PRIMITIVE_EXPORTS
from glenside.ir.dtypes import COMPUTED, DTYPES, REALS, RECORDS, STORED
from glenside.ir.errors import BadInput, TypeMismatch
from glenside.ir.operator import COMPUTES, OPERATORS
from glenside.ir.operators.gathering import REDUCTIONS
from glenside.ir.primitives import PRIMITIVES
from glenside.ir.program import Program
from glenside.ir.term import Term, build, postorder

pytest.importorskip("onnx", reason="the package onnx is not installed")
pytest.importorskip("onnxruntime", reason="the package onnxruntime is not installed")

from onnx_exports import extreme, kinds, leaf, same

EXAMPLES = [
    pytest.param(example, id=f"{name}-{number}")
    for table in (OPERATOR_EXAMPLES, COMPUTE_EXAMPLES)
    for name, examples in table.items()
    for number, example in enumerate(examples)
    if name not in ("opaque", "opaque-pointwise", "opaque-items")  # their keys are none of ONNX's
]


# Every operator, every compute type, every dtype


def test_every_operator_and_compute_type_has_an_export() -> None:
    moved = {name for name, record in OPERATORS.items() if record.index_map is not None}
    assert OPERATOR_EXPORTS.keys() | moved | {"scan"} == OPERATORS.keys()  # loops are written step by step
    derived = {name for name, compute in COMPUTES.items() if compute.scalar is not None}
    assert COMPUTE_EXPORTS.keys() | derived == COMPUTES.keys()
    assert PRIMITIVE_EXPORTS.keys() <= PRIMITIVES.keys()
    assert all(p.onnx or name in PRIMITIVE_EXPORTS for name, p in PRIMITIVES.items())


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_of_every_operator(example: Example) -> None:
    same(Program(example.term), VALUES)


@settings(max_examples=80, deadline=None)
@given(terms(), st.integers(0, 9))
def test_random_terms(term: Term, seed: int) -> None:
    assume(not any(part.operator.opaque for part in postorder(term)))
    program, values = Program(term), values_for(term, seed=seed)
    constants = {name: values[name] for name in program.constants_declared}
    same(program.with_constants(constants), values)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(terms(operators=MOVES, dtypes=tuple(d for d in ("bfloat16", *STORED) if d != "float4_e2m1fn")))
def test_random_movement_of_what_runtimes_hardly_move(term: Term) -> None:
    program = Program(term)
    values = {name: extreme(t.dtype, t.dims, i) for i, (name, t) in enumerate(program.tensors.items())}
    same(program.with_constants({name: values[name] for name in program.constants_declared}), values)


PARAMETERS = {"clip": ["(clip 1 100)"], "leaky-relu": ["(leaky-relu 1/3)"]} | {
    name: [f"({name} {choice})" for choice in COMPUTES[name].parameters[0].choices]
    for name in ("compare", "mod", "argsort")
}


def test_every_compute_type_has_its_parameters() -> None:
    assert PARAMETERS.keys() == {name for name, compute in COMPUTES.items() if compute.parameters}


@pytest.mark.parametrize(
    "dtype", [pytest.param(d, marks=[] if d in ("float32", "int64", "bool") else pytest.mark.slow) for d in COMPUTED]
)
def test_every_compute_type_in_every_dtype(dtype: str) -> None:
    """All in one model, which is faster: over stacked operands, many of them, items of two axes, and a product."""
    a, b = build("access", leaf("a", (3, 4), dtype), 1), build("access", leaf("b", (5, 4), dtype), 1)
    stacked = [(leaf("s", (3, 2, 7), dtype), 1), (leaf("t", (3, 3, 2), dtype), 1), (leaf("u", (2, 11), dtype), 1)]
    operands = [*(build("access", x, split) for x, split in stacked), build("access-product", a, b, 0)]
    made = []
    for kind in (text for name in COMPUTES for text in PARAMETERS.get(name, [name])):
        for operand in operands:
            try:
                made.append(build("compute", kind, operand))
            except TypeMismatch:
                continue
    program = Program(build("construct-tuple", *made))
    same(program, {name: extreme(dtype, t.dims, i) for i, (name, t) in enumerate(program.tensors.items())})


CAST = [dtype for dtype in DTYPES if dtype != "float4_e2m1fn"]  # onnxruntime has no casts of that


def _has_room(dtype: str, other: str) -> bool:
    """True if onnxruntime casts as the standard says: not floats that are out of range, and it takes numbers that are
    not far beyond the largest float of 8 bits for that one, or for nan.
    """
    if dtype in REALS:
        return other[0] != "u" and other != "int2"
    return RECORDS[dtype].bits <= 8 or other not in ("float8_e4m3fn", "float8_e5m2")


@pytest.mark.parametrize("dtype", CAST)
def test_every_movement_in_every_dtype(dtype: str) -> None:
    x = leaf("x", (2, 5, 6), dtype)
    made = [
        build("access-windows", build("access", x, 1), (3, 2), (1, 2)),
        build("access-pad", x, "zero-padding" if dtype in STORED else "min-padding", 1, 1, 2),
        build("access-dilate", x, 1, 2),
        build("access-flip", x, 2),
        build("access-concatenate", x, x, 0),
        build("access-broadcast", build("access-slice", x, 1, 2, 3), ((), (2, 4, 6))),
        build("full", (2, 3), "1", dtype),
        build("eye", 3, dtype),
        build("access-rearrange", x, (10, 2, 3), (2, 0, 1), ((3,), (5, 4))),
        build("access-gather", x, leaf("places", (2, 2), "int64"), 2),
        build("access-gather-nd", x, build("access-slice", leaf("spots", (2, 7, 2), "int32"), 1, 0, 3), 1),
    ]
    updates = build("access-reshape", build("access-concatenate", x, x, 1), ((), (2, 10, 6)))
    spots = leaf("spots", (2, 7, 2), "int32")
    few = build("access-slice", build("access-slice", updates, 1, 0, 7), 2, 0, 1)
    reductions = ("replace",) if dtype in STORED else REDUCTIONS if dtype != "bool" else ("replace", "min", "max")
    for reduction in reductions:
        made.append(build("access-scatter-nd", x, spots, build("access-reshape", few, ((), (2, 7))), 1, reduction))
    made += [build("cast", x, other) for other in CAST if _has_room(dtype, other)]
    if dtype != "bool" and dtype not in STORED:
        windows = build("access", x, 2)
        made += [build("access-overlap-add", windows, out, steps) for out, steps in (((15,), (2,)), ((35,), (7,)))]
        made.append(build("access-overlap-add", build("access-slice", windows, 1, 0, 2), (7,), (1,)))
        spread = build("access", leaf("w", (2, 6, 3), dtype), 2), build("access", leaf("v", (2, 2, 3), dtype), 2)
        made.append(build("overlap-add-product", *spread, 1, (14,), (2,), (3,), (-1,), 4))
        made.append(build("overlap-add-product", *spread, 0, (9, 3), (2, 1), (3, 1), (1, 4), 1))
        tiles = build("access", leaf("w", (2, 6, 3), dtype), 1)
        made += [build("systolic-array", 6, 3, windows, tiles)]
        made.append(build("iota", 4, dtype))
        made.append(build("numbers", (2, 2), "1 0 3 2", dtype))
        made.append(build("linear-map", x, 1, 4, f"{'0 ' * 5} 1 0 2 0 3  0 1 1 1 0  1 0 0 0 0"))
        weights = leaf("w", (2, 6, 3), dtype)
        left, right = (x, (2, 5, 6), (1, 0, 2), 2), (weights, (2, 6, 3), (2, 0, 1), 2)
        made.append(build("product-unit", 0, *left, *right, (5, 4, 3), (2, 0, 1)))
        made += [
            build("systolic-array", 6, 3, build("access-squeeze", build("access-slice", windows, 1, 0, 1), 1), tiles)
        ]
    program = Program(build("construct-tuple", *made))
    values = {name: extreme(dtype, t.dims, i) for i, (name, t) in enumerate(program.tensors.items())}
    places, spots = (np.random.default_rng(0).integers(-5, 5, dims) for dims in ((2, 2), (2, 7, 2)))
    same(program, values | {"places": places, "spots": spots.astype("int32")})


BITS = [dtype for dtype in DTYPES if dtype not in REALS or dtype not in STORED]  # nor has it the bits of those


@pytest.mark.parametrize("dtype", BITS)
def test_bits_as_every_dtype(dtype: str) -> None:
    x, width = leaf("x", (40,), dtype), RECORDS[dtype].bits
    made = [build("bitcast", x, other) for other in BITS if RECORDS[other].bits == width]
    model = same(Program(build("construct-tuple", *made)), {"x": extreme(dtype, (40,), 0)})
    assert [opset.version for opset in model.opset_import] == [26 if width > 8 else max(18, RECORDS[dtype].opset)]


SPECIAL = {
    "elementwise-div": ([-128, -128, -7, 7, 5], [-1, 0, 2, -2, 0]),
    "(mod floor)": ([-128, -128, -7, 7, 5, -7, 0], [-1, 0, 2, -2, 0, -2, -3]),
    "(mod truncate)": ([-128, -128, -7, 7, 5, -7, 0], [-1, 0, 2, -2, 0, -2, -3]),
    "pow": ([-128, 127, -1, -1, 1, 0, 0, 2, 3], [-1, -2, -3, -4, -128, -1, 0, 7, 127]),
}


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
@pytest.mark.parametrize("kind", SPECIAL)
def test_arithmetic_of_integers_is_the_interpreters(kind: str, dtype: str) -> None:
    values = {name: np.array(x, dtype) for name, x in zip("ab", SPECIAL[kind], strict=True)}
    values["a"][values["a"] == -128] = np.iinfo(dtype).min
    a, b = (leaf(name, value.shape, dtype) for name, value in values.items())
    same(Program(build("compute", kind, build("access-product", a, b, 0))), values)


def test_remainders_of_floats_have_the_sign_of_the_divisor_or_the_dividend() -> None:
    values = {"a": np.array([5.5, -5.5, 6, -2, 0, 3, -1], "float32"), "b": np.array([2, 2, -3, 4, -2, -5, np.inf])}
    values["b"] = values["b"].astype("float32")
    pair = build("access-product", leaf("a", (7,)), leaf("b", (7,)), 0)
    for rounding in ("floor", "truncate"):
        same(Program(build("compute", f"(mod {rounding})", pair)), values)


@pytest.mark.parametrize("kind", ["reduce-sum", "reduce-prod", "dot-product"])
@pytest.mark.parametrize("dims", [(2, 0, 3), (2, 3, 0)])
def test_items_without_elements(kind: str, dims: tuple[int, ...]) -> None:
    term = build("compute", kind, build("access", leaf("x", dims, "int8"), 1))
    same(Program(term), {"x": np.zeros(dims, "int8")})


def test_arrays_without_elements_inside_a_program() -> None:
    x = leaf("x", (2, 3))
    empty = build("access-slice", x, 1, 1, 1)
    grown = build("access-concatenate", build("access-pad", empty, "min-padding", 1, 1, 0), empty, 1)
    weights = build("access", build("access-transpose", empty, (0, 1)), 1)
    term = build(
        "construct-tuple", grown, build("compute", "dot-product", build("access-product", weights, weights, 0))
    )
    same(Program(build("construct-tuple", term, empty)), {"x": np.ones((2, 3), "float32")})


# What the file looks like


def test_a_product_is_one_matmul() -> None:
    a, b = build("access", leaf("a", (2, 3, 4)), 2), build("access", leaf("b", (2, 5, 4)), 2)
    term = build("compute", "dot-product", build("access-product", a, b, 1))
    values = values_for(term)
    assert kinds(same(Program(term), values)) == ["Transpose", "MatMul"]


def test_elementwise_operators_broadcast() -> None:
    b = gl.Builder()
    x, bias = b.input("x", (2, 3, 4, 4)), b.input("bias", (3,))
    term = b.add(b.multiply(x, b.full((), 2)), b.broadcast(b.reshape(bias, (1, 3, 1, 1)), (2, 3, 4, 4)))
    assert kinds(same(Program(term), values_for(term))) == ["Mul", "Reshape", "Add"]


CONVOLUTIONS = {
    "plain": ((1, 3, 9, 9), (4, 3, 3, 3), {"padding": 1, "strides": 2}),
    "batch": ((2, 3, 9, 8), (4, 3, 3, 2), {"padding": [(1, 0), (0, 2)]}),
    "depthwise": ((2, 4, 9, 9), (4, 1, 3, 3), {"groups": 4, "padding": 1}),
    "grouped": ((2, 4, 7, 7), (6, 2, 3, 3), {"groups": 2, "strides": 2}),
    "dilated": ((1, 3, 9, 9), (2, 3, 3, 3), {"dilations": 2, "padding": 2}),
    "pointwise": ((2, 3, 5, 5), (4, 3, 1, 1), {}),
    "pointwise, strided": ((1, 3, 6, 6), (4, 3, 1, 1), {"strides": 2}),
    "one axis": ((2, 3, 11), (4, 3, 5), {"strides": 3}),
    "three axes": ((1, 2, 5, 6, 7), (3, 2, 2, 3, 2), {"padding": 1}),
}


@pytest.mark.parametrize("case", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_a_convolution_is_one_conv(case: tuple[Any, ...]) -> None:
    images, weights, options = case
    b = gl.Builder()
    term = b.conv(b.input("x", images), b.constant("w", weights), name="layer", **options)
    values = values_for(term)
    program = Program(term, layers=b.finish(term).layers, constants={"w": values["w"]})
    model = same(program, values)
    assert kinds(model).count("Conv") == 1
    assert not {"Pad", "Transpose", "Slice", "Gather", "Concat"} & {*kinds(model)}
    assert "layer" in [node.name for node in model.graph.node if node.op_type == "Conv"]


def test_a_convolution_of_five_axes_is_a_product_of_windows() -> None:
    b = gl.Builder()
    term = b.conv(b.input("x", (1, 1, 3, 3, 3, 3)), b.input("w", (2, 1, 2, 2, 2, 2)))
    model = same(Program(term), values_for(term))
    assert "MatMul" in kinds(model)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "float64"])
def test_convolutions_of_every_dtype(dtype: str) -> None:
    b = gl.Builder()
    term = b.conv(b.input("x", (1, 3, 6, 6), dtype), b.input("w", (4, 3, 3, 3), dtype), padding=1)
    same(Program(term), {name: extreme(dtype, t.dims, 1) for name, t in Program(term).tensors.items()})


def test_pools_are_pools() -> None:
    b = gl.Builder()
    x = b.input("x", (2, 3, 9, 9))
    pools = [b.max_pool(x, 3, strides=2, padding=1), b.average_pool(x, 3, strides=2, padding=1), b.max_pool(x, 2)]
    pools += [b.average_pool(x, 2, padding=1, count_padding=False), b.max_pool(x, 3, dilations=2)]
    program = Program(build("construct-tuple", *pools))
    model = same(program, {"x": np.random.default_rng(0).standard_normal((2, 3, 9, 9)).astype("float32")})
    assert kinds(model) == ["MaxPool", "AveragePool", "MaxPool", "AveragePool", "MaxPool"]
    assert [a.i for node in model.graph.node for a in node.attribute if a.name == "count_include_pad"] == [1, 0]


@pytest.mark.parametrize("dtype", COMPUTED)
def test_largest_of_windows_in_every_dtype(dtype: str) -> None:
    x = build(
        "access-pad", build("access-pad", leaf("x", (2, 7, 7), dtype), "min-padding", 1, 1, 2), "min-padding", 2, 1, 1
    )
    windows = build("access-windows", build("access", x, 1), (3, 3), (2, 1))
    same(Program(build("compute", "reduce-max", windows)), {"x": extreme(dtype, (2, 7, 7), 0)})


@pytest.mark.parametrize(
    ("size", "window", "stride"), [(9, 4, 2), (9, 3, 3), (12, 1, 2), (9, 8, 1), (100, 40, 1), (7, 7, 3)]
)
def test_windows_of_every_proportion(size: int, window: int, stride: int) -> None:
    x = build("access", leaf("x", (2, size, 5)), 1)
    term = build("access-windows", x, (window, 3), (stride, 2))
    same(Program(term), {"x": np.arange(10 * size, dtype="float32").reshape(2, size, 5)})


def test_tile_instructions_are_calls_of_one_function_each() -> None:
    x, w = leaf("x", (8, 4)), leaf("w", (4, 4), constant=True)
    first = build("systolic-array", 4, 4, build("access", x, 1), w)
    second = build("systolic-array", 4, 4, build("access", first, 1), w)
    row = build(
        "systolic-array",
        4,
        4,
        build("access", build("access-squeeze", build("access-slice", second, 0, 0, 1), 0), 0),
        w,
    )
    values = values_for(row)
    model = same(Program(row, constants={"w": values["w"]}), values)
    calls = [node.op_type for node in model.graph.node if node.domain == "glenside"]
    assert (calls[0] == calls[1], calls[0] == calls[2]) == (True, False)
    assert [function.name for function in model.functions] == [*dict.fromkeys(calls)]
    assert {(a.name, a.i) for a in model.graph.node[0].attribute} == {("rows", 4), ("columns", 4)}
    assert all(node.domain == "" for function in model.functions for node in function.node)


def test_instructions_of_a_unit_that_addresses_are_calls_of_one_function() -> None:
    x, w = leaf("x", (8, 4)), leaf("w", (4, 6))
    first = build("product-unit", 0, x, (8, 4), (0, 1), 1, w, (4, 6), (1, 0), 1, (2, 4, 6), (2, 0, 1))
    wide = build("product-unit", 1, first, (6, 8), (1, 0), 2, x, (8, 4), (0, 1), 2, (8, 6, 4), (1, 0, 2))
    model = same(Program(wide), values_for(wide))
    assert kinds(model) == ["product_unit"] * 2
    (function,) = model.functions
    assert [n.op_type for n in function.node if n.op_type != "Constant"] == [
        *("Reshape", "Transpose", "Reshape") * 2,
        *("MatMul", "Reshape", "Transpose"),
    ]


def test_chains_of_rearrangements_are_one() -> None:
    x = leaf("x", (2, 12, 5))
    term = build("access-rearrange", x, (2, 3, 4, 5), (0, 1, 3, 2), ((2, 3), (20,)))
    term = build("access-transpose", build("access-reshape", term, ((6,), (5, 4))), (2, 0, 1))
    assert kinds(same(Program(term), values_for(term))) == ["Reshape", "Transpose"]
    back = build("access-rearrange", term, (4, 6, 5), (1, 0, 2), ((2, 12), (5,)))
    assert kinds(same(Program(back), values_for(back))) == ["Identity"]


def test_updates_are_one_scatter_where_all_places_differ() -> None:
    x, updates = leaf("x", (5, 3)), leaf("u", (2, 3))
    places = leaf("p", (2, 1), "int64", constant=True)
    values = {"x": np.zeros((5, 3), "float32"), "u": np.ones((2, 3), "float32")}
    for rows, twice in (([1, -1], False), ([4, -1], True)):
        term = build("access-scatter-nd", x, places, updates, 0, "replace")
        model = same(Program(term, constants={"p": np.array(rows).reshape(2, 1)}), values)
        assert kinds(model).count("ScatterND") == 1
        assert ("Where" in kinds(model)) == twice


def test_operands_of_tiles_are_not_repeated() -> None:
    shared = build("access", build("access-broadcast", leaf("x", (1, 8, 4)), ((), (5, 8, 4))), 2)
    term = build("systolic-array", 4, 3, shared, build("access", leaf("w", (5, 4, 3)), 1))
    assert kinds(same(Program(term), values_for(term))) == ["systolic_array_4x3_3d_3d"]
    both = build(
        "systolic-array",
        4,
        4,
        shared,
        build("access-broadcast", build("access", leaf("v", (1, 4, 4)), 1), ((5,), (4, 4))),
    )
    assert kinds(same(Program(both), values_for(both))) == ["Expand", "systolic_array_4x4_3d_3d"]


MOVED = [e for name, es in OPERATOR_EXAMPLES.items() if OPERATORS[name].index_map is not None for e in es]


@pytest.mark.parametrize("example", MOVED, ids=[e.term.operator.name for e in MOVED])
def test_movement_without_an_export_is_gathered(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its index map: a new one needs no code here."""
    monkeypatch.delitem(OPERATOR_EXPORTS, example.term.operator.name, raising=False)
    same(Program(example.term), VALUES)


def test_what_has_neither_export_nor_index_map_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(OPERATOR_EXPORTS, "bitcast")
    with pytest.raises(BadInput, match=r"operators that have an export, got bitcast$"):
        export_onnx(Program(OPERATOR_EXAMPLES["bitcast"][0].term))
