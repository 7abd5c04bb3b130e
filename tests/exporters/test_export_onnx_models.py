"""Tests ONNX export of whole models: names, files, networks, and refusals."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_terms import values_for
from slow_cases import quick

import glenside as gl
from glenside.exporters.onnx import export_onnx, save_onnx
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term, build

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
pytest.importorskip("onnxruntime", reason="the package onnxruntime is not installed")

from onnx import TensorProto, helper  # noqa: E402
from onnx_exports import agree, kinds, leaf, run, same  # noqa: E402

from glenside.importers.onnx import program_of_model  # noqa: E402


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
    for _ in range(2_000):
        term = build("compute", "negative", term)
    assert len(export_onnx(Program(term)).graph.node) == 2_000


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


@pytest.mark.parametrize("name", quick(NETWORKS, 1, 3, 4, 5))
def test_networks(name: str) -> None:
    program = gl.models.load(name, **NETWORKS[name])
    same(program, inputs_of(program))


@pytest.mark.parametrize("name", quick(["mobilenet-v1", "bert-base"], 1))
def test_optimized_networks(name: str) -> None:
    program = gl.optimize(gl.models.load(name, **NETWORKS[name]), gl.SystolicArray(8, 8)).program
    model = same(program, inputs_of(program))
    assert "systolic_array_8x8_6d_6d" in kinds(model)
    assert {*program.layers} <= {node.name for node in model.graph.node}


# Black boxes


def imported(
    node: Any, inputs: dict[str, Array], outputs: list[Any], constants: dict[str, Array], opsets: dict[str, int]
) -> Any:
    """Returns the program of one node that has no meaning here, with the model that it is of."""
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in inputs.items()}
    given = [helper.make_tensor_value_info(name, kinds[name], array.shape) for name, array in inputs.items()]
    initializers = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "g", given, outputs, initializers)
    versions = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    model = helper.make_model(graph, opset_imports=versions, ir_version=8)
    return program_of_model(model, allow_opaque=True), model


def test_a_black_box_is_the_node_that_it_was() -> None:
    """For an operator that onnxruntime has and Glenside does not: both files give the same."""
    random = np.random.default_rng(0)
    inputs = {"boxes": random.random((1, 9, 4), "float32"), "scores": random.random((1, 1, 9), "float32")}
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "", "least"], ["kept"], center_point_box=1)
    constants = {"most": np.array([2]), "least": np.array([0.1], "float32")}
    outputs = [helper.make_tensor_value_info("kept", TensorProto.INT64, [2, 3])]
    program, model = imported(node, inputs, outputs, constants, {"": 18})
    exported = export_onnx(program)
    onnx.checker.check_model(exported, full_check=True)
    agree(run(exported, inputs), run(model, inputs)[0])
    (again,) = [each for each in exported.graph.node if each.op_type == "NonMaxSuppression"]
    assert [name == "" for name in again.input] == [name == "" for name in node.input]
    assert [*again.attribute] == [*node.attribute]


def test_a_black_box_of_several_outputs_is_one_node() -> None:
    node = helper.make_node("Warp", ["x"], ["a", "", "b"], domain="acme", power=1.5)
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, size]) for name, size in (("a", 3), ("b", 4))]
    program, _ = imported(node, {"x": np.zeros(2, "float32")}, outputs, {}, {"": 18, "acme": 3})
    exported = export_onnx(program)
    assert [(n.op_type, n.domain, n.output[1]) for n in exported.graph.node] == [("Warp", "acme", "")]
    assert {o.domain: o.version for o in exported.opset_import} == {"": 18, "acme": 3}
    assert [[d.dim_value for d in o.type.tensor_type.shape.dim] for o in exported.graph.output] == [[2, 3], [2, 4]]
    assert program_of_model(exported, allow_opaque=True).term is program.term


def test_black_boxes_of_standard_operators_bring_their_version() -> None:
    """RandomNormal is the same since 22, which brought dtypes: one of 18 may be beside it."""
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])]
    node = helper.make_node("RandomNormal", [], ["y"], shape=[4])
    for version, want in ((18, 18), (22, 22), (25, 22)):
        program, _ = imported(node, {}, outputs, {}, {"": version})
        assert [o.version for o in export_onnx(program).opset_import] == [want]
    older, newer = (imported(node, {}, outputs, {}, {"": version})[0].term for version in (18, 22))
    assert [o.version for o in export_onnx(Program(build("construct-tuple", older, newer))).opset_import] == [22]


def test_black_boxes_of_versions_that_do_not_go_together() -> None:
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])]
    node = helper.make_node("Warp", ["x"], ["y"], domain="acme")
    x = {"x": np.zeros(2, "float32")}
    older, newer = (imported(node, x, outputs, {}, {"": 18, "acme": version})[0].term for version in (3, 4))
    with pytest.raises(BadInput, match=r"acme\.Warp as of version 3 requires no node of another, got 4"):
        export_onnx(Program(build("construct-tuple", older, newer)))


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
    "a black box of its own": (
        build("opaque", "mystery/1#0", ((), (2,)), "float32"),
        "black boxes that were imported from ONNX, got mystery/1#0",
    ),
    "no result": (build("construct-tuple"), "a result of at least one array"),
}


def test_without_onnx_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    for export in (export_onnx, lambda program: save_onnx(program, tmp_path / "p.onnx")):
        with pytest.raises(BadInput, match=r"pip install .*\[onnx\]"):
            export(Program(leaf("x", (2,))))


@pytest.mark.parametrize(("term", "message"), REFUSED.values(), ids=REFUSED)
def test_what_onnx_cannot_hold_is_refused(term: Term, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        export_onnx(Program(term))
