"""Nests that are alike are one function, and what is printed is what it would be if each were printed."""

from __future__ import annotations

import itertools
from itertools import product
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from slow_cases import quick

import glenside as gl
from glenside.codegen.emit_c import printer
from glenside.codegen.loop_ir.structural_hash import alike
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import MACHINES, Machine
from glenside.importers.onnx.model import program_of_model

NETWORKS = {
    "mobilenet-v1": {"resolution": 32},
    "bert-base": {"layers": 3, "hidden": 24, "heads": 3, "intermediate": 40, "sequence": 9, "vocabulary": 31},
}


@pytest.mark.parametrize("machine", [MACHINES["avx2"], None], ids=["avx2", "plain"])
@pytest.mark.parametrize("name", quick(NETWORKS, 1))
def test_what_is_printed_once_is_the_same(name: str, machine: Machine | None, monkeypatch: Any) -> None:
    loops = lower(gl.models.load(name, **NETWORKS[name]).seeded_constants(0), machine)
    found = printer.source(loops)
    places = itertools.count()
    monkeypatch.setattr(printer, "alike", lambda body, _: (next(places), alike(body)[1]))
    assert str(found) == str(printer.source(loops))
    assert len(found.nests) < next(places)


def test_other_dtypes_and_places_are_not_alike() -> None:
    b = gl.Builder("p")
    results = [
        b.relu(b.input("a", (4, 6))),
        b.relu(b.input("b", (4, 6))),
        b.relu(b.input("c", (4, 6), "float64")),
        b.relu(b.input("d", (6, 4))),
        b.add(e := b.input("e", (4, 6)), e),
        b.add(b.input("f", (4, 6)), b.input("g", (4, 6))),
    ]
    loops = [lower(b.finish(result), None) for result in results]
    keys = [alike(one.nests[0].body)[0] for one in loops]
    assert keys[0] == keys[1]
    assert len({*keys}) == 5


@pytest.mark.parametrize(
    ("direction", "operator"),
    quick(product(["forward", "reverse", "bidirectional"], ["LSTM", "GRU", "RNN"]), 0, 4, 8, unpacked=True),
)
def test_steps_of_a_recurrence_share_functions(operator: str, direction: str) -> None:
    few, many = (
        len(printer.source(lower(_recurrence(operator, direction, n), MACHINES["avx2"])).nests) for n in (6, 18)
    )
    assert many <= few + 2


def _recurrence(operator: str, direction: str, steps: int) -> gl.Program:
    gates, count, size = {"LSTM": 4, "GRU": 3, "RNN": 1}[operator], 1 + (direction == "bidirectional"), 32
    shapes = {"w": (count, gates * size, size), "r": (count, gates * size, size)}
    node = helper.make_node(operator, ["x", "w", "r"], ["y"], hidden_size=size, direction=direction)
    graph = helper.make_graph(
        [node],
        "recurrence",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (steps, 1, size))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (steps, count, 1, size))],
        [numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in shapes.items()],
    )
    return program_of_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8))
