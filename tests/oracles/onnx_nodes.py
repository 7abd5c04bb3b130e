"""Runs one ONNX node on arrays: with Glenside, ONNX's reference and onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnx.reference import ReferenceEvaluator

import glenside.importers.onnx.backend as backend
from glenside.ir.dtypes import limits, wider
from glenside.ir.operand import Array

onnxruntime.set_default_logger_severity(4)
Inputs = Sequence[Array | None]
Random = np.random.Generator


def model(
    op: str,
    inputs: Inputs,
    version: int,
    dtypes: Sequence[str],
    domain: str = "",
    domain_version: int = 1,
    **attributes: Any,
) -> onnx.ModelProto:
    """Returns a model of one node; an input of None is left out, `dtypes` are those of the outputs."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    results = [f"y{i}" for i in range(len(dtypes))]
    node = helper.make_node(op, names, results, "it", domain=domain, **attributes)
    formals = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in zip(names, inputs, strict=True)
        if x is not None
    ]
    made = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), None)
        for name, dtype in zip(results, dtypes, strict=True)
    ]
    graph = helper.make_graph([node], "graph", formals, made)
    opsets = [helper.make_opsetid("", version), *[helper.make_opsetid(domain, domain_version)] * bool(domain)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def ours(op: str, inputs: Inputs, version: int = 22, dtypes: Sequence[str] = ("float32",), **named: Any) -> list[Array]:
    return list(backend.run_model(model(op, inputs, version, dtypes, **named), [x for x in inputs if x is not None]))


@cache
def saturates() -> bool:
    """True if onnxruntime's products of uint8 and int8 saturate here: without VNNI it adds pairs in 16 bits."""
    a, b = np.full((16, 64), 255, np.uint8), np.full((64, 16), 127, np.int8)
    made = model("MatMulInteger", [a, b], 10, ["int32"])
    (found,) = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x0": a, "x1": b})
    return bool((found != 64 * 255 * 127).any())


def agree(
    by: str,
    op: str,
    inputs: Inputs,
    *,
    version: int = 22,
    dtypes: Sequence[str] = ("float32",),
    tolerance: float = 1e-4,
    levels: int = 0,
    **named: Any,
) -> None:
    """Compares with "reference" or "onnxruntime": integers within a number of levels, floats within the tolerance.

    Where products saturate in onnxruntime, tensors of int8 are halved, so that sums of two products are exact.
    """
    if by == "onnxruntime" and saturates():
        inputs = [x // 2 if x is not None and x.ndim and x.dtype == np.int8 else x for x in inputs]
    made = model(op, inputs, version, dtypes, **named)
    given = {f"x{i}": np.asarray(x) for i, x in enumerate(inputs) if x is not None}
    if by == "reference":
        expected = ReferenceEvaluator(made).run(None, given)
    else:
        session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
        expected = session.run(None, given)
    for got, want in zip(ours(op, inputs, version, dtypes, **named), expected, strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape), named
        got, want = (value.astype(wider(value.dtype.name)) for value in (got, want))
        if got.dtype.kind == "f":
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=f"{op} {named}")
        else:
            apart = np.abs(got.astype(np.int64) - want.astype(np.int64))
            assert apart.max(initial=0) <= levels, f"{op} {named}: {got} for {want}"


def whole(random: Random, low: int, high: int, count: int) -> list[int]:
    """Draws whole numbers from low to high."""
    return [int(n) for n in random.integers(low, high + 1, count)]


def one_of(random: Random, *choices: Any) -> Any:
    return choices[random.integers(len(choices))]


def integers(random: Random, dtype: str, *dims: int) -> Array:
    """Draws integers of the full range of a dtype."""
    low, high = limits(dtype)
    return np.asarray(random.integers(low, high + 1, dims).astype(dtype))


def floats(random: Random, *dims: int, dtype: str = "float32") -> Array:
    return np.asarray(random.standard_normal(dims).astype(dtype))
