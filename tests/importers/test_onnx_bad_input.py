"""Tests faulty ONNX files: each gives one sentence that names the place and what would be right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzzing import Fuzzing

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx_unchecked import FLOAT, info, model, node, refusal, tensor  # noqa: E402

from glenside.importers.onnx import load_onnx, program_of_model  # noqa: E402
from glenside.ir.errors import BadInput  # noqa: E402
from glenside.ir.text import parse, print_program  # noqa: E402

# Files that are no models.


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "holds no graph"),
        (b"# a text, not a model\n" * 20, "is not an ONNX file, or is cut off"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0 \0\0\0 \x08\x06", "is not an ONNX file"),
        (b"PK\x03\x04" + bytes(60), "is not an ONNX file"),
        (bytes(1000), "is not an ONNX file"),
    ],
)
def test_files_that_are_no_models(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=words) as raised:
        load_onnx(path)
    assert str(raised.value).startswith(f"{path}: ")


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    for path, words in ((tmp_path, "directory"), (tmp_path / "none.onnx", "No such file"), ("a\0b", "null")):
        with pytest.raises(BadInput, match=words):
            load_onnx(path)


def test_every_beginning_of_a_file_is_refused(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.ones((2, 3), np.float32), "w")
    whole = model(node("Add", "x,w"), initializer=[weight]).SerializeToString()
    path = tmp_path / "model.onnx"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(BadInput):
            load_onnx(path)


def test_a_file_that_protobuf_cannot_hold(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with path.open("wb") as file:
        file.truncate(3 << 30)
    with pytest.raises(BadInput, match="at most 2147483647; larger weights must be stored as external data"):
        load_onnx(path)


# The model as a whole.


@pytest.mark.parametrize(("version", "got"), [(0, "got 0"), (99, "got 99"), (-1, "got -1")])
def test_opsets_that_are_not_known(version: int, got: str) -> None:
    message = refusal(model(node("Relu"), opset=version))
    assert message == f"requires an opset from 1 to {onnx.defs.onnx_opset_version()}, {got}"


def test_opsets_of_other_domains_are_numbers_too() -> None:
    made = model(node("Relu"), domains=["own"])
    made.opset_import[1].version = 1 << 60
    assert refusal(made).startswith('requires an opset of the domain "own" from 1 to 2147483647, got 1152')


def test_opsets_that_are_missing_or_several() -> None:
    made = model(node("Relu"))
    made.opset_import.append(helper.make_opsetid("ai.onnx", 9))
    assert refusal(made) == "requires one opset, got 17 and 9"
    del made.opset_import[:]
    assert refusal(made) == "requires an opset, got none"
    made.opset_import.append(helper.make_opsetid("other", 1))
    assert "node here (Relu)" in refusal(made)
    assert "requires that the model imports its opset" in refusal(made)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda g: g.node[0].input.append("later"),
            'requires "later", which is not an input, an initializer or an output',
        ),
        (lambda g: g.output.append(info("z", None)), 'output "z" is not an output of a node'),
        (lambda g: g.input.append(info("x")), "different names, got x twice"),
        (lambda g: g.input.append(info("")), "an input of the model requires a name"),
        (lambda g: g.initializer.extend([tensor(raw_data=bytes(24))] * 2), "initializer w is defined twice"),
        (lambda g: g.initializer.append(tensor("", raw_data=bytes(24))), "initializer requires a name"),
        (lambda g: g.node.append(node("Relu", name="again")), 'node again (Relu): defines "y" a second time'),
        (lambda g: g.node.append(node("Relu", outputs="x", name="on")), 'node on (Relu): defines "x" a second time'),
        (lambda g: g.ClearField("output"), "the graph requires an output, got none"),
        (lambda g: g.sparse_initializer.add().values.CopyFrom(tensor("s")), "initializer s is sparse"),
        (lambda g: g.ClearField("node"), 'output "y" is not an output of a node'),
    ],
)
def test_graphs_that_do_not_hold_together(change: Callable[[Any], None], words: str) -> None:
    made = model(node("Relu"))
    change(made.graph)
    assert words in refusal(made)


def test_cycles_are_refused_by_the_names_of_their_nodes() -> None:
    before = node("Relu", "x", "z", "before")
    cycle = node("Add", "b,z", "a", "first"), node("Relu", "a", "c", None), node("Relu", "c", "b", "third")
    words = "the nodes first -> c -> third -> first form a cycle: each depends on the previous one"
    assert refusal(model(before, *cycle, node("Relu", "b"))) == words
    assert "the nodes here -> here form a cycle" in refusal(model(node("Relu", "y")))
    long = [node("Relu", f"v{(i + 1) % 20}", f"v{i}", f"n{i}") for i in range(20)]
    assert ".. (14 more)" in refusal(model(*long, outputs=["v0"]))


# Inputs and their sizes.


def test_open_dims_are_named_with_what_fixes_them() -> None:
    open_ = model(node("Relu"), inputs=[info("x", ("batch", 3, "width"))])
    message = refusal(open_, dims={"batch": 2})
    assert message == 'input x has open dimensions, axis 2 (width); dims={"width": 64} fixes them'
    assert str(program_of_model(open_, dims={"batch": 2, "width": 5}).term.type) == "()(2 3 5) float32"
    nameless = model(node("Relu"), inputs=[info("x", (None, 3))])
    assert refusal(nameless) == 'input x has open dimensions, axis 0; shapes={"x": [1, 3]} fixes them'
    assert str(program_of_model(nameless, shapes={"x": (4, 3)}).term.type) == "()(4 3) float32"
    shapeless = model(node("Relu"), inputs=[info("x", None)])
    assert 'input x has no shape; shapes={"x": [' in refusal(shapeless)
    assert "axis 0" in refusal(model(node("Relu"), inputs=[info("x", (-5, 3))]))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dims": {"bach": 2}}, "a size is given for bach, but the dimensions of the model are batch"),
        ({"shapes": {"z": (2,)}}, "a shape is given for z, but the inputs of the model are x"),
        ({"dims": {"batch": -2}}, "batch requires sizes of at least 0, got -2"),
        ({"dims": {"batch": 1.5}}, "batch requires sizes of at least 0, got 1.5"),
        ({"dims": {"batch": "2"}}, "batch requires sizes of at least 0, got '2'"),
        ({"shapes": {"x": 3}}, "x requires a list of sizes, got 3"),
        ({"shapes": {"x": (2, -3)}}, "x requires sizes of at least 0, got -3"),
        ({"shapes": {"x": (2,)}}, "input x requires a shape of 2 sizes, got (2)"),
        ({"dims": {"batch": 2**60}}, "input x requires at most 1099511627776 elements, got (1152921504606846976 3)"),
        ({"shapes": {"x": (2**60, 0)}}, "input x requires at most 1099511627776 elements"),
    ],
)
def test_sizes_that_do_not_fit(arguments: dict[str, Any], words: str) -> None:
    assert words in refusal(model(node("Relu"), inputs=[info("x", ("batch", 3))]), **arguments)


def test_a_shape_is_for_inputs_without_a_value_only() -> None:
    made = model(node("Add", "x,w"), inputs=[info("x"), info("w")], initializer=[tensor(raw_data=bytes(24))])
    assert refusal(made, shapes={"w": (2, 3)}) == "a shape is given for w, but the inputs of the model are x"
    assert list(program_of_model(made).inputs) == ["x"]


def test_inputs_that_are_no_tensors_of_numbers() -> None:
    sequence = helper.make_tensor_sequence_value_info("x", FLOAT, None)
    assert refusal(model(node("Relu"), inputs=[sequence])) == "input x requires a tensor, got sequence"
    untyped = onnx.ValueInfoProto(name="x")
    assert refusal(model(node("Relu"), inputs=[untyped])) == "input x requires a tensor, got nothing"
    for dtype, name in ((TensorProto.STRING, "string"), (TensorProto.COMPLEX64, "complex64"), (77, "77")):
        message = refusal(model(node("Relu"), inputs=[info("x", (2,), dtype)]))
        assert message.startswith("input x: an element type ")
        assert message.endswith(f"got {name}")
    assert "at most 30 axes, got 40" in refusal(model(node("Relu"), inputs=[info("x", [1] * 40)]))


# Nodes.


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (node("Frobnicate"), "the operator Frobnicate of version 17 has no meaning here"),
        (node(""), "requires the name of an operator, got none"),
        (node("Add", "x"), "requires 2 inputs, got 1"),
        (node("Relu", "x,x"), "requires 1 input, got 2"),
        (node("Add", "x,"), "input 1 is required, got an empty name"),
        (node("Relu", ""), "input 0 is required, got an empty name"),
        (node("Relu", "x", "y,z"), "has at most 1 output, got 2"),
        (node("Not"), "input 0 requires bool, got float32"),
        (node("Gather", "x,x"), "input 1 requires int32 or int64, got float32"),
        (node("Add", "x,n"), "input 1 requires float32 as the inputs before it, got int64"),
        (node("Concat"), "requires the attribute axis, got none"),
        (node("Concat", axis="1"), "attribute axis requires a whole number, got a text, 1"),
        (node("Concat", axis=1.5), "attribute axis requires a whole number, got a number with a fraction, 1.5"),
        (node("Concat", axis=[1]), "attribute axis requires a whole number, got a list, [1]"),
        (node("Transpose", perm=1), "attribute perm requires a list of whole numbers, got a whole number, 1"),
        (node("Transpose", prem=[1, 0]), "has no attribute prem; did you mean perm?"),
        (node("Relu", alpha=1.0), "has no attribute alpha; it has none"),
        (node("LeakyRelu", alpha=1), "attribute alpha requires a number with a fraction, got a whole number, 1"),
        (node("Constant", "", value=1.0), "attribute value requires a tensor, got a number with a fraction, 1.0"),
        (node("Relu", domain="other"), 'a node of the domain "other" requires that the model imports its opset'),
    ],
)
def test_nodes_that_are_not_what_onnx_says(bad: Any, words: str) -> None:
    if bad.op_type == "Constant":
        del bad.input[:]
    message = refusal(model(bad, inputs=[info("x"), info("n", (2, 3), TensorProto.INT64)]))
    assert message.startswith(f"node here ({bad.op_type}): ")
    assert words in message


def test_attributes_that_cannot_be_read() -> None:
    twice = node("Concat", axis=0)
    twice.attribute.append(helper.make_attribute("axis", 1))
    assert refusal(model(twice)) == "node here (Concat): attribute axis is given twice"
    untyped = node("Concat", axis=0)
    untyped.attribute[0].ClearField("type")
    assert "attribute axis requires a value of a known type, got type 0" in refusal(model(untyped))
    bytes_ = node("DepthToSpace", blocksize=1, mode=b"\xff\xfe")
    assert r"attribute mode requires UTF-8 text, got b'\xff\xfe'" in refusal(model(bytes_))


def test_a_node_without_a_name_is_named_by_its_place() -> None:
    assert refusal(model(node("Relu", outputs="z"), node("Add", "z", name=None))).startswith("node #1 (Add): ")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (b"the_node", "Node name"),
        (b"the_value", "ValueInfo name"),
        (b"the_input", "Node input"),
        (b"the_dim", "Dimension dim_param"),
        (b"the_weight", "Tensor name"),
        (b"the_graph", "Graph name"),
        (b"the_attribute", "Attribute name"),
    ],
)
def test_names_that_are_not_utf_8(text: bytes, where: str) -> None:
    made = model(
        helper.make_node("Relu", ["the_input"], ["y"], "the_node", the_attribute=1),
        inputs=[info("the_value", ("the_dim",))],
        initializer=[tensor("the_weight", raw_data=bytes(24))],
    )
    made.graph.name = "the_graph"
    broken = made.SerializeToString().replace(text, text[:-1] + b"\xff")
    message = refusal(onnx.ModelProto.FromString(broken), dims={})
    assert "a name requires UTF-8 text, got b'the_" in message
    assert message.endswith(f" as {where}")


def test_names_with_other_characters_are_kept_and_shown_on_one_line() -> None:
    name = 'layer 1/"quoted"\nsecond \x1b[31m line'
    made = model(node("Relu", name), inputs=[info(name)])
    program = program_of_model(made)
    assert list(program.inputs) == [name]
    assert parse(print_program(program)).term is program.term
    missing = refusal(model(node("Relu", name + "!", name=name)))
    assert "requires " in missing


# Functions and subgraphs.


def function(name: str, *nodes: Any, inputs: Sequence[str] = ("a",), outputs: Sequence[str] = ("b",)) -> Any:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, inputs, outputs, nodes, opsets)


def calling(name: str, *functions: Any) -> Any:
    return model(node(name, domain="own"), functions=functions, domains=["own"])


def test_functions_that_call_themselves() -> None:
    again = function("f", node("f", "a", "b", domain="own"))
    assert refusal(calling("f", again)) == "function own.f calls itself, which ONNX does not allow"
    two = [function(a, node(b, "a", "b", domain="own")) for a, b in (("f", "g"), ("g", "f"))]
    assert "calls itself" in refusal(calling("f", *two))


def test_functions_that_are_not_whole() -> None:
    relu = function("f", node("Relu", "a", "b"))
    assert refusal(calling("f", relu, relu)) == "function own.f is declared twice"
    assert refusal(calling("f", function("f"))) == 'output "b" of function own.f is made by no node'
    unknown = function("f", node("Relu", "q", "b", "inner"))
    assert refusal(calling("f", unknown)).startswith('node here/inner (Relu): requires "q"')
    many = model(node("f", "x,x", domain="own"), functions=[relu], domains=["own"])
    assert "the function f has 1 inputs, got 2" in refusal(many)


def test_functions_that_double_thirty_times_are_refused() -> None:
    """Two calls of the next in each of them: 2^30 nodes of a file of some kilobytes."""
    chain = [
        function(f"f{i}", node(f"f{i + 1}", "a", "c", domain="own"), node(f"f{i + 1}", "c", "b", domain="own"))
        for i in range(30)
    ]
    message = refusal(calling("f0", *chain, function("f30", node("Relu", "a", "b"))))
    assert message.startswith("function own.f14 has more than 100000 nodes, those of what it calls included")


def test_functions_deep_in_each_other() -> None:
    chain = [function(f"f{i}", node(f"f{i + 1}", "a", "b", domain="own")) for i in range(100)]
    message = refusal(calling("f0", *chain, function("f100", node("Relu", "a", "b"))))
    assert "graphs and functions may be nested 64 deep at most" in message


def wrapped(content: bytes, *fields: int) -> bytes:
    """Messages in each other: the content as a field of these numbers, the innermost first."""
    for number in fields:
        length, size = bytearray(), len(content)
        while size > 127:
            length.append(size & 127 | 128)
            size >>= 7
        content = bytes([number << 3 | 2, *length, size]) + content
    return content


def test_subgraphs_deeper_than_protobuf_reads(tmp_path: Path) -> None:
    graph = helper.make_graph([], "inner", [], [info("x", None)]).SerializeToString()
    for _ in range(1000):
        graph = wrapped(graph, 6, 5, 1)  # GraphProto.node.attribute.g
    path = tmp_path / "model.onnx"
    path.write_bytes(wrapped(graph, 7))
    with pytest.raises(BadInput, match="nested deeper than protobuf reads"):
        load_onnx(path)


@pytest.mark.slow
def test_models_that_were_changed_at_random(fuzzing: Fuzzing) -> None:
    pytest.importorskip("resource")
    from fuzz_onnx import fuzz

    done, found = fuzz(fuzzing.seconds(10), seed=fuzzing.first())
    assert found == {}
    assert done > (100 if fuzzing.minutes is None else 0)
