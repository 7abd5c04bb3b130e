"""What an ONNX file may do wrong: each is one sentence that names the place and says what would be right."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from glenside.importers.onnx import load_onnx, program_of_model  # noqa: E402
from glenside.ir.errors import BadInput  # noqa: E402
from glenside.ir.interpreter import evaluate  # noqa: E402
from glenside.ir.text import parse, print_program  # noqa: E402

FLOAT = TensorProto.FLOAT


def info(name: str, dims: Sequence[int | str | None] | None = (2, 3), dtype: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, dims)


def model(
    *nodes: Any, inputs: Sequence[Any] = (info("x"),), outputs: Sequence[str] = ("y",), opset: int = 17, **kw: Any
) -> Any:
    """A model that nobody has checked; it gives y."""
    functions, domains = kw.pop("functions", ()), kw.pop("domains", ())
    graph = helper.make_graph(nodes, "graph", inputs, [info(name, None) for name in outputs], **kw)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)


def node(op: str, inputs: str = "x", outputs: str = "y", name: str | None = "here", **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(","), outputs.split(","), name, **attributes)


def refusal(made: Any, **arguments: Any) -> str:
    """The one sentence with which the model is refused."""
    with pytest.raises(BadInput) as raised:
        program_of_model(made, **arguments)
    message = str(raised.value)
    assert message.isprintable()
    assert len(message) < 400
    return message


def tensor(name: str = "w", dims: Sequence[int] = (2, 3), dtype: int = FLOAT, **fields: Any) -> Any:
    return TensorProto(name=name, dims=dims, data_type=dtype, **fields)


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
    with pytest.raises(BadInput, match="at most 2147483647; larger weights lie in files beside it"):
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
        (lambda g: g.node[0].input.append("later"), 'requires "later", which no input, initializer or node'),
        (lambda g: g.output.append(info("z", None)), 'output "z" is made by no node'),
        (lambda g: g.input.append(info("x")), "different names, got x twice"),
        (lambda g: g.input.append(info("")), "an input of the model requires a name"),
        (lambda g: g.initializer.extend([tensor(raw_data=bytes(24))] * 2), "initializer w is there twice"),
        (lambda g: g.initializer.append(tensor("", raw_data=bytes(24))), "initializer requires a name"),
        (lambda g: g.node.append(node("Relu", name="again")), 'node again (Relu): makes "y", which is there already'),
        (lambda g: g.node.append(node("Relu", outputs="x", name="on")), 'node on (Relu): makes "x", which is there'),
        (lambda g: g.ClearField("output"), "the graph requires an output, got none"),
        (lambda g: g.sparse_initializer.add().values.CopyFrom(tensor("s")), "initializer s is sparse"),
        (lambda g: g.ClearField("node"), 'output "y" is made by no node'),
    ],
)
def test_graphs_that_do_not_hold_together(change: Callable[[Any], None], words: str) -> None:
    made = model(node("Relu"))
    change(made.graph)
    assert words in refusal(made)


def test_cycles_and_nodes_that_are_not_in_order() -> None:
    cycle = node("Relu", "b", "a", "first"), node("Relu", "a", "b", "second")
    backwards = node("Relu", "a", "y", "first"), node("Relu", "x", "a", "second")
    for nodes in (cycle, backwards, (node("Relu", "y"),)):
        message = refusal(model(*nodes, outputs=[nodes[-1].output[0]]))
        assert "the nodes have a cycle, or are not in order" in message
        assert message.startswith(f"node {nodes[0].name} (Relu): requires ")


# Inputs and their sizes.


def test_open_dims_are_named_with_what_fixes_them() -> None:
    open_ = model(node("Relu"), inputs=[info("x", ("batch", 3, "width"))])
    message = refusal(open_, dims={"batch": 2})
    assert message == "input x has open dimensions, axis 2 (width); --dim width=1 fixes them"
    assert str(program_of_model(open_, dims={"batch": 2, "width": 5}).term.type) == "()(2 3 5) float32"
    nameless = model(node("Relu"), inputs=[info("x", (None, 3))])
    assert refusal(nameless) == "input x has open dimensions, axis 0; --shape x=1,3 fixes them"
    assert str(program_of_model(nameless, shapes={"x": (4, 3)}).term.type) == "()(4 3) float32"
    shapeless = model(node("Relu"), inputs=[info("x", None)])
    assert "input x has no shape; --shape x=" in refusal(shapeless)
    assert "axis 0" in refusal(model(node("Relu"), inputs=[info("x", (-5, 3))]))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dims": {"bach": 2}}, "a size is given for bach, but the dimensions of the model are batch"),
        ({"shapes": {"z": (2,)}}, "a shape is given for z, but the inputs of the model are x"),
        ({"dims": {"batch": -2}}, "batch requires sizes of at least 0, got -2"),
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


def test_functions_that_double_thirty_times_are_refused_in_time() -> None:
    """Two calls of the next in each of them: 2^30 nodes of a file of some kilobytes."""
    chain = [
        function(f"f{i}", node(f"f{i + 1}", "a", "c", domain="own"), node(f"f{i + 1}", "c", "b", domain="own"))
        for i in range(30)
    ]
    start = time.perf_counter()
    message = refusal(calling("f0", *chain, function("f30", node("Relu", "a", "b"))))
    assert "comes after 100000 others" in message
    assert time.perf_counter() - start < 15


def test_functions_deep_in_each_other() -> None:
    chain = [function(f"f{i}", node(f"f{i + 1}", "a", "b", domain="own")) for i in range(100)]
    message = refusal(calling("f0", *chain, function("f100", node("Relu", "a", "b"))))
    assert "graphs and functions may stand 64 deep in each other, got more" in message


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


# Tensors.


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (tensor(raw_data=bytes(23)), "tensor w of (2 3) float32 requires 24 bytes, got 23"),
        (tensor(raw_data=bytes(25)), "tensor w of (2 3) float32 requires 24 bytes, got 25"),
        (tensor(float_data=[1.0] * 5), "tensor w requires the elements of (2 3) float32"),
        (tensor(int64_data=[1] * 6), "tensor w requires the elements of (2 3) float32"),
        (tensor(dims=(-2, 3), raw_data=bytes(24)), "tensor w requires sizes of at least 0, got (-2 3)"),
        (tensor(dims=(2**60,), raw_data=bytes(24)), "tensor w requires at most 1099511627776 elements"),
        (tensor(dims=(2**39,), float_data=[1.0]), "tensor w requires the elements of (549755813888) float32"),
        (tensor(dims=(0, 2**60)), "tensor w requires at most 1099511627776 elements"),
        (tensor(dims=[1] * 70, raw_data=bytes(4)), "tensor w requires at most 30 axes, got 70"),
        (tensor(dtype=TensorProto.STRING, string_data=[b"a"] * 6), "tensor w: an element type is one of"),
        (tensor(dtype=0, raw_data=bytes(24)), "tensor w: an element type requires a number that ONNX knows, got 0"),
        (tensor(dtype=1000, raw_data=bytes(24)), "tensor w: an element type requires a number that ONNX knows"),
        (tensor(data_location=TensorProto.EXTERNAL), "tensor w requires a file of its data beside the model, got none"),
    ],
)
def test_tensors_that_are_not_what_they_say(weight: Any, words: str) -> None:
    assert words in refusal(model(node("Add", "x,w"), initializer=[weight]))
    inner = refusal(model(helper.make_node("Constant", [], ["y"], "here", value=weight)))
    assert inner.startswith("node here (Constant): ")
    assert words in inner


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Expand", "x,n")],
        [node("ConstantOfShape", "n", "f"), node("Add", "x,f")],
        [node("Tile", "x,n")],
        [node("Reshape", "x,n")],
    ],
)
def test_sizes_that_no_machine_holds(nodes: Sequence[Any]) -> None:
    """They are refused by number, before anything of that size is made."""
    huge = numpy_helper.from_array(np.array([2**40, 2**40]), "n")
    start = time.perf_counter()
    message = refusal(model(*nodes, initializer=[huge]))
    assert message.startswith("node here (")
    assert "cannot be read" not in message
    assert "has no meaning" not in message
    assert time.perf_counter() - start < 2


def test_what_is_computed_beforehand_is_small() -> None:
    """A shape computed from 2^36 elements, none of which is needed."""
    sizes = numpy_helper.from_array(np.array([2**36]), "n")
    zero = numpy_helper.from_array(np.array([0, 1]), "i")
    nodes = [
        node("ConstantOfShape", "n", "f", "filled", value=helper.make_tensor("v", TensorProto.INT64, [1], [6])),
        node("Gather", "f,i", "s", "few"),
        node("Reshape", "x,s"),
    ]
    message = refusal(model(*nodes, initializer=[sizes, zero]))
    assert message.startswith("node here (Reshape): what must be known beforehand is computed from at most 67108864")


@pytest.mark.slow
def test_ten_seconds_of_models_that_were_changed_at_random() -> None:
    pytest.importorskip("resource")
    from fuzz_onnx import fuzz

    done, found = fuzz(10, seed=0)
    assert found == {}
    assert done > 100


# Weights in other files.


def external(location: str, dims: Sequence[int] = (2, 3), **entries: Any) -> Any:
    weight = tensor(dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        weight.external_data.add(key=key, value=str(value))
    return model(node("Add", "x,w"), initializer=[weight])


def saved(made: Any, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def test_weights_in_another_file(tmp_path: Path) -> None:
    values = np.arange(8, dtype="<f4")
    values.tofile(tmp_path / "weights.bin")
    program = load_onnx(saved(external("weights.bin", offset=8, length=24), tmp_path))
    assert program.constants["w"].tolist() == [[2, 3, 4], [5, 6, 7]]
    x = np.ones((2, 3), np.float32)
    (y,) = evaluate([program.term], {**program.constants, "x": x})
    assert y.tolist() == [[3, 4, 5], [6, 7, 8]]
    empty = load_onnx(saved(external("weights.bin", dims=(0, 3)), tmp_path), shapes={"x": (0, 3)})
    assert empty.constants["w"].shape == (0, 3)


@pytest.mark.parametrize(
    ("location", "entries", "words"),
    [
        ("none.bin", {}, "tensor w: cannot read none.bin: No such file"),
        ("../weights.bin", {}, 'in a file of the model\'s folder, got "../weights.bin"'),
        ("sub/../../weights.bin", {}, "in a file of the model's folder"),
        ("link.bin", {}, 'in a file of the model\'s folder, got "link.bin"'),
        (".", {}, "in a file of the model's folder"),
        ("sub", {}, "tensor w: cannot read sub: Is a directory"),
        ("a\0b", {}, "tensor w: cannot read"),
        ("", {}, "requires a file of its data beside the model, got none"),
        ("weights.bin", {"length": 20}, "tensor w of (2 3) float32 requires a length of 24 bytes, got 20"),
        ("weights.bin", {"offset": 12}, "requires bytes 12 to 36 of weights.bin, which has 32 bytes"),
        ("weights.bin", {"offset": 2**62}, "which has 32 bytes"),
        ("weights.bin", {"offset": -1}, 'tensor w requires an offset in bytes, got "-1"'),
        ("weights.bin", {"offset": "zero"}, 'tensor w requires an offset in bytes, got "zero"'),
        ("weights.bin", {"length": "9" * 6000}, "tensor w requires a length in bytes"),
    ],
)
def test_weights_in_files_that_do_not_do(location: str, entries: dict[str, Any], words: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    for place in (tmp_path, folder):
        (place / "weights.bin").write_bytes(bytes(32))
    (folder / "link.bin").symlink_to(tmp_path / "weights.bin")
    with pytest.raises(BadInput) as raised:
        load_onnx(saved(external(location, **entries), folder))
    assert words in str(raised.value)


def test_an_absolute_path_is_refused_even_to_the_right_folder(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes(24))
    with pytest.raises(BadInput, match="in a file of the model's folder"):
        load_onnx(saved(external(str(tmp_path / "weights.bin")), tmp_path))


LIMITED = """
import resource, sys, time
from glenside.importers.onnx import load_onnx
import onnx

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
start = time.perf_counter()
program = load_onnx(sys.argv[1])
print(time.perf_counter() - start, resident(), sum(c.size for c in program.constants.values()))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the peak of memory is read from /proc")
def test_two_gigabytes_of_weights_are_mapped_not_read(tmp_path: Path) -> None:
    """In 200 tensors of one file, with fewer files open at once than that."""
    with (tmp_path / "weights.bin").open("wb") as file:
        file.truncate(2 << 30)
    count, size = 200, (2 << 30) // 200 // 4 // 1024
    weights = []
    for i in range(count):
        weight = tensor(f"w{i}", (size, 1024), data_location=TensorProto.EXTERNAL)
        for key, value in {"location": "weights.bin", "offset": i * size * 4096, "length": size * 4096}.items():
            weight.external_data.add(key=key, value=str(value))
        weights.append(weight)
    nodes = [node("Add", f"v{i},w{i}", f"v{i + 1}", f"add{i}") for i in range(count)]
    made = model(*nodes, inputs=[info("v0", (1, 1024))], outputs=[f"v{count}"], initializer=weights)
    path = saved(made, tmp_path)
    command = [sys.executable, "-c", LIMITED, str(path)]
    outcome = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent.parent)
    seconds, megabytes, elements = map(float, outcome.stdout.split())
    assert elements == count * size * 1024
    assert seconds < 2
    assert megabytes < 300
