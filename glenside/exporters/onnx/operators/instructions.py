"""Exports tile instructions as calls of local functions, whose bodies define them by standard operators."""

from __future__ import annotations

from functools import partial

from glenside.exporters.onnx.emitter import Emitter, Function
from glenside.exporters.onnx.graph import Graph, Reference
from glenside.exporters.onnx.operators.products import unrepeated
from glenside.exporters.onnx.registry import OPERATOR_EXPORTS, Operand
from glenside.exporters.writer import Value
from glenside.ir.dtypes import widen
from glenside.ir.operator import OPERATORS
from glenside.ir.types import AccessType, Dims


def _tile(name: str, emit: Emitter, result: AccessType, rows: int, columns: int, a: Operand, b: Operand) -> Value:
    function = _tile_function(name, rows, columns, a.access, b.access)
    inputs = unrepeated(emit, a.value, b.value, b.access.split)
    return emit.call(function, inputs, result.dims, rows=rows, columns=columns)


for _name in ("systolic-array", "systolic-array-output-stationary", "systolic-array-with-blocking"):
    OPERATOR_EXPORTS.register(_name)(partial(_tile, _name))


def _tile_function(name: str, rows: int, columns: int, a: AccessType, b: AccessType) -> Function:
    """Returns a function for an instruction, its size, and the ranks and dtype of its operands; sizes of axes are
    free.
    """
    emit = Emitter(Graph(["a", "b"]))
    left, right = (emit.cast(Value(name, x.dims, x.dtype), widen(x.dtype)) for name, x in (("a", a), ("b", b)))
    single = a.split == b.split and b.split > 0
    if single:
        left = emit.graph.node("Unsqueeze", [left, emit.integers([-2])], a.dims.insert(a.rank - 1, 1), left.dtype)
    dims = left.dims.take(left.rank - 1).append(b.dims.drop(b.rank - 1))
    product = emit.run("MatMul", [left, right], dims)
    if single:
        product = emit.graph.node("Squeeze", [product, emit.integers([-2])], dims.remove(len(dims) - 2), product.dtype)
    plain = f"{name.replace('-', '_')}_{rows}x{columns}"
    full = f"{plain}_{a.rank}d_{b.rank}d" + ("" if a.dtype == "float32" else f"_{a.dtype}")
    return Function(full, ("rows", "columns"), emit.graph, product, OPERATORS[name].doc)


_ATTRIBUTES = ("a_parts", "a_order", "a_matrix", "b_parts", "b_order", "b_matrix", "parts", "order")


@OPERATOR_EXPORTS.register("product-unit")
def _product_unit(
    emit: Emitter,
    result: AccessType,
    n: int,
    a: Operand,
    a_parts: Dims,
    a_order: Dims,
    a_split: int,
    b: Operand,
    b_parts: Dims,
    b_order: Dims,
    b_split: int,
    parts: Dims,
    order: Dims,
) -> Value:
    """Moves the items of b before its rows, so that the product is (G.., M, K) times (G.., K, N)."""
    left, right = a_parts.permute(a_order), b_parts.permute(b_order)
    groups, item = left.take(n), left.drop(a_split).product()
    rows, columns = left.take(a_split).drop(n).product(), right.take(b_split).drop(n).product()
    values = (
        *(a_parts, a_order, groups.append([rows, item])),
        *(b_parts, b_order.take(n).append(b_order.drop(b_split)).append(b_order.take(b_split).drop(n))),
        *(groups.append([item, columns]), parts, order),
    )
    attributes = {name: tuple(value) for name, value in zip(_ATTRIBUTES, values, strict=True)}
    return emit.call(_unit_function(a.access.dtype), [a.value, b.value], result.dims, **attributes)


def _unit_function(dtype: str) -> Function:
    """Returns a function that cuts operands into parts, permutes them into matrices, multiplies, and permutes the
    result.
    """
    graph = Graph(["a", "b"])
    emit = Emitter(graph)

    def dims(name: str) -> Value:
        return graph.node("Constant", [], (), "int64", {"value_ints": Reference(name)})

    def ordered(x: Value, parts: str, order: str) -> Value:
        cut = graph.node("Reshape", [x, dims(parts)], (), x.dtype)
        return graph.node("Transpose", [cut], (), x.dtype, {"perm": Reference(order)})

    def matrix(name: str) -> Value:
        x = ordered(Value(name, Dims(), dtype), f"{name}_parts", f"{name}_order")
        return emit.cast(graph.node("Reshape", [x, dims(f"{name}_matrix")], (), dtype), widen(dtype))

    product = emit.run("MatMul", [matrix("a"), matrix("b")], ())
    name = "product_unit" + ("" if dtype == "float32" else f"_{dtype}")
    return Function(name, _ATTRIBUTES, graph, ordered(product, "parts", "order"), OPERATORS["product-unit"].doc)
