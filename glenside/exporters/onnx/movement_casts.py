"""Casts around nodes that move elements of dtypes that runtimes do not move.

Nothing is lost: the wider dtype holds all values. Nodes that compute are cast where they are emitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from glenside.exporters.onnx.graph import Graph, Node
from glenside.exporters.onnx.supported_dtypes import moved_in
from glenside.exporters.writer import Value


def with_movement_casts(graph: Graph, nodes: Sequence[Node]) -> Iterator[Node]:
    """Yields the nodes, with casts around those of a dtype that runtimes lack; `graph` reserves new names."""
    wide: dict[tuple[str, str], Value] = {}

    def widened(value: Value, dtype: str) -> Iterator[Node]:
        if (value.name, dtype) not in wide:
            wide[value.name, dtype] = Value(graph.name(f"{value.name}_{dtype}"), value.dims, dtype)
            yield Node("Cast", (value,), (wide[value.name, dtype],), {"to": dtype})

    for node in nodes:
        inner = {value: moved_in(node.op, value.dtype) for value in (*node.inputs, *node.outputs)}
        if node.domain or all(value.dtype == dtype for value, dtype in inner.items()):
            yield node
            continue
        for value in node.inputs:
            if value.dtype != inner[value]:
                yield from widened(value, inner[value])
        results = {
            v: v if v.dtype == inner[v] else replace(v, name=graph.name(f"{v.name}_{inner[v]}"), dtype=inner[v])
            for v in node.outputs
        }
        inputs = tuple(wide[v.name, inner[v]] if v.dtype != inner[v] else v for v in node.inputs)
        yield replace(node, inputs=inputs, outputs=tuple(results.values()))
        for value, result in results.items():
            if result is not value:
                wide[value.name, result.dtype] = result
                yield Node("Cast", (result,), (value,), {"to": value.dtype})
