"""Defines the door of ONNX models: imports them, compares with other runtimes, and then uses another door."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from glenside.fuzzing.compiling import compiled
from glenside.fuzzing.doors import Visit, door
from glenside.fuzzing.models import Model
from glenside.fuzzing.searching import optimized
from glenside.fuzzing.writing import RUNTIME_SECONDS, exported
from glenside.importers.onnx import program_of_model
from glenside.importers.onnx.sessions import CannotRun, Session
from glenside.ir.dtypes import fraction_bits
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.packages import import_onnx
from glenside.ir.tuples import arrays_of

_ATTRIBUTES = 2.0 ** -fraction_bits("float32")
"""The unit in the last place of attributes, by which results of float64 differ."""
_LARGEST = 64
_WEIGHTING = ("Resize", "Upsample", "LRN")
_REFERENCE_DIFFERS = ("LpNormalization", "MaxPool", "Resize", "Upsample", "Slice", "LogSoftmax", "LRN")
"""Operators of which ONNX's reference computes other results than onnxruntime: it sums without magnitudes, pools one
window too many, scales by lengths that are no integers, slices backwards from before an axis as Python does, takes
logarithms of 0, and leaves the last channel as it is.
"""
_ANOTHER_DOOR = 0.1
"""The share of programs that go through another door, too: that takes 20 times as long as the import."""
_REFERENCE = 13
"""The oldest version of ONNX that its reference computes: of some operators it has the current meaning only."""


@door(
    "import",
    r"batch_axis and time_axis require",
    r"requires numbers, got .* bool",
    r"k requires one number from 0 to",
    form="model",
    weight=3,
    needs=("onnx",),
)
def imported(visit: Visit) -> None:
    """Imports a random ONNX model, compares with onnxruntime or ONNX's reference, and optimizes, compiles or exports
    it.
    """
    model = Model.of(visit.case.text)
    try:
        proto = model.proto()
        visit.stage("onnx")  # its shape inference, in C++
        import_onnx().checker.check_model(proto, full_check=True)
        visit.stage("")
    except Exception as error:  # the description is not a valid model
        visit.note(f"not valid: {' '.join(str(error).split())[:60]}")
        return
    for op, domain, *_ in model.nodes:
        visit.note(f"reads {domain} {op} {model.opset}")
    visit.program = program_of_model(proto)
    largest = 2 if any(op == "ReduceProd" for op, *_ in model.nodes) else _LARGEST
    visit.values = visit.values | {name: _moderate(visit.values[name], largest) for name in visit.program.inputs}
    values = {name: visit.values[name] for name in model.inputs if name in visit.values}
    absent = {name: np.zeros(dims, dtype) for name, (dtype, dims) in model.inputs.items() if name not in values}
    found = _reference_results(visit, proto, model.opset, {**values, **absent})
    if found is not None and (visit.expected.orders_nans or _weights_nans(model, found)):
        return
    if found is not None:
        visit.expected.compare("beside another runtime", found, _ATTRIBUTES)
    if visit.pick.random() < _ANOTHER_DOOR:
        then = visit.pick.choice((compiled, optimized, exported))
        inner = replace(visit)
        inner.values = visit.values
        then(inner)


def _weights_nans(model: Model, results: Sequence[Array]) -> bool:
    """True if an operator may weight an infinity or a nan with 0, or not read it: runtimes differ in that."""
    weights = any(op in _WEIGHTING for op, *_ in model.nodes)
    return weights and any(np.isnan(array).any() for array in results if array.dtype.kind == "f")


def _moderate(array: Array, largest: int) -> Array:
    """Returns integers below a magnitude: other runtimes compute some integer operators in float32, or saturate."""
    return np.fmod(array, largest).astype(array.dtype) if array.dtype in (np.int32, np.int64) else array


def _reference_results(visit: Visit, proto: Any, opset: int, inputs: Mapping[str, Array]) -> Sequence[Array] | None:
    """Returns the results of onnxruntime, else of ONNX's reference; None if neither runs the model."""
    content = proto.SerializeToString()
    try:
        session = Session(content, "the model", threads=1, seconds=RUNTIME_SECONDS)
        visit.note("runs in onnxruntime")
        return session.run(inputs)
    except (CannotRun, BadInput):
        pass
    if opset < _REFERENCE or any(node.op_type in _REFERENCE_DIFFERS for node in proto.graph.node):
        return None
    from onnx.reference import ReferenceEvaluator

    try:
        found = [np.asarray(a) for a in ReferenceEvaluator(proto).run(None, dict(inputs))]
    except Exception:
        return None
    wanted = [term.access.dtype for term in arrays_of(visit.program.term)]  # it widens sums of integers
    return [a.astype(dtype) if a.dtype.kind in "iu" else a for a, dtype in zip(found, wanted, strict=True)]
