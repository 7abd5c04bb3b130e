"""Tests that an imported node is exported as that node: same operator, same operands, an equivalent version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx_exports import agree, kinds, run  # noqa: E402
from onnx_images import quantised, quantised_qdq  # noqa: E402

from glenside.exporters.onnx import export_onnx  # noqa: E402
from glenside.exporters.onnx.versions import at_opset, means_the_same  # noqa: E402
from glenside.importers.onnx import program_of_model  # noqa: E402
from glenside.importers.onnx.opaque import BlackBox, spelled_key  # noqa: E402
from glenside.ir.operand import Array  # noqa: E402
from glenside.ir.types import AccessType, Dims  # noqa: E402


def model_of(
    nodes: Sequence[Any], inputs: Mapping[str, Array], constants: Mapping[str, Any] | None = None, version: int = 18
) -> Any:
    """Returns a model whose result is the last node's first."""
    kinds_of = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in inputs.items()}
    given = [helper.make_tensor_value_info(name, kinds_of[name], array.shape) for name, array in inputs.items()]
    known = [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()]
    result = onnx.ValueInfoProto(name=nodes[-1].output[0])
    graph = helper.make_graph(nodes, "g", given, [result], known)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)
    found = onnx.shape_inference.infer_shapes(model, data_prop=True).graph.output[0]
    model.graph.output[0].CopyFrom(found)
    return model


def back(model: Any, inputs: Mapping[str, Array]) -> Any:
    """What comes out for a model: a valid file that onnxruntime finds equal, and that is the same program again."""
    program = program_of_model(model)
    made = export_onnx(program)
    onnx.checker.check_model(made, full_check=True)
    agree(run(made, inputs), run(model, inputs)[0])
    assert program_of_model(made).term.type == program.term.type
    return made


def image(*dims: int) -> Array:
    return np.random.default_rng(0).standard_normal(dims).astype(np.float32)


X = image(1, 4, 6, 6)
NODES = {
    "Split": (helper.make_node("Split", ["x"], ["y", "z"], axis=1, num_outputs=2), X, {}),
    "MatMul": (helper.make_node("MatMul", ["x", "w"], ["y"]), image(2, 3, 4), {"w": image(4, 5)}),
    "Gemm": (helper.make_node("Gemm", ["x", "w", "b"], ["y"]), image(3, 4), {"w": image(4, 5), "b": image(5)}),
    "Softmax": (helper.make_node("Softmax", ["x"], ["y"], axis=1), X, {}),
    "Resize": (helper.make_node("Resize", ["x", "", "s"], ["y"], mode="linear"), X, {"s": np.float32([1, 1, 2, 2])}),
    "Pad": (helper.make_node("Pad", ["x", "p"], ["y"], mode="reflect"), X, {"p": np.int64([0, 0, 1, 2, 0, 0, 0, 1])}),
    "DepthToSpace": (helper.make_node("DepthToSpace", ["x"], ["y"], blocksize=2), X, {}),
    "Pow": (helper.make_node("Pow", ["x", "two"], ["y"]), X, {"two": np.float32(2)}),
    "Tile": (helper.make_node("Tile", ["x", "n"], ["y"]), X, {"n": np.int64([1, 2, 1, 1])}),
    "LRN": (helper.make_node("LRN", ["x"], ["y"], size=3), X, {}),
    "AveragePool": (
        helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
        X,
        {},
    ),
    "InstanceNormalization": (
        helper.make_node("InstanceNormalization", ["x", "s", "b"], ["y"]),
        X,
        {"s": image(4), "b": image(4)},
    ),
    "CumSum": (helper.make_node("CumSum", ["x", "axis"], ["y"]), X, {"axis": np.int64(2)}),
    "DynamicQuantizeLinear": (helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"]), X, {}),
}


FOUND_BY_MEANING = ("AveragePool", "DepthToSpace", "Gemm", "MatMul", "Resize")


@pytest.mark.parametrize("op", NODES)
def test_one_node_is_one_node(op: str) -> None:
    node, x, constants = NODES[op]
    made = back(model_of([node], {"x": x}, constants), {"x": x})
    (again,) = made.graph.node
    assert again.op_type == op
    assert [*again.attribute] == sorted(node.attribute, key=lambda a: a.name)
    program = program_of_model(model_of([node], {"x": x}, constants))
    assert kinds(export_onnx(replace(program, origins={}))) != [op] or op in FOUND_BY_MEANING


OLDER = {
    "BatchNormalization": (9, ["x", "s", "b", "m", "v"], {"epsilon": 0.01}),
    "LRN": (9, ["x"], {"size": 3}),
    "ReduceL2": (13, ["x"], {"axes": [1, 2]}),
    "InstanceNormalization": (6, ["x", "s", "b"], {}),
    "Split": (11, ["x"], {"axis": 1}),
}


@pytest.mark.parametrize("op", OLDER)
def test_a_node_of_an_older_version_is_one_of_the_version_of_the_file(op: str) -> None:
    version, names, attributes = OLDER[op]
    vectors = {name: np.abs(image(4)) + i for i, name in enumerate("sbmv")}
    outputs = ["y", "z"] if op == "Split" else ["y"]
    node = helper.make_node(op, names, outputs, **attributes)
    constants = {name: vectors[name] for name in names[1:]}
    made = back(model_of([node], {"x": X}, constants, version), {"x": X})
    assert kinds(made) == [op]
    assert [o.version for o in made.opset_import] == [18]


def test_a_node_that_means_something_else_since_is_spelled_out() -> None:
    """Softmax of 11 sees a matrix."""
    node = helper.make_node("Softmax", ["x"], ["y"], axis=1)
    assert "Reshape" in kinds(back(model_of([node], {"x": X}, version=11), {"x": X}))


@pytest.mark.parametrize("version", [18, 20])
def test_a_node_that_is_deprecated_is_spelled_out(version: int) -> None:
    node = helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2)
    made = back(model_of([node], {"x": X}, {"s": image(2), "b": image(2)}, version), {"x": X})
    assert "GroupNormalization" not in kinds(made)


@pytest.mark.parametrize(("op", "version"), [("Upsample", 9), ("Resize", 10)])
@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_resize_of_old_keeps_its_places(op: str, version: int, mode: str) -> None:
    node = helper.make_node(op, ["x", "s"], ["y"], mode=mode)
    made = back(model_of([node], {"x": X}, {"s": np.float32([1, 1, 2, 1.5])}, version), {"x": X})
    assert kinds(made) == ["Resize"]


def test_an_input_that_is_an_output_keeps_its_name() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    model = model_of(nodes, {"x": X})
    model.graph.input.append(helper.make_tensor_value_info("unused", TensorProto.FLOAT, [1]))
    model.graph.output.insert(0, helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape))
    made = export_onnx(program_of_model(model))
    onnx.checker.check_model(made, full_check=True)
    assert [o.name for o in made.graph.output] == ["x", "y"]
    assert [i.name for i in made.graph.input] == ["x", "unused"]
    assert kinds(made) == ["Relu"]
    agree(run(made, {"x": X, "unused": image(1)}), (X, np.maximum(X, 0)))


def test_versions_that_mean_the_same() -> None:
    assert means_the_same("Conv", 18, 22)
    assert means_the_same("Reshape", 18, 25)
    assert not means_the_same("GridSample", 18, 20)
    assert not means_the_same("Softmax", 11, 13)
    assert not means_the_same("Gelu", 18, 20)


def test_inputs_that_were_attributes_come_after_the_others() -> None:
    node = helper.make_node("ReduceSumSquare", ["i0"], ["o0"], axes=[1])
    found = at_opset(spelled_key(BlackBox(node, 13, 0)), (AccessType(Dims((2, 3)), 0, "float32"),))
    assert found is not None
    box, (axes,) = found
    assert (box.version, len(box.node.input), axes.tolist()) == (18, 2, [1])


@pytest.mark.parametrize(("make", "dims"), [(quantised, {}), (quantised_qdq, {"N": 1})])
def test_what_is_quantized_stays_so(make: Any, dims: Mapping[str, int]) -> None:
    model = make()
    found, came = kinds(export_onnx(program_of_model(model, dims=dims))), kinds(model)
    for op in ("QLinearConv", "QuantizeLinear", "DequantizeLinear", "Conv", "Gemm", "QLinearMatMul"):
        assert found.count(op) <= came.count(op), op
        assert (op in found) == (op in came), op
    assert not {"Round", "Floor", "Div"} & {*found}


def test_gelu_that_came_as_several_nodes_stays_these() -> None:
    names = [("Div", "x", "r", "d"), ("Erf", "d", "e"), ("Add", "e", "one", "a"), ("Mul", "x", "a", "m")]
    nodes = [helper.make_node(op, [*given], [to]) for op, *given, to in (*names, ("Mul", "m", "half", "y"))]
    constants = {"r": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}
    model = model_of(nodes, {"x": X}, constants)
    assert kinds(back(model, {"x": X})) == kinds(model)
    assert kinds(export_onnx(replace(program_of_model(model), origins={}))) == ["Gelu"]


def test_numbers_and_vectors_have_no_axes_in_front() -> None:
    """Runtimes look for them so where they put nodes together."""
    nodes = [helper.make_node("Mul", ["x", "two"], ["m"]), helper.make_node("Add", ["m", "b"], ["y"])]
    made = back(model_of(nodes, {"x": image(2, 3, 4)}, {"two": np.float32(2), "b": image(4)}), {"x": image(2, 3, 4)})
    assert sorted(len(tensor.dims) for tensor in made.graph.initializer) == [0, 1]
    assert kinds(made) == ["Mul", "Add"]


def test_a_convolution_keeps_its_padding() -> None:
    """Of an even size the last row of it is not read."""
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1, 1, 1, 1], strides=[2, 2], kernel_shape=[3, 3])
    made = back(model_of([node], {"x": X}, {"w": image(8, 4, 3, 3), "b": image(8)}), {"x": X})
    (conv,) = made.graph.node
    assert next([*a.ints] for a in conv.attribute if a.name == "pads") == [1, 1, 1, 1]


def test_a_padding_that_is_a_node_is_one_with_the_convolution() -> None:
    pad = helper.make_node("Pad", ["x", "p"], ["z"])
    conv = helper.make_node("Conv", ["z", "w"], ["y"], kernel_shape=[3, 3])
    constants = {"p": np.int64([0, 0, 1, 1, 0, 0, 1, 1]), "w": image(8, 4, 3, 3)}
    assert kinds(back(model_of([pad, conv], {"x": X}, constants), {"x": X})) == ["Conv"]


@pytest.mark.parametrize(("dims", "want"), [((2, 3, 4), "Sum"), ((3, 4), "Add"), ((1, 2, 3, 4), "Add")])
def test_a_sum_of_two_that_only_a_normalization_reads(dims: tuple[int, ...], want: str) -> None:
    """With three axes onnxruntime would fuse both into a slower kernel."""
    nodes = [
        helper.make_node("Add", ["x", "z"], ["a"]),
        helper.make_node("LayerNormalization", ["a", "s", "b"], ["y"]),
        helper.make_node("Relu", ["x"], ["z"]),
    ]
    constants, x = {"s": image(4), "b": image(4)}, image(*dims)
    model = model_of([nodes[2], *nodes[:2]], {"x": x}, constants)
    assert kinds(back(model, {"x": x})) == ["Relu", want, "LayerNormalization"]
    model.graph.output.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, dims))
    assert "Sum" not in kinds(export_onnx(program_of_model(model)))


def test_weights_that_are_turned_go_out_with_other_values() -> None:
    """By a node of their own, as exporters without constant folding leave it: the tensor itself may be trained."""
    nodes = [helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]), helper.make_node("MatMul", ["x", "t"], ["y"])]
    inputs = {"x": image(2, 3, 4)}
    program = program_of_model(model_of(nodes, inputs, {"w": image(5, 4)}))
    other = image(5, 4) + 1
    agree(run(export_onnx(program.with_constants({"w": other})), inputs), inputs["x"] @ other.T)
