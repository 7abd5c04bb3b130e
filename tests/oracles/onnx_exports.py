"""Runs programs as ONNX models: onnxruntime must compute what the interpreter does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

import glenside as gl
from glenside.exporters.onnx import export_onnx
from glenside.importers.onnx.sessions import LEVELS, Session
from glenside.ir.dtypes import REALS, RECORDS, limits, wider
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.ir.types import Dims, Tensor


def leaf(name: str, dims: tuple[int, ...], dtype: str = "float32", constant: bool = False) -> Term:
    return build("access-tensor", Tensor(name, Dims(dims), dtype, constant))


def run(model: Any, inputs: Mapping[str, Array]) -> list[Array]:
    content = model if isinstance(model, str) else model.SerializeToString()
    return list(Session(content, "the program", LEVELS[-1]).run(inputs))


def flat(value: Any) -> list[Array]:
    return [array for item in value for array in flat(item)] if isinstance(value, tuple) else [value]


def agree(got: list[Array], want: Any) -> None:
    """Compares integers exactly, floats within the precision of their dtype."""
    expected = flat(want)
    assert [(g.dtype, g.shape) for g in got] == [(w.dtype, w.shape) for w in expected]
    for g, w in zip(got, expected, strict=True):
        close = {"float16": 2e-2, "bfloat16": 2e-2, "float32": 1e-4, "float64": 1e-4}.get(w.dtype.name, 0)
        g, w = (x.astype(wider(x.dtype.name)) for x in (g, w))
        np.testing.assert_allclose(g, w, rtol=close, atol=close / 10)


def same(program: Program, values: Mapping[str, Array]) -> Any:
    """Exports, checks and runs a program; returns the model."""
    model = export_onnx(program)
    onnx.checker.check_model(model, full_check=True)
    agree(run(model, values), gl.evaluate([program.term], {**program.constants, **values})[0])
    return model


def kinds(model: Any) -> list[str]:
    return [node.op_type for node in model.graph.node]


def extreme(dtype: str, dims: tuple[int, ...], seed: int) -> Array:
    """Draws numbers of all magnitudes of a dtype, its limits and 0 among them."""
    random = np.random.default_rng([seed, *dims])
    if dtype == "bool":
        return random.integers(0, 2, dims).astype(bool)
    if dtype in REALS:
        return random.uniform(0.5, 4, dims).astype(dtype)
    low, high = limits(dtype)
    wide = wider(dtype)
    values = random.integers(low, high, dims, wide, endpoint=True)
    values >>= random.integers(0, RECORDS[dtype].bits, dims).astype(wide)
    special = np.array([low, high, 0, 1], wide) if high < 3 else np.array([low, high, 0, 1, 2, 3], wide)
    values, special = values.astype(dtype), special.astype(dtype)
    return np.where(random.random(dims) < 0.5, random.choice(special, dims), values)
