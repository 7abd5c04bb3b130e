"""The compute operator, and compute types of each element that have a node of their own."""

from __future__ import annotations

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.graph import Value
from glenside.exporters.onnx.registry import COMPUTE_EXPORTS, Held, Operand, exports, exports_compute
from glenside.exporters.onnx.scalar import export_scalar
from glenside.ir.errors import BadInput
from glenside.ir.operator import COMPUTES
from glenside.ir.operators import parse_compute
from glenside.ir.types import FLOATS, AccessType


@exports("compute")
def _compute(emit: Emitter, result: AccessType, kind: str, a: Operand) -> Held:
    compute, parameters = parse_compute(kind)
    if compute.name in COMPUTE_EXPORTS:
        return COMPUTE_EXPORTS[compute.name](emit, result, a, *parameters)
    if compute.scalar is None:
        raise BadInput(f"an ONNX file requires what ONNX can say, got the compute type {compute.name}")
    return export_scalar(emit, result, a, compute, parameters)


@exports_compute("relu")
def _relu(emit: Emitter, result: AccessType, a: Operand) -> Value:
    if a.access.dtype in FLOATS:
        return emit.elementwise("Relu", a.value)
    return export_scalar(emit, result, a, COMPUTES["relu"])


@exports_compute("clip")
def _clip(emit: Emitter, result: AccessType, a: Operand, lo: str, hi: str) -> Value:
    x = a.value
    if x.dtype in FLOATS:
        bounds = [emit.number(bound, x.dtype) for bound in (lo, hi)]
        return emit.run("Clip", [x], result.dims, extra=bounds, main=True)
    return export_scalar(emit, result, a, COMPUTES["clip"], (lo, hi))
