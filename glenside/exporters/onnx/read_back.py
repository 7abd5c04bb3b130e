"""Reads back ONNX files just written, and compares them with the intended program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glenside.importers.onnx.model import program_of_model, read_model
from glenside.importers.onnx.topological_order import in_order
from glenside.ir.dtypes import REALS, RECORDS
from glenside.ir.errors import BadInput, GlensideError
from glenside.ir.operand import Array, arrays
from glenside.ir.operators.requirements import spelled
from glenside.ir.packages import import_onnx
from glenside.ir.program import Program
from glenside.ir.replacing import PathLike, WrittenWrong
from glenside.ir.types import AccessType, Tensor
from glenside.semantics.effort import seconds
from glenside.semantics.interpreter import evaluate

MOST_SECONDS = 3.0
"""Values are compared if the interpreter is predicted to take at most this many seconds; it runs twice, in about
half.
"""
_TOLERANCE = 0.05
"""Tolerance of floats, relative to the largest magnitude; a wrong file differs by about 1."""
_FLIPPED = 0.02
"""The share of integers that may differ: integers computed from floats change where sums round differently."""


@dataclass(frozen=True)
class ReadBack:
    """The extent of a comparison: the structure always, and the values or why not."""

    values: str

    def __str__(self) -> str:
        return f"read back: structure equal; {self.values}"


def read_back(program: Program, written: Path, path: PathLike, data: Path | None = None) -> ReadBack:
    """Compares a temporary file with the program that it was written from.

      data  the temporary file of its external constants

    Raises WrittenWrong, as `compare` does.
    """
    model = read_model(written)
    if data is not None:
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = data.name
    return compare(program, model, path, written.parent, data is not None)


def compare(
    program: Program, model: Any, path: PathLike, folder: Path | None = None, external: bool = False
) -> ReadBack:
    """Compares a model, in a folder, with the program that it was made from; messages call it `path`.

      external  True if it has external constants

    Raises WrittenWrong if ONNX's checker refuses it, its nodes are not sorted, or its inputs, results, constants or
    values differ.
    """
    _check(model, path, external)
    try:
        found = program_of_model(model, folder=folder, allow_opaque=True)
    except GlensideError as error:
        raise WrittenWrong(path, f"the importer refuses it, {error.message}") from None
    _compare_types(program, found, path)
    return ReadBack(_compare_values(program, found, path))


def _check(model: Any, path: PathLike, external: bool) -> None:
    onnx = import_onnx()
    known = {value.name for value in (*model.graph.input, *model.graph.initializer)}
    if in_order(model.graph.node, known) != range(len(model.graph.node)):
        raise WrittenWrong(path, "its nodes are not sorted")
    if external:
        return  # the checker requires files under their final names
    standard = all(opset.domain in ("", "ai.onnx", "glenside") for opset in model.opset_import)
    try:
        onnx.checker.check_model(model, full_check=standard)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError) as error:
        words = " ".join(str(error).split())
        raise WrittenWrong(path, f"ONNX's checker refuses it, {words[:300]}") from None


def _compare_types(program: Program, found: Program, path: PathLike) -> None:
    inputs = [[(t.name, t.dims, t.dtype) for t in each.inputs.values()] for each in (program, found)]
    if inputs[0] != inputs[1]:
        raise WrittenWrong(path, f"its inputs are {_named(found.inputs)}, for {_named(program.inputs)}")
    kinds = [[(own.dims, own.dtype) for own in arrays_of(each)] for each in (program, found)]
    if kinds[0] != kinds[1]:
        raise WrittenWrong(path, "the types of its results differ")
    if program.signature.outputs and len(found.signature.outputs) == len(program.signature.outputs):
        names = [program.signature.outputs, found.signature.outputs]
        if names[0] != names[1] and len({*names[0]}) == len(names[0]) and not {*names[0]} & {*program.tensors}:
            raise WrittenWrong(path, f"its results are {', '.join(names[1])}, for {', '.join(names[0])}")
    for name, value in found.constants.items():
        if name in program.constants_declared and found.tensors[name] == program.tensors[name]:
            meant = program.constants[name]
            if np.ascontiguousarray(value).tobytes() != np.ascontiguousarray(meant).tobytes():
                raise WrittenWrong(path, f"its constant {name} differs")


def arrays_of(program: Program) -> list[AccessType]:
    """Returns the types of all arrays of the result, including those in tuples."""
    found, stack = [], [program.term.type]
    while stack:
        kind = stack.pop()
        if isinstance(kind, AccessType):
            found.append(kind)
        else:
            stack += reversed(kind.items)
    return found


def _named(tensors: Mapping[str, Tensor]) -> str:
    return ", ".join(f"{t.name} {spelled(t.dims)} {t.dtype}" for t in tensors.values()) or "none"


def _compare_values(program: Program, found: Program, path: PathLike) -> str:
    """Compares values, and describes the comparison, or why there was none."""
    if found.term is program.term:
        return "the importer reads the same term"
    if any(term.operator.opaque for each in (program, found) for term in each.info.order):
        return "values not compared: it has black boxes"
    predicted = max(seconds(program.term), seconds(found.term))
    if predicted > MOST_SECONDS:
        return f"values not compared: it would take about {predicted:.0f} seconds"
    for whole in (2, 1):
        given = {name: _drawn(tensor, whole) for name, tensor in program.inputs.items()}
        try:
            values = [
                arrays(evaluate([each.term], {**each.constants, **{n: given[n] for n in each.inputs}})[0])
                for each in (program, found)
            ]
        except BadInput:  # an index out of range
            continue
        for number, (meant, own) in enumerate(zip(*values, strict=True)):
            if not _close(np.asarray(meant), np.asarray(own)):
                name = found.signature.outputs[number : number + 1] or [str(number)]
                raise WrittenWrong(path, f"the values of its result {name[0]} differ")
        return "values equal on random inputs"
    return "values not compared: random indices are out of range"


def _drawn(tensor: Tensor, whole: int) -> Array:
    """Draws a value of an input: integers below `whole`."""
    draw = np.random.default_rng(len(tensor.name))
    dims, dtype = tuple(tensor.dims), RECORDS[tensor.dtype].numpy
    if tensor.dtype in REALS:
        return draw.standard_normal(dims).astype(dtype)
    return draw.integers(0, whole, dims).astype(dtype)


def _close(meant: Array, found: Array) -> bool:
    if not meant.size:
        return True
    if meant.dtype.name not in REALS:
        return float(np.mean(meant != found)) <= _FLIPPED
    a, b = (np.asarray(each, np.float64) for each in (meant, found))
    finite = np.isfinite(a) & np.isfinite(b)
    if float(np.mean(finite)) < 1 and float(np.mean(np.isfinite(a) != np.isfinite(b))) > _FLIPPED:
        return False
    largest = float(np.max(np.abs(a), where=finite, initial=0))
    return bool(np.all(np.abs(a[finite] - b[finite]) <= _TOLERANCE * largest))
