"""Tests ONNX operators that Glenside does not know, imported as black boxes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402

import glenside as gl  # noqa: E402
from glenside.check import EXACT, check  # noqa: E402
from glenside.importers.onnx import load_onnx, program_of_model  # noqa: E402
from glenside.importers.onnx.opaque import node_of_key, read_key  # noqa: E402
from glenside.ir.errors import BadInput  # noqa: E402
from glenside.ir.program import Program  # noqa: E402
from glenside.ir.term import Term, postorder  # noqa: E402

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def info(name: str, dims: Any, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, dims)


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], **more: Any) -> Any:
    functions = more.pop("functions", [])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("acme", 3)]
    return helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, **more), opset_imports=opsets, functions=functions
    )


def imported(model: Any, **more: Any) -> Program:
    return program_of_model(model, allow_opaque=True, **more)


def boxes(program: Program) -> list[Term]:
    return [term for term in postorder(program.term) if term.operator.opaque]


def test_a_custom_operator_between_products(tmp_path: Path) -> None:
    """A black box has the type that the graph declares; the terms around it are mapped and checked."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="first"),
        helper.make_node("Warp", ["h", "", "x"], ["m", "", "s"], name="warp", domain="acme", power=1.5, mode="soft"),
        helper.make_node("MatMul", ["m", "s"], ["y"], name="second"),
    ]
    weights = [onnx.numpy_helper.from_array(np.ones((4, 6), np.float32), "w")]
    given = model(
        nodes,
        [info("x", ["batch", 4])],
        [info("y", None)],
        initializer=weights,
        value_info=[info("m", ["batch", 7]), info("s", [7, "depth"])],
    )
    path = tmp_path / "warp.onnx"
    onnx.save(given, path)
    with pytest.raises(BadInput, match=r"node warp \(Warp\): the operator acme.Warp of version 3 .* allow_opaque=True"):
        load_onnx(path, dims={"batch": 5})
    program = load_onnx(path, dims={"batch": 5, "depth": 2}, allow_opaque=True)
    first, last = boxes(program)
    assert [str(first.type), str(last.type)] == ["()(5 7) float32", "()(7 2) float32"]
    assert first.children == last.children
    result = gl.optimize(program, gl.SystolicArray(4, 4))
    assert result.report.checked == "exact"
    assert [row.mapped for row in result.report.layers] == [True, True]
    key = str(last.attributes[0])
    assert key.startswith("acme/Warp/3#2 ")
    node = node_of_key(key)
    assert (list(node.input), list(node.output), node.name) == (["i0", "", "i2"], ["o0", "", "o2"], "")
    assert {a.name: helper.get_attribute_value(a) for a in node.attribute} == {"mode": b"soft", "power": 1.5}
    assert (read_key(key).version, read_key(key).output) == (3, 2)
    again = gl.parse(str(program))
    assert again.term is program.term


def test_types_are_inferred_from_known_inputs_and_named_sizes() -> None:
    suppress = helper.make_node("NonMaxSuppression", ["boxes", "scores", "count"], ["kept"])
    count = [onnx.numpy_helper.from_array(np.array([3], np.int64), "count")]
    inputs, outputs = [info("boxes", [1, 9, 4]), info("scores", [1, 2, 9])], [info("kept", ["kept", 3], INT64)]
    given = model([suppress], inputs, outputs, initializer=count)
    with pytest.raises(BadInput, match="requires all sizes of output 0, got none for axis 0"):
        imported(given)
    assert str(imported(given, dims={"kept": 4}).term.type) == "()(4 3) int64"


def foreign(op: str, inputs: list[Any], names: list[str], **attributes: Any) -> Any:
    """Returns a node of onnxruntime's own whose output nobody declares."""
    node = helper.make_node(op, names, ["y"], domain="com.microsoft", **attributes)
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info("y")])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid(d, 21 if not d else 1) for d in ("", "com.microsoft")]
    )


def test_types_that_only_onnxruntime_knows() -> None:
    pytest.importorskip("onnxruntime")
    given = foreign("Inverse", [info("x", [3, 5, 5])], ["x"])
    assert str(imported(given).term.type) == "()(3 5 5) float32"
    # MurmurHash3 says nothing of shapes: it is run.
    given = foreign("MurmurHash3", [info("x", [2, 7], TensorProto.INT32)], ["x"], positive=0)
    assert str(imported(given).term.type) == "()(2 7) int32"


def test_sizes_that_depend_on_data_are_not_taken_from_a_run() -> None:
    pytest.importorskip("onnxruntime")
    node = helper.make_node("NonZero", ["x"], ["y"])
    with pytest.raises(BadInput, match="requires all sizes of output 0, got none for axis 1"):
        imported(model([node], [info("x", [4])], [helper.make_empty_tensor_value_info("y")]))
    with pytest.raises(BadInput, match="the type of output 0"):
        imported(foreign("Unique", [info("x", [40])], ["x"]))


def test_a_shape_that_depends_on_data_makes_a_black_box_too() -> None:
    expand = helper.make_node("ConstantOfShape", ["dims"], ["y"])
    given = model([expand], [info("dims", [2], INT64)], [info("y", [3, 4])])
    with pytest.raises(BadInput, match="known at import"):
        program_of_model(given)
    assert str(imported(given).term.type) == "()(3 4) float32"


def test_attributes_of_a_function_are_those_of_its_call() -> None:
    inner = helper.make_node("RandomNormal", [], ["noise"], shape=[3])
    inner.attribute.append(onnx.AttributeProto(name="mean", ref_attr_name="bias", type=onnx.AttributeProto.FLOAT))
    nodes, opsets = [inner, helper.make_node("Add", ["a", "noise"], ["b"])], [helper.make_opsetid("", 21)]
    function = helper.make_function("acme", "Noisy", ["a"], ["b"], nodes, opsets, ["bias"])
    call = helper.make_node("Noisy", ["x"], ["y"], domain="acme", bias=2.5)
    (box,) = boxes(imported(model([call], [info("x", [3])], [info("y", [3])], functions=[function])))
    node = node_of_key(str(box.attributes[0]))
    assert {a.name: helper.get_attribute_value(a) for a in node.attribute} == {"mean": 2.5, "shape": [3]}


def test_two_draws_are_two_functions_and_two_equal_nodes_are_one() -> None:
    draws = [helper.make_node("RandomNormal", [], [name], shape=[4]) for name in "ab"]
    given = model([*draws, helper.make_node("Sub", ["a", "b"], ["y"])], [], [info("y", [4])])
    assert len(boxes(imported(given))) == 2
    same = [helper.make_node("Warp", ["x"], [name], domain="acme", name=name) for name in "ab"]
    types = [info("a", [4]), info("b", [4])]
    given = model(
        [*same, helper.make_node("Sub", ["a", "b"], ["y"])], [info("x", [4])], [info("y", [4])], value_info=types
    )
    program = imported(given)
    assert len(boxes(program)) == 1
    assert check(program, program).result == EXACT


@pytest.mark.parametrize(
    ("node", "kind", "message"),
    [
        (
            helper.make_node("Warp", ["x"], ["y"], domain="acme", body=helper.make_graph([], "b", [], [])),
            FLOAT,
            "graph",
        ),
        (helper.make_node("Warp", ["x"], ["y"], domain="acme"), TensorProto.STRING, "got string"),
        (helper.make_node("Warp", ["x"], ["y"], domain="acme"), None, "the type of output 0"),
    ],
)
def test_what_cannot_be_a_black_box(node: Any, kind: int | None, message: str) -> None:
    output = info("y", [2], kind) if kind is not None else helper.make_empty_tensor_value_info("y")
    with pytest.raises(BadInput, match=message):
        imported(model([node], [info("x", [2])], [output]))


@pytest.mark.parametrize("key", ["", "a", "a/b/1#0", "a/b/1#0 !!", "a/b/1#0 AAAA", "acme/Warp/1#1 IgRXYXJwOgRhY21l"])
def test_a_key_that_is_none(key: str) -> None:
    with pytest.raises(BadInput, match="a key requires the form domain/operator/version#output"):
        node_of_key(key)
