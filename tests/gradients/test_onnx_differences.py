"""Gradients of ONNX's operators, of those of its own tests that have reals in and out, against differences."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
from differences import difference, doubled, results

onnx = pytest.importorskip("onnx")

import glenside as gl  # noqa: E402
from glenside.importers.onnx.model import program_of_model  # noqa: E402
from glenside.ir.dtypes import FLOATS, INTEGERS  # noqa: E402
from glenside.ir.errors import GlensideError  # noqa: E402
from glenside.ir.operand import Array  # noqa: E402
from glenside.ir.program import Program  # noqa: E402
from glenside.ir.term import postorder  # noqa: E402
from glenside.ir.types import AccessType, TupleType  # noqa: E402

NAN = re.compile(r"test_attention_.*(nan_robustness|structural_empty|output_mode3_zero|gqa_rank4_mask)(_expanded)?")
"""A row that is masked whole: its softmax is nan before it is chosen away, and so is its derivative, as in JAX."""
BOUNDED = ("test_acos", "test_asin", "test_atanh")


@cache
def cases() -> Mapping[str, Any]:
    """Name -> the test."""
    from onnx.backend.test.case.node import collect_testcases

    return {case.name: case for case in collect_testcases(None)}


def _given(case: Any) -> dict[str, Array]:
    names = [value.name for value in case.model.graph.input]
    arrays = [onnx.numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else v for v in case.data_sets[0][0]]
    plain = zip(names, arrays, strict=False)
    return {name: np.asarray(value) for name, value in plain if isinstance(value, np.ndarray | np.generic)}


def _real_results(program: Program) -> list[str]:
    kind = program.term.type
    items = kind.items if isinstance(kind, TupleType) else (kind,)
    names = zip(program.result_names(), items, strict=True)
    return [name for name, item in names if isinstance(item, AccessType) and item.dtype in FLOATS]


def _is_double(program: Program) -> bool:
    """Whether nothing is rounded to fewer bits, in which there are no small differences, and nothing is drawn."""
    known = {"float64", "bool", *INTEGERS}
    kinds = [term.type for term in postorder(program.term) if not term.operator.opaque]
    return all(isinstance(kind, TupleType) or kind.dtype in known for kind in kinds)


def _compared(case: Any) -> bool | None:
    """Whether the gradient is the difference; None where there is nothing to differentiate, or no value of it."""
    given = _given(case)
    fixed = {name: value for name, value in given.items() if value.dtype.kind in "iub"}
    try:
        program = doubled(program_of_model(case.model, values=fixed))
    except GlensideError:  # not read here, or bits of a float32
        return None
    wrt = [name for name, tensor in program.inputs.items() if tensor.dtype == "float64"]
    outputs = _real_results(program)
    if not wrt or not outputs or not _is_double(program):
        return None
    program = gl.value_and_gradient(program, wrt, outputs, [f"cotangent {i}" for i in range(len(outputs))])
    # Away from corners, which examples of whole numbers are full of.
    random = np.random.default_rng(0)
    scale = 0.99 if case.name.startswith(BOUNDED) else 1 - random.random() / 1000
    values = {**given, **program.constants}
    for name in wrt:
        value = given[name].astype("float64") * scale if name in given else random.random(program.tensors[name].dims)
        values[name] = value if case.name.startswith(BOUNDED) else value + random.random(value.shape) / 100
    direction = {name: random.standard_normal(values[name].shape) for name in wrt}
    dims = {name: tensor.dims for name, tensor in program.inputs.items() if name.startswith("cotangent ")}
    values.update((name, random.standard_normal(d)) for name, d in dims.items())
    for i, item in enumerate(program.term.children[: len(outputs)]):
        values.setdefault(f"cotangent {i}", np.zeros(item.access.dims))
    count = len(outputs)
    forward = Program(program.term.operator(*program.term.children[:count]), constants=program.constants)
    changes = difference(forward, values, direction)
    there = [values[f"cotangent {i}"] * change for i, change in enumerate(changes)]
    if not all(np.isfinite(part).all() for part in there):
        return None
    back = sum(float(np.sum(direction[n] * g)) for n, g in zip(wrt, results(program, values)[count:], strict=True))
    size = 1 + sum(float(np.abs(part).sum()) for part in there)
    return bool(abs(sum(float(part.sum()) for part in there) - back) <= 1e-5 * size)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_gradients_of_every_operator_of_onnx() -> None:
    found = {name: _compared(case) for name, case in cases().items()}
    wrong = sorted(name for name, same in found.items() if same is False)
    assert [name for name in wrong if not NAN.fullmatch(name)] == []
    assert sum(same is True for same in found.values()) > 1000
