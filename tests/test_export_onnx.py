"""Programs as ONNX models: onnxruntime must compute what the interpreter does."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_examples import COMPUTES as COMPUTE_EXAMPLES
from operator_examples import OPERATORS as OPERATOR_EXAMPLES
from operator_examples import VALUES, Example
from random_terms import terms, values_for

import glenside as gl
from glenside.exporters.onnx import export_onnx, save_onnx
from glenside.exporters.onnx.registry import COMPUTE_EXPORTS, OPERATOR_EXPORTS
from glenside.ir.errors import BadInput, TypeMismatch
from glenside.ir.operand import Array
from glenside.ir.operator import COMPUTES, OPERATORS
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.ir.types import DTYPES, Dims, Tensor

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="the package onnxruntime is not installed")

EXAMPLES = [
    pytest.param(example, id=f"{name}-{number}")
    for table in (OPERATOR_EXAMPLES, COMPUTE_EXAMPLES)
    for name, examples in table.items()
    for number, example in enumerate(examples)
]


def leaf(name: str, dims: tuple[int, ...], dtype: str = "float32", constant: bool = False) -> Term:
    return build("access-tensor", Tensor(name, Dims(dims), dtype, constant))


def run(model: Any, inputs: Mapping[str, Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    content = model if isinstance(model, str) else model.SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    results: list[Array] = session.run(None, {each.name: inputs[each.name] for each in session.get_inputs()})
    return results


def flat(value: Any) -> list[Array]:
    return [array for item in value for array in flat(item)] if isinstance(value, tuple) else [value]


def agree(got: list[Array], want: Any) -> None:
    """Integers exactly, floats as far as their dtype goes."""
    expected = flat(want)
    assert [(g.dtype, g.shape) for g in got] == [(w.dtype, w.shape) for w in expected]
    for g, w in zip(got, expected, strict=True):
        close = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-4}.get(w.dtype.name, 0)
        np.testing.assert_allclose(g, w, rtol=close, atol=close / 10)


def same(program: Program, values: Mapping[str, Array]) -> Any:
    """Export, check and run a program; the model."""
    model = export_onnx(program)
    onnx.checker.check_model(model, full_check=True)
    agree(run(model, values), gl.evaluate([program.term], {**program.constants, **values})[0])
    return model


def kinds(model: Any) -> list[str]:
    return [node.op_type for node in model.graph.node]


# Every operator, every compute type, every dtype


def test_every_operator_and_compute_type_has_an_export() -> None:
    assert OPERATOR_EXPORTS.keys() == OPERATORS.keys()
    assert COMPUTE_EXPORTS.keys() == COMPUTES.keys()


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_of_every_operator(example: Example) -> None:
    same(Program(example.term), VALUES)


@settings(max_examples=80, deadline=None)
@given(terms(), st.integers(0, 9))
def test_random_terms(term: Term, seed: int) -> None:
    program, values = Program(term), values_for(term, seed=seed)
    constants = {name: values[name] for name in program.constants_declared}
    same(program.with_constants(constants), values)


def extreme(dtype: str, dims: tuple[int, ...], seed: int) -> Array:
    """Numbers of all magnitudes of a dtype, its limits and 0 among them."""
    random = np.random.default_rng([seed, *dims])
    if dtype == "bool":
        return random.integers(0, 2, dims).astype(bool)
    if dtype.startswith("f"):
        return random.uniform(0.5, 4, dims).astype(dtype)
    limits = np.iinfo(dtype)
    values = random.integers(limits.min, limits.max, dims, dtype, endpoint=True)
    values >>= random.integers(0, limits.bits, dims).astype(dtype)
    special = np.array([limits.min, limits.max, 0, 1, 2, 3], dtype)
    return np.where(random.random(dims) < 0.5, random.choice(special, dims), values)


PARAMETERS = {"clip": ["(clip 1 100)"], "leaky-relu": ["(leaky-relu 1/3)"]}
PARAMETERS["compare"] = [f"(compare {relation})" for relation in COMPUTES["compare"].parameters[0].choices]


@pytest.mark.parametrize("dtype", DTYPES)
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


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_movement_in_every_dtype(dtype: str) -> None:
    x = leaf("x", (2, 5, 6), dtype)
    made = [
        build("access-windows", build("access", x, 1), (3, 2), (1, 2)),
        build("access-pad", x, "min-padding", 1, 1, 2),
        build("access-dilate", x, 1, 2),
        build("access-flip", x, 2),
        build("access-concatenate", x, x, 0),
        build("access-broadcast", build("access-slice", x, 1, 2, 3), ((), (2, 4, 6))),
        build("full", (2, 3), "1", dtype),
        build("eye", 3, dtype),
    ]
    made += [build("cast", x, other) for other in DTYPES if other[0] != "u" or not dtype.startswith("f")]
    if dtype != "bool":
        windows = build("access", x, 2)
        made += [build("access-overlap-add", windows, out, steps) for out, steps in (((15,), (2,)), ((35,), (7,)))]
        made.append(build("access-overlap-add", build("access-slice", windows, 1, 0, 2), (7,), (1,)))
        tiles = build("access", leaf("w", (2, 6, 3), dtype), 1)
        made += [build("systolic-array", 6, 3, windows, tiles)]
        made += [
            build("systolic-array", 6, 3, build("access-squeeze", build("access-slice", windows, 1, 0, 1), 1), tiles)
        ]
    program = Program(build("construct-tuple", *made))
    same(program, {name: extreme(dtype, t.dims, i) for i, (name, t) in enumerate(program.tensors.items())})


def test_division_of_integers_is_the_interpreters() -> None:
    for dtype in ("int8", "int32", "int64"):
        lowest = np.iinfo(dtype).min
        values = {"a": np.array([lowest, lowest, -7, 7, 5], dtype), "b": np.array([-1, 0, 2, -2, 0], dtype)}
        pair = build("access-product", leaf("a", (5,), dtype), leaf("b", (5,), dtype), 0)
        same(Program(build("compute", "elementwise-div", pair)), values)


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
    assert [kind for kind in kinds(model) if "Pool" in kind] == [
        "MaxPool",
        "AveragePool",
        "MaxPool",
        "AveragePool",
        "AveragePool",
        "MaxPool",
    ]
    assert not {"Slice", "Gather"} & {*kinds(model)}


@pytest.mark.parametrize("dtype", DTYPES)
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


def test_names_shapes_and_origin() -> None:
    text = """(input x (shape 2 7)) (constant w (shape 5 7)) (constant unused.name (shape 5))
    (let ((hidden (compute dot-product
                    (access-cartesian-product (access (access-tensor x) 1) (access (access-tensor w) 1)))))
      (construct-tuple hidden (compute relu hidden)
        (construct-tuple (access-tensor x) (access-tensor x) (access-tensor unused.name))))"""
    program = gl.parse(text).seeded_constants(0)
    model = same(program, {"x": np.ones((2, 7), "float32")})
    assert [each.name for each in model.graph.input] == ["x"]
    assert [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim] == [2, 7]
    outputs = ["output_0", "output_1", "output_2_0", "output_2_1", "output_2_2"]
    assert [each.name for each in model.graph.output] == outputs
    assert "hidden" in [node.name for node in model.graph.node if node.op_type == "MatMul"]
    assert {"w", "unused.name"} <= {each.name for each in model.graph.initializer}
    assert (model.producer_name, model.producer_version) == ("glenside", gl.__version__)
    assert [(p.key, p.value) for p in model.metadata_props] == [("program", program.name)]
    assert export_onnx(program).SerializeToString() == model.SerializeToString()


def test_an_input_may_be_called_output() -> None:
    term = build("compute", "relu", leaf("output", (3,)))
    model = same(Program(term), {"output": np.array([-1, 0, 2], "float32")})
    assert [each.name for each in model.graph.output] == ["output-2"]


def test_shared_terms_are_exported_once() -> None:
    x = leaf("x", (3,))
    for _ in range(40):
        x = build("compute", "elementwise-add", build("access-product", x, x, 0))
    model = same(Program(x), {"x": np.ones(3, "float32")})
    assert kinds(model) == ["Add"] * 40


def test_a_chain_of_concatenations_is_one() -> None:
    parts = [leaf(f"x{i}", (2, 1 + i % 3)) for i in range(30)]
    term = parts[0]
    for part in parts[1:]:
        term = build("access-concatenate", term, part, 1)
    assert kinds(same(Program(term), values_for(term))) == ["Concat"]


def test_deep_terms_are_exported() -> None:
    term = leaf("x", (2,))
    for _ in range(20_000):
        term = build("compute", "negative", term)
    assert len(export_onnx(Program(term)).graph.node) == 20_000


# Networks


def inputs_of(program: Program) -> dict[str, Array]:
    random = np.random.default_rng(0)
    return {
        name: random.integers(0, 2, t.dims) if t.dtype == "int64" else random.standard_normal(t.dims).astype(t.dtype)
        for name, t in program.inputs.items()
    }


NETWORKS = {
    "mobilenet-v1": {"width": 0.25, "resolution": 32, "batch": 2, "classes": 4},
    "mobilenet-v3-large": {"width": 0.25, "resolution": 32, "classes": 4},
    "resnet-18": {"resolution": 32, "classes": 4},
    "unet-small": {"resolution": 32},
    "bert-base": {"sequence": 5, "layers": 1, "hidden": 24, "heads": 2, "intermediate": 16, "vocabulary": 50},
    "vit-s-16": {"resolution": 32, "layers": 1, "hidden": 24, "heads": 2, "intermediate": 16, "classes": 4},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str) -> None:
    program = gl.models.load(name, **NETWORKS[name])
    same(program, inputs_of(program))


@pytest.mark.parametrize("name", ["mobilenet-v1", "bert-base"])
def test_optimized_networks(name: str) -> None:
    program = gl.optimize(gl.models.load(name, **NETWORKS[name]), gl.SystolicArray(8, 8)).program
    model = same(program, inputs_of(program))
    assert "systolic_array_8x8_6d_6d" in kinds(model)
    assert {*program.layers} <= {node.name for node in model.graph.node}


# Files


def test_files_and_weights_beside_them(tmp_path: Path) -> None:
    program = gl.models.load("mobilenet-v1", **NETWORKS["mobilenet-v1"])
    save_onnx(program, tmp_path / "whole.onnx")
    save_onnx(program, tmp_path / "parts.onnx", most_bytes=1000)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts.onnx", "parts.onnx.data", "whole.onnx"]
    assert (tmp_path / "parts.onnx").stat().st_size < (tmp_path / "whole.onnx").stat().st_size / 5
    onnx.checker.check_model(str(tmp_path / "parts.onnx"), full_check=True)
    whole, parts = (run(str(tmp_path / name), inputs_of(program))[0] for name in ("whole.onnx", "parts.onnx"))
    np.testing.assert_array_equal(whole, parts)


def test_nothing_is_written_when_something_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "p.onnx").mkdir()
    program = gl.models.load("mobilenet-v1", **NETWORKS["mobilenet-v1"])
    with pytest.raises(BadInput, match="cannot write"):
        save_onnx(program, tmp_path / "p.onnx", most_bytes=1000)
    assert [path.name for path in tmp_path.iterdir()] == ["p.onnx"]


REFUSED = {
    "a constant without a value": (leaf("w", (2,), constant=True), "value of every constant, got none of w"),
    "no name": (leaf("", (2,)), "names of at least one Unicode character"),
    "half a character": (leaf("\ud800", (2,)), "names of at least one Unicode character"),
    "no result": (build("construct-tuple"), "a result of at least one array"),
}


def test_without_onnx_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    for export in (export_onnx, lambda program: save_onnx(program, tmp_path / "p.onnx")):
        with pytest.raises(BadInput, match=r"pip install 'glenside\[onnx\]'"):
            export(Program(leaf("x", (2,))))


@pytest.mark.parametrize(("term", "message"), REFUSED.values(), ids=REFUSED)
def test_what_onnx_cannot_hold_is_refused(term: Term, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        export_onnx(Program(term))
