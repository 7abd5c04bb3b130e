"""Compiles ONNX's own tests of single operators and small networks, and compares with the expected results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx_failures import DEPENDS_ON_ROUNDING, VERSION, reason, suite  # noqa: E402

import glenside as gl  # noqa: E402
from glenside.importers.onnx import backend  # noqa: E402
from glenside.ir.operand import Array  # noqa: E402
from glenside.ir.program import Program  # noqa: E402
from glenside.ir.term import Term, build  # noqa: E402

if not onnx.__version__.startswith(f"{VERSION}."):
    pytest.skip(f"the list is of the tests of onnx {VERSION}, this is {onnx.__version__}", allow_module_level=True)

PARTS = 48
NAMES = [
    (kind, name)
    for kind, names in suite().items()
    for name in names
    if kind != "real" and reason(name) is None and name not in DEPENDS_ON_ROUNDING
]


def evaluate(terms: Sequence[Term], values: Mapping[str, Array]) -> list[Any]:
    """In the place of the interpreter: each term's value, by the function that all of them are compiled to."""
    if not terms:
        return []
    program = Program(build("construct-tuple", *terms))
    known = {name: values[name] for name, tensor in program.tensors.items() if tensor.constant}
    f = gl.compile(Program(program.term, constants=known), "none")
    found = f(*(values[buffer.name] for buffer in f.inputs))
    return [np.asarray(array) for array in found]


@pytest.mark.slow
@pytest.mark.needs_compiler
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.filterwarnings("ignore")
def test_nodes(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "evaluate", evaluate)
    failed = {}
    for kind, name in NAMES[part::PARTS]:
        try:
            suite()[kind][name](None)
        except Exception as error:  # all of them are told
            failed[name] = f"{type(error).__name__}: {error}"
    assert not failed
