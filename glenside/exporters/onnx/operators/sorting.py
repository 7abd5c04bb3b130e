"""The order of the elements of an item."""

from __future__ import annotations

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.graph import Value
from glenside.exporters.onnx.registry import Operand, exports_compute
from glenside.ir.types import AccessType


@exports_compute("argsort")
def _argsort(emit: Emitter, result: AccessType, a: Operand, direction: str) -> Value:
    """All of them by TopK, which puts the first of equal elements first in both directions."""
    dims = a.access.shape.append([a.access.item.product()])
    items = emit.ordered(emit.view(a.value, dims))
    attributes = {"axis": -1, "largest": int(direction == "descending"), "sorted": 1}
    inputs = [items, emit.integers(dims[-1:])]
    _, places = emit.graph.several("TopK", inputs, [(dims, items.dtype), (dims, "int64")], attributes, main=True)
    return emit.view(places, result.dims)
