"""Gradients of ONNX's operators, of those of its own tests that have reals in and out, against differences.

`docs/onnx_derivatives.csv` is the table of them, by operator: in how many of its tests the gradient is the difference,
of how many, and why there is none in the others. After a change `python tests/gradients/test_onnx_differences.py`
writes it.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
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
TABLE = Path(__file__).parents[2] / "docs" / "onnx_derivatives.csv"
SAME, OTHER = "same", "another"
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
    """True if the program neither rounds to fewer bits, where no small differences exist, nor draws random numbers."""
    known = {"float64", "bool", *INTEGERS}
    kinds = [term.type for term in postorder(program.term) if not term.operator.opaque]
    return all(isinstance(kind, TupleType) or kind.dtype in known for kind in kinds)


def _compared(case: Any) -> str:
    """True if the gradient agrees with finite differences; otherwise the reason why there is no gradient."""
    given = _given(case)
    fixed = {name: value for name, value in given.items() if value.dtype.kind in "iub"}
    try:
        program = program_of_model(case.model, values=fixed)
    except GlensideError:
        return "not read here, or not without values of inputs of reals"
    if not any(tensor.dtype in FLOATS for tensor in program.inputs.values()):
        return "no input of reals"
    if not _real_results(program):
        return "no result of reals"
    try:
        program = doubled(program)
    except GlensideError:
        return "made of bits of a float32"
    wrt = [name for name, tensor in program.inputs.items() if tensor.dtype == "float64"]
    outputs = _real_results(program)
    if any(term.operator.opaque for term in postorder(program.term)):
        return "not expressed here: a black box"
    if not wrt or not outputs or not _is_double(program):
        return "rounded to fewer bits, in which there are no small differences"
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
        return "no finite difference"
    back = sum(float(np.sum(direction[n] * g)) for n, g in zip(wrt, results(program, values)[count:], strict=True))
    size = 1 + sum(float(np.abs(part).sum()) for part in there)
    return SAME if abs(sum(float(part.sum()) for part in there) - back) <= 1e-5 * size else OTHER


@cache
def compared() -> Mapping[str, str]:
    """Name of a test -> what came of its gradient."""
    return {name: _compared(case) for name, case in cases().items()}


def rows() -> list[dict[str, str]]:
    """Returns a row for each operator of ONNX: of the tests that are one node of it."""
    found: dict[tuple[str, str], Counter[str]] = {
        (schema.domain, schema.name): Counter() for schema in onnx.defs.get_all_schemas()
    }
    for name, what in compared().items():
        nodes = cases()[name].model.graph.node
        if len(nodes) == 1 and not NAN.fullmatch(name):
            found.setdefault((nodes[0].domain, nodes[0].op_type), Counter())[what] += 1
    made = []
    for (domain, operator), counts in sorted(found.items()):
        reasons = [what for what in counts if what not in (SAME, OTHER)]
        why = "; ".join(f"{reason} ({counts[reason]})" for reason in sorted(reasons)) or ("" if counts else "no test")
        row = {"domain": domain, "operator": operator, "gradient is the difference": str(counts[SAME])}
        made.append({**row, "tests": str(counts.total()), "else": why})
    return made


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_gradients_of_every_operator_of_onnx() -> None:
    found = compared()
    wrong = sorted(name for name, what in found.items() if what == OTHER)
    assert [name for name in wrong if not NAN.fullmatch(name)] == []
    assert sum(what == SAME for what in found.values()) > 1000


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_table_says_which_and_why_not() -> None:
    with TABLE.open(newline="", encoding="utf-8") as file:
        assert [*csv.DictReader(file)] == rows()


if __name__ == "__main__":
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*rows()[0]])
        writer.writeheader()
        writer.writerows(rows())
