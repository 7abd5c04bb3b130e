"""Instructions of a unit that addresses its operands: calls of one local function, whatever the orders."""

from __future__ import annotations

from glenside.exporters.onnx.emitter import Emitter, Function
from glenside.exporters.onnx.graph import Graph, Reference, Value
from glenside.exporters.onnx.operators.reductions import accumulated
from glenside.exporters.onnx.registry import Operand, exports
from glenside.ir.operator import OPERATORS
from glenside.ir.types import AccessType, Dims

_ATTRIBUTES = ("a_parts", "a_order", "a_matrix", "b_parts", "b_order", "b_matrix", "parts", "order")


@exports("product-unit")
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
    """The items of b go before its rows, so that the product is one of (G.., M, K) and (G.., K, N)."""
    left, right = a_parts.permute(a_order), b_parts.permute(b_order)
    groups, item = left.take(n), left.drop(a_split).product()
    rows, columns = left.take(a_split).drop(n).product(), right.take(b_split).drop(n).product()
    values = (
        *(a_parts, a_order, groups.append([rows, item])),
        *(b_parts, b_order.take(n).append(b_order.drop(b_split)).append(b_order.take(b_split).drop(n))),
        *(groups.append([item, columns]), parts, order),
    )
    attributes = {name: tuple(value) for name, value in zip(_ATTRIBUTES, values, strict=True)}
    return emit.call(_function(a.access.dtype), [a.value, b.value], result.dims, **attributes)


def _function(dtype: str) -> Function:
    """Both operands cut into parts, put in order and seen as matrices; their product cut into parts, put in order."""
    graph = Graph(["a", "b"])
    emit = Emitter(graph)

    def dims(name: str) -> Value:
        return graph.node("Constant", [], (), "int64", {"value_ints": Reference(name)})

    def ordered(x: Value, parts: str, order: str) -> Value:
        cut = graph.node("Reshape", [x, dims(parts)], (), x.dtype)
        return graph.node("Transpose", [cut], (), x.dtype, {"perm": Reference(order)})

    def matrix(name: str) -> Value:
        x = ordered(Value(name, Dims(), dtype), f"{name}_parts", f"{name}_order")
        return accumulated(emit, graph.node("Reshape", [x, dims(f"{name}_matrix")], (), dtype))

    product = emit.run("MatMul", [matrix("a"), matrix("b")], ())
    name = "product_unit" + ("" if dtype == "float32" else f"_{dtype}")
    return Function(
        name, ("a", "b"), _ATTRIBUTES, graph, ordered(product, "parts", "order"), OPERATORS["product-unit"].doc
    )
