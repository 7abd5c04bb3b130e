"""Tests programs as JSON: round trips, and wrong files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compute_examples import COMPUTES
from example_values import Example
from hypothesis import given, settings
from operator_examples import OPERATORS
from random_terms import terms

import glenside as gl
from glenside.exporters.json import load_json, program_json, program_of_json, save_json
from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.ir.types import Dims, Tensor

EXAMPLES = [
    (name, example) for table in (OPERATORS, COMPUTES) for name, examples in table.items() for example in examples
]


def network() -> Program:
    return gl.models.mobilenet_v1(width=0.25, resolution=32, classes=4)


def small() -> dict[str, Any]:
    """Returns a document that each test spoils in one place."""
    x = build("access-tensor", Tensor("x", Dims((2, 3)), "float32"))
    pad = build("access-pad", build("access", x, 1), "zero-padding", 1, 0, 2)
    return program_json(Program(build("access-reshape", pad, ((2, 1), (5,))), "small"))


@pytest.mark.parametrize(("name", "example"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_every_operator_comes_back(name: str, example: Example) -> None:
    document = json.loads(json.dumps(program_json(Program(example.term))))
    assert program_of_json(document).term is example.term


@settings(max_examples=50, deadline=None)
@given(terms())
def test_random_terms_come_back(term: Term) -> None:
    assert program_of_json(json.loads(json.dumps(program_json(Program(term))))).term is term


def test_files_keep_everything(tmp_path: Path) -> None:
    program = network()
    save_json(program, tmp_path / "net.json")
    again = load_json(tmp_path / "net.json")
    assert again.term is program.term
    assert (again.name, dict(again.layers), dict(again.labels)) == (program.name, program.layers, program.labels)
    assert again.constants.keys() == program.constants.keys()
    assert all(np.array_equal(again.constants[name], program.constants[name]) for name in program.constants)
    save_json(again, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "net.json").read_bytes()


@pytest.mark.slow
def test_an_optimized_program_keeps_its_layers() -> None:
    program = gl.optimize(network(), gl.SystolicArray(8, 8)).program
    again = program_of_json(program_json(program))
    assert again.term is program.term
    assert dict(again.layers) == program.layers


def test_deep_terms_come_back() -> None:
    term = build("access-tensor", Tensor("x", Dims((2,)), "float32"))
    for _ in range(20_000):
        term = build("compute", "negative", term)
    assert program_of_json(program_json(Program(term))).term is term


def test_types_of_tuples_in_tuples_do_not_grow() -> None:
    leaf = build("access-tensor", Tensor("x", Dims((2,)), "float32"))
    nested = build("construct-tuple", build("construct-tuple", leaf, leaf), leaf)
    document = program_json(Program(nested))
    assert [node["type"] for node in document["nodes"]][-2:] == [{"tuple": 2}, {"tuple": 2}]
    assert program_of_json(document).term is nested


def test_types_and_names_may_be_left_out() -> None:
    document = small()
    for key in ("layers", "labels", "names", "values"):
        del document[key]
    for node in document["nodes"]:
        del node["type"]
    assert program_of_json(document).term is program_of_json(small()).term


def test_weights_of_another_file(tmp_path: Path) -> None:
    w = build("access-tensor", Tensor("w", Dims((2,)), "float32", constant=True))
    save_json(Program(w, constants={"w": np.zeros(2, "float32")}), tmp_path / "p.json")
    np.savez(tmp_path / "other.npz", w=np.ones(2, "float32"))
    assert load_json(tmp_path / "p.json", tmp_path / "other.npz").constants["w"].tolist() == [1, 1]
    np.savez(tmp_path / "none.npz", v=np.ones(2, "float32"))
    with pytest.raises(BadInput, match=r"none\.npz requires the constant w, which .*p\.json names"):
        load_json(tmp_path / "p.json", tmp_path / "none.npz")


SPOILED = {
    "format": ({"format": "onnx"}, '"format": "glenside-program", got an object'),
    "version": ({"version": 2}, "version 1 of the format, got 2"),
    "name": ({"name": 3}, "name requires a string, got 3"),
    "nodes": ({"nodes": {}}, "nodes requires a list, got an object"),
    "result": ({"result": 9}, "result requires the position of one of the 4 nodes before it, got 9"),
    "a result that is true": ({"result": True}, "result requires the position .* got true"),
    "layers": ({"layers": {"a": -1}}, "layers: a requires the position .* got -1"),
    "labels": ({"labels": {"a": 1}}, "the label of a requires a string, got 1"),
    "values": ({"values": [1]}, "values requires a list of names"),
    "tensors": ({"tensors": [{"name": "x"}]}, 'tensor 0 requires an object of .*, got "none of constant"'),
}


@pytest.mark.parametrize(("change", "message"), SPOILED.values(), ids=SPOILED)
def test_a_spoiled_document_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        program_of_json({**small(), **change})


NODES = {
    "unknown operator": (
        2,
        {"operator": "eval"},
        'the operator of node 2 requires the name of an operator, got "eval"',
    ),
    "forward reference": (
        2,
        {"children": [2]},
        r"child 0 of node 2 \(access-pad\) requires the position of one of the 2",
    ),
    "float as position": (2, {"children": [1.0]}, r"child 0 of node 2 \(access-pad\) requires .* got 1\.0"),
    "too many children": (2, {"children": [0, 1]}, r"node 2 \(access-pad\) requires 1 children, got 2"),
    "attribute of another kind": (1, {"attributes": {"split": "1"}}, r"split of node 1 \(access\) requires an integer"),
    "number too long": (1, {"attributes": {"split": 2**64}}, r"split of node 1 \(access\) requires an integer"),
    "missing attribute": (1, {"attributes": {}}, r"node 1 \(access\) requires the attributes split"),
    "access shape": (
        3,
        {"attributes": {"target": [1]}},
        r"target of node 3 \(access-reshape\) requires an object of two",
    ),
    "unknown tensor": (
        0,
        {"attributes": {"tensor": "y"}},
        r"tensor of node 0 \(access-tensor\) requires the name of a",
    ),
    "what the operator refuses": (
        1,
        {"attributes": {"split": 7}},
        r"node 1 \(access\): access requires 0 <= split <= 2",
    ),
    "a type that is not its": (
        1,
        {"type": {"shape": [3], "item": [2], "dtype": "float32"}},
        r"node 1 \(access\) is of type",
    ),
    "an unknown key": (1, {"size": 3}, 'node 1 requires an object of .* got "size"'),
    "more elements than any machine has": (
        2,
        {"attributes": {"kind": "zero-padding", "axis": 1, "before": 2**62, "after": 2**62}},
        r"node 2 \(access-pad\): access-pad requires a result of less than 2\^63 elements",
    ),
}


@pytest.mark.parametrize(("place", "change", "message"), NODES.values(), ids=NODES)
def test_a_spoiled_node_is_told_by_its_position(place: int, change: dict[str, Any], message: str) -> None:
    document = small()
    document["nodes"][place] |= change
    with pytest.raises(BadInput, match=message):
        program_of_json(document)


def test_a_spoiled_compute_type_is_refused() -> None:
    x = build("access-tensor", Tensor("x", Dims((2,)), "float32"))
    document = program_json(Program(build("compute", "relu", x)))
    for kind in ("", "()", "(clip)", "(relu 1)", "Relu"):
        document["nodes"][1]["attributes"]["kind"] = kind
        with pytest.raises(BadInput, match=r"node 1 \(compute\): "):
            program_of_json(document)


TEXTS = {
    "no JSON": ('{"a": \n x}', r"p\.json:2:2: a program requires JSON"),
    "no object": ("[]", "got a list of 0"),
    "a name twice": ('{"name": "a", "name": "b"}', 'different names, got "name" twice'),
    "too deep": ("[" * 100_000, "too deep"),
    "a number too long": ('{"a": ' + "1" * 5000 + "}", "too long"),
}


@pytest.mark.parametrize(("text", "message"), TEXTS.values(), ids=TEXTS)
def test_a_file_that_is_no_program_is_refused_by_its_path(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=message) as raised:
        load_json(path)
    assert str(path) in raised.value.message


def test_nothing_is_written_when_something_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "net.json").mkdir()
    with pytest.raises(BadInput, match="cannot write"):
        save_json(network(), tmp_path / "net.json")
    assert [path.name for path in tmp_path.iterdir()] == ["net.json"]
