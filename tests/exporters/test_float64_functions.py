"""Tests that functions of float64 numbers keep that precision in ONNX files, as onnxruntime computes them."""

from __future__ import annotations

import numpy as np
import pytest

import glenside as gl
from glenside.exporters.onnx import export_onnx
from glenside.ir.operand import arrays
from glenside.ir.operator import COMPUTES
from glenside.semantics.interpreter import evaluate

ort = pytest.importorskip("onnxruntime", reason="the package onnxruntime is not installed")

NARROW = {"gelu", "erf"}  # no runtime has Erf in float64, and no identity of other functions gives it
SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, np.nan, 1e-300, -1e-300, 1e300, -1e300, 1 + 1e-9, 1 - 1e-9]


def _functions() -> list[str]:
    program = "(input x (shape 4) float64)\n(compute {} (access-tensor x))"
    found = []
    for name, record in COMPUTES.items():
        if record.scalar is not None and not record.parameters and name not in NARROW:
            try:
                gl.parse(program.format(name))
            except gl.GlensideError:
                continue
            found.append(name)
    return found


@pytest.mark.parametrize("name", _functions())
def test_functions_keep_their_precision(name: str) -> None:
    random = np.random.default_rng(0)
    near_one = 1 + random.choice([-1, 1], 300) * 10.0 ** random.uniform(-12, 0, 300)
    scaled = random.normal(size=600) * 10.0 ** random.uniform(-12, 2, 600)
    x = np.concatenate([SPECIAL, random.normal(size=600), scaled, near_one, np.cos(random.uniform(0, 4, 300))])
    program = gl.parse(f"(input x (shape {len(x)}) float64)\n(compute {name} (access-tensor x))")
    session = ort.InferenceSession(export_onnx(program).SerializeToString(), providers=["CPUExecutionProvider"])
    found = session.run(None, {"x": x})[0]
    with np.errstate(all="ignore"):
        want = np.asarray(arrays(evaluate([program.term], {"x": x})[0])[0])
    np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-14)
