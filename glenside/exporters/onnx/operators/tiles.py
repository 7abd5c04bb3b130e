"""Instructions of a systolic array: calls of local functions, whose bodies say what they mean in standard operators."""

from __future__ import annotations

from collections.abc import Callable

from glenside.exporters.onnx.emitter import Emitter, Function
from glenside.exporters.onnx.graph import Graph, Value
from glenside.exporters.onnx.operators.products import unrepeated
from glenside.exporters.onnx.operators.reductions import accumulated
from glenside.exporters.onnx.registry import Operand, exports
from glenside.ir.operator import OPERATORS
from glenside.ir.types import AccessType


def _tile(name: str) -> Callable[..., Value]:
    def export(emit: Emitter, result: AccessType, rows: int, columns: int, a: Operand, b: Operand) -> Value:
        function = _function(name, rows, columns, a.access, b.access)
        inputs = unrepeated(emit, a.value, b.value, b.access.split)
        return emit.call(function, inputs, result.dims, rows=rows, columns=columns)

    return export


def _function(name: str, rows: int, columns: int, a: AccessType, b: AccessType) -> Function:
    """One function for each instruction, its size, the ranks and the dtype of its operands; sizes of axes are free."""
    graph = Graph(["a", "b"])
    emit = Emitter(graph)
    left = accumulated(emit, Value("a", a.dims, a.dtype))
    right = accumulated(emit, Value("b", b.dims, b.dtype))
    single = a.split == b.split and b.split > 0
    if single:
        left = graph.node("Unsqueeze", [left, emit.integers([-2])], a.dims.insert(a.rank - 1, 1), left.dtype)
    dims = left.dims.take(left.rank - 1).append(b.dims.drop(b.rank - 1))
    product = emit.run("MatMul", [left, right], dims)
    if single:
        product = graph.node("Squeeze", [product, emit.integers([-2])], dims.remove(len(dims) - 2), product.dtype)
    plain = f"{name.replace('-', '_')}_{rows}x{columns}"
    full = f"{plain}_{a.rank}d_{b.rank}d" + ("" if a.dtype == "float32" else f"_{a.dtype}")
    return Function(full, ("a", "b"), ("rows", "columns"), graph, product, OPERATORS[name].doc)


for _name in ("systolic-array", "systolic-array-output-stationary", "systolic-array-with-blocking"):
    exports(_name)(_tile(_name))
