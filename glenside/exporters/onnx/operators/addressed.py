"""Movement that no export spells: elements picked at the places of its index map."""

from __future__ import annotations

from collections.abc import Sequence

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.graph import Value
from glenside.exporters.onnx.registry import Operand
from glenside.ir.index_map import Fill, IndexMap


def addressed(emit: Emitter, found: IndexMap, operands: Sequence[Operand]) -> Value:
    """One gather for each operand, and a choice between them where several have a part in the result."""
    dtype = operands[0].access.dtype
    fill = emit.lowest(dtype) if found.fill is Fill.LOWEST else emit.number(0, dtype)
    result = emit.expand(emit.view(fill, (1,) * len(found.dims)), found.dims)
    for piece in found.pieces:
        x = operands[piece.operand].value
        places, held = found.places(piece, x.dims)
        if not held.any():
            continue
        picked = emit.gather(emit.view(x, (x.dims.product(),)), emit.integers(places), 0)
        result = picked if held.all() else emit.where(emit.graph.constant(held), picked, result)
    return result
