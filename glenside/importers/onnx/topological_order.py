"""Orders the nodes of a graph topologically, and selects the part that some tensors depend on."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glenside.importers.onnx.functions import all_nodes
from glenside.ir.errors import BadInput
from glenside.ir.names import shortened, suggestion


@dataclass(frozen=True)
class Part:
    """The part of a GraphProto that is imported, under the names of its fields."""

    input: Sequence[Any]
    initializer: Sequence[Any]
    sparse_initializer: Sequence[Any]
    node: Sequence[Any]
    output: Sequence[Any]
    value_info: Sequence[Any]


def reads(node: Any) -> set[str]:
    """Returns the names that a node needs: its inputs, those that its subgraphs capture, and those in its attributes.

    A gradient names tensors in its attributes.
    """
    found = {name for name in node.input if name}
    naming = _NAMING.get((node.domain, node.op_type), ())
    for attribute in node.attribute:
        if attribute.name in naming:
            found |= {name.decode(errors="replace") for name in (attribute.s, *attribute.strings) if name}
        if attribute.type == _GRAPH or attribute.type == _GRAPHS:
            for graph in (attribute.g, *attribute.graphs):
                found |= _captured(graph)
    return found


_NAMING = {("ai.onnx.preview.training", "Gradient"): ("y", "xs", "zs")}
"""Attributes that hold names of tensors."""
_GRAPH, _GRAPHS = 5, 10  # types of attributes in messages


def _captured(graph: Any) -> set[str]:
    wanted = {value.name for value in graph.output}.union(*map(reads, graph.node))
    own = {name for node in graph.node for name in node.output}
    return wanted - own - {value.name for value in (*graph.input, *graph.initializer)}


def makers_of(nodes: Sequence[Any]) -> Mapping[str, int]:
    """Returns name of a value -> the position of the node that computes it."""
    return {name: i for i, node in enumerate(nodes) for name in node.output if name}


def in_order(nodes: Sequence[Any], known: Container[str]) -> Iterable[int]:
    """Returns the positions of the nodes in topological order: unchanged if that is valid, else the first ready node
    next.

    `known` are names of the enclosing graph. Raises BadInput, which names the nodes of a cycle.
    """
    if _stands_in_order(nodes, known):
        return range(len(nodes))
    makers = makers_of(nodes)
    needs = [
        {makers[n] for n in reads(node) if n in makers and (makers[n] < i or n not in known)}
        for i, node in enumerate(nodes)
    ]
    import networkx

    graph = networkx.DiGraph((other, i) for i, of in enumerate(needs) for other in of)
    graph.add_nodes_from(range(len(nodes)))
    try:
        return list(networkx.lexicographical_topological_sort(graph))
    except networkx.NetworkXUnfeasible:
        cycle = [nodes[i] for i, _ in networkx.find_cycle(graph)]
    words = [_named(node) for node in (*cycle, cycle[0])]
    words = words if len(words) <= 8 else [*words[:6], f".. ({len(words) - 7} more)", words[-1]]
    raise BadInput(f"the nodes {' -> '.join(words)} form a cycle: each depends on the previous one")


def _stands_in_order(nodes: Sequence[Any], known: Container[str]) -> bool:
    seen = {""}
    for node in nodes:
        for name in reads(node) if node.attribute else node.input:  # the body of a function is checked at each call
            if name not in seen and name not in known:
                return False
        seen.update(node.output)
    return True


def _named(node: Any) -> str:
    return shortened(node.name or next(filter(None, node.output), node.op_type))


def part_of(graph: Any, outputs: Sequence[str], valued: Container[str]) -> Part:
    """Returns the graph up to the tensors of these names, or all of it without names.

    Initializers in `valued` are omitted, since the user gave their values. Raises BadInput for an unknown name.
    """
    initializers = [tensor for tensor in graph.initializer if tensor.name not in valued]
    if not outputs:
        return Part(graph.input, initializers, graph.sparse_initializer, graph.node, graph.output, graph.value_info)
    declared = {value.name: value for value in (*graph.input, *graph.value_info, *graph.output)}
    needed = _needed(graph, outputs)
    return Part(
        [value for value in graph.input if value.name in needed],
        [tensor for tensor in initializers if tensor.name in needed],
        [tensor for tensor in graph.sparse_initializer if tensor.values.name in needed],
        [node for node in graph.node if not needed.isdisjoint(node.output)],
        [declared.get(name) or _undeclared(name) for name in outputs],
        graph.value_info,
    )


def _undeclared(name: str) -> Any:
    import onnx

    return onnx.ValueInfoProto(name=name)


def _needed(graph: Any, outputs: Sequence[str]) -> set[str]:
    """Returns the names of tensors that these depend on, and their own."""
    makers = makers_of(graph.node)
    known = {*makers, *(value.name for value in (*graph.input, *graph.initializer))}
    known |= {tensor.values.name for tensor in graph.sparse_initializer}
    for i, name in enumerate(outputs):
        if name not in known:
            inner = any(name in node.output for node in all_nodes(graph.node))
            hint = "; it is inside a branch or a loop" if inner else suggestion(name, known)
            raise BadInput(f"an output is a tensor of the graph, and none is called {shortened(name, True)}{hint}")
        if name in outputs[:i]:
            raise BadInput(f"an output is named once, got {shortened(name, True)} twice")
    needed, stack = set[str](), [*outputs]
    while stack:
        name = stack.pop()
        if name not in needed:
            needed.add(name)
            stack += reads(graph.node[makers[name]]) if name in makers else ()
    return needed
