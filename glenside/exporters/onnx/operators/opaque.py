"""Exports black boxes as the nodes from which they were imported."""

from __future__ import annotations

from dataclasses import replace

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.graph import ABSENT, Encoded
from glenside.exporters.onnx.registry import OPERATOR_EXPORTS, Operand
from glenside.exporters.writer import Value
from glenside.ir.errors import BadInput
from glenside.ir.names import shortened
from glenside.ir.operators.opaque import name_of
from glenside.ir.types import AccessType, Dims


@OPERATOR_EXPORTS.register("opaque")
def _opaque(emit: Emitter, result: AccessType, key: str, _: tuple[Dims, Dims], __: str, *operands: Operand) -> Value:
    """Emits one node for all of its outputs; the key selects one output. Raises BadInput for a key not from ONNX."""
    from glenside.importers.onnx.opaque import read_key

    try:
        box = read_key(key)
    except BadInput:
        raise _not_imported(key) from None
    node, rest = box.node, iter(operands)
    inputs = [next(rest).value if name else ABSENT for name in node.input]
    own, unknown = (result.dims, result.dtype), (Dims(), "")
    outputs = [(own if i == box.output else unknown) if name else None for i, name in enumerate(node.output)]
    attributes = {a.name: Encoded(a.SerializeToString(deterministic=True)) for a in node.attribute}
    emit.versions.add((node.domain, node.op_type, box.version))
    made = emit.graph.several(
        node.op_type, inputs, outputs, attributes, domain=node.domain, main=True, which=f"{node.name} {box.version}"
    )
    value = replace(made[box.output], dims=result.dims, dtype=result.dtype)
    emit.graph.typed[value.name] = value
    return value


@OPERATOR_EXPORTS.register("opaque-items", "opaque-pointwise")
def _opaque_pointwise(emit: Emitter, result: AccessType, key: str, *_: Operand | str) -> Value:
    """Raises BadInput: no file contains such a black box."""
    raise _not_imported(key)


def _not_imported(key: str) -> BadInput:
    return BadInput(f"an ONNX file requires black boxes that were imported from ONNX, got {shortened(name_of(key))}")
