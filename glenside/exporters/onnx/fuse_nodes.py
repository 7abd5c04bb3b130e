"""Fuses nodes: a bias into its Conv, DepthToSpace and its inverse, constant arithmetic, and others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from glenside.exporters.onnx.graph import ABSENT, Graph, Node
from glenside.exporters.writer import Value
from glenside.ir.operand import Array
from glenside.ir.rearrangement import Rearrangement, of_transpose
from glenside.ir.types import Dims


def fused(graph: Graph, nodes: Sequence[Node], outputs: Iterable[Value], constants: Mapping[str, Array]) -> list[Node]:
    """Returns the nodes that compute the outputs, after fusing."""
    kept = {value.name for value in outputs}
    for step in (_with_constants, _gemms, _shuffled, _repeated, _broadcast, _sums):
        nodes = step(graph, nodes, kept)
        nodes = _needed(nodes, kept)
    return _needed(_folded(graph, nodes, kept, constants), kept)


def _needed(nodes: Sequence[Node], kept: set[str]) -> list[Node]:
    needed, found = {*kept}, []
    for node in reversed(nodes):
        if any(value.name in needed for value in node.outputs if value.name):
            needed.update(value.name for value in node.inputs)
            found.append(node)
    return found[::-1]


_CONVOLUTIONS = ("Conv", "ConvTranspose")


def _with_one_reader(nodes: Sequence[Node], kept: set[str], ops: Sequence[str]) -> dict[str, Node]:
    """Returns nodes of these operators with exactly one reader, by the name of their output."""
    uses = Counter(value.name for node in nodes for value in node.inputs)
    found = (node for node in nodes if node.op in ops and not node.domain)
    return {n.output.name: n for n in found if uses[n.output.name] == 1 and n.output.name not in kept}


def _pair(graph: Graph, node: Node, alone: Mapping[str, Node]) -> tuple[Node, Value] | None:
    """Returns a convolution and a constant per channel with which a node combines it, or None."""
    for x, other in (node.inputs, node.inputs[::-1]) if len(node.inputs) == 2 else ():
        conv = alone.get(x.name)
        if conv is None or other.name not in graph.fixed or node.output.dims != conv.output.dims:
            continue
        channels, rank = conv.output.dims[1], conv.output.rank
        dims = Dims((1,) * (rank - other.rank)).append(other.dims)
        if dims in (Dims((1, channels)).append((1,) * (rank - 2)), Dims((1,) * rank)) and other.dtype == x.dtype:
            return conv, other
    return None


def _with_constants(graph: Graph, nodes: Sequence[Node], kept: set[str]) -> list[Node]:
    """Folds s * (Conv(x, W) + b) + t = Conv(x, s * W, s * b + t), for constants per channel.

    Runtimes do the same when they load a file.
    """
    found: list[Node] = []
    alone = _with_one_reader(nodes, kept, _CONVOLUTIONS)
    for node in nodes:
        pair = _pair(graph, node, alone) if node.op in ("Add", "Mul") and not node.domain else None
        if pair is None or (node.op == "Mul" and not _scales(graph, pair[0])):
            found.append(node)
            continue
        (conv, constant), (x, weights, *bias) = pair, pair[0].inputs
        channels = conv.output.dims[1]

        def combined(a: Value, op: str, b: Value = constant, channels: int = channels) -> Value:
            return _constant(graph, found, op, (a, _along_first_axis(graph, found, b, a.rank, channels)), a.dims)

        if node.op == "Mul":
            weights, bias = combined(weights, "Mul"), [combined(each, "Mul") for each in bias]
        else:
            bias = [combined(each, "Add") for each in bias] or [_along_first_axis(graph, found, constant, 1, channels)]
        name = conv.name or conv.output.name
        found.append(replace(conv, inputs=(x, weights, *bias), outputs=node.outputs, name=name))
        readers = sum(value == node.output for other in nodes for value in other.inputs)
        if readers == 1 and node.output.name not in kept:
            alone[node.output.name] = found[-1]
    return found


def _scales(graph: Graph, conv: Node) -> bool:
    """True if the weights of a convolution are constant and have its channels first."""
    return conv.op == "Conv" and conv.inputs[1].name in graph.fixed


def _constant(graph: Graph, nodes: list[Node], op: str, operands: tuple[Value, ...], dims: Dims) -> Value:
    y = Value(graph.numbered(op), dims, operands[0].dtype)
    graph.fixed.add(y.name)
    nodes.append(Node(op, operands, (y,), {}))
    return y


def _gemms(graph: Graph, nodes: Sequence[Node], kept: set[str]) -> list[Node]:
    """Fuses a matrix product and a constant row into Gemm, with unchanged weights."""
    found: list[Node] = []
    alone, made = _with_one_reader(nodes, kept, ("MatMul",)), {node.output.name: node for node in nodes}
    for node in nodes:
        pair = (
            next(((a, b) for a, b in (node.inputs, node.inputs[::-1]) if a.name in alone), None)
            if (node.op == "Add" and not node.domain and len(node.inputs) == 2)
            else None
        )
        product = alone[pair[0].name] if pair else None
        if product is None or pair is None or not _is_row(graph, product, pair[1], node.output):
            found.append(node)
            continue
        (x, weights), row = product.inputs, pair[1]
        turned = made.get(weights.name)
        is_turned = turned is not None and turned.op == "Transpose" and turned.attributes["perm"] == (1, 0)
        cut = graph.producer(row, "Reshape")
        if cut and cut.inputs[0].dims == row.dims.drop(row.rank - 1):
            row = cut.inputs[0]
        inputs = (x, turned.inputs[0] if turned is not None and is_turned else weights, row)
        name = product.name or product.output.name
        found.append(Node("Gemm", inputs, node.outputs, {"transB": 1} if is_turned else {}, doc=product.doc, name=name))
    return found


def _is_row(graph: Graph, product: Node, row: Value, result: Value) -> bool:
    (x, weights), dims = product.inputs, result.dims
    matrices = x.rank == weights.rank == 2 and product.output.dims == dims and x.dtype == "float32"
    shape = Dims((1,) * (2 - row.rank)).append(row.dims)
    return matrices and weights.name in graph.fixed and row.name in graph.fixed and shape in (Dims((1, dims[1])), dims)


def _along_first_axis(graph: Graph, nodes: list[Node], x: Value, rank: int, channels: int) -> Value:
    """Reshapes a constant per channel to the first of `rank` axes; appends the nodes that this needs."""
    base = graph.producer(x, "Reshape")
    x = base.inputs[0] if base else x
    dims = Dims((channels,)).append((1,) * (rank - 1))
    if x.dims == dims:
        return x
    if x.dims.product() != channels:  # one number for all channels
        ones = graph.constant(np.ones(rank, np.int64))
        x = _constant(graph, nodes, "Reshape", (x, ones), Dims((1,) * rank))
        return _constant(graph, nodes, "Expand", (x, graph.constant(np.asarray(dims, np.int64))), dims)
    return _constant(graph, nodes, "Reshape", (x, graph.constant(np.asarray(dims, np.int64))), dims)


def _between_reshapes(node: Node, made: Mapping[str, Node], op: str) -> tuple[Node, Node] | None:
    """Returns the Reshape before and the node of operator `op` that this Reshape follows, or None."""
    middle = made.get(node.inputs[0].name) if node.op == "Reshape" and not node.domain else None
    cut = made.get(middle.inputs[0].name) if middle is not None and middle.op == op else None
    return (cut, middle) if middle is not None and cut is not None and cut.op == "Reshape" else None


def _shuffled(graph: Graph, nodes: Sequence[Node], kept: set[str]) -> list[Node]:
    """Fuses blocks of channels moved to space, and the inverse: DepthToSpace and SpaceToDepth."""
    made = {node.output.name: node for node in nodes}
    found = []
    for node in nodes:
        if (between := _between_reshapes(node, made, "Transpose")) is not None:
            cut, turn = between
            x, y = cut.inputs[0], node.output
            how = of_transpose(cut.output.dims, turn.attributes["perm"])
            if (shuffle := _shuffle(x.dims, y.dims, how)) is not None and x.dtype == "float32":
                node = Node(shuffle[0], (x,), node.outputs, shuffle[1], doc=node.doc)
        found.append(node)
    return found


def _repeated(graph: Graph, nodes: Sequence[Node], kept: set[str]) -> list[Node]:
    """Fuses y[.., i, ..] = x[.., i // s, ..], written as an axis of s after each repeated one, into Resize."""
    made = {node.output.name: node for node in nodes}
    found = []
    for node in nodes:
        between = _between_reshapes(node, made, "Expand")
        if between is not None and between[0].inputs[0].dtype == "float32":
            cut, spread = between
            x, y = cut.inputs[0], node.output
            if (times := _times(x.dims, cut.output.dims, spread.output.dims, y.dims)) is not None:
                scales = graph.constant(np.asarray(times, np.float32))
                how = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
                node = Node("Resize", (x, ABSENT, scales), node.outputs, how, doc=node.doc)
        found.append(node)
    return found


_BROADCASTS = ("Add", "Sub", "Mul", "Div", "Pow")


def _broadcast(graph: Graph, nodes: Sequence[Node], kept: set[str]) -> list[Node]:
    """Drops leading axes of size 1 of constant operands, which broadcasting restores.

    Runtimes match numbers and vectors when they fuse nodes.
    """
    found = []
    for node in nodes:
        if node.op in _BROADCASTS and not node.domain and len(node.inputs) == 2:
            a, b = node.inputs
            if b.rank == node.output.rank and a.name in graph.fixed:
                a = _short(graph, a)
            elif a.rank == node.output.rank and b.name in graph.fixed:
                b = _short(graph, b)
            node = replace(node, inputs=(a, b))
        found.append(node)
    return found


def _short(graph: Graph, x: Value) -> Value:
    """Returns a constant without leading axes of size 1, if that needs no node."""
    axis = next((i for i, n in enumerate(x.dims) if n != 1), x.rank)
    dims, view = x.dims.drop(axis), graph.producer(x, "Reshape")
    if view is not None and view.inputs[0].dims == dims:
        return view.inputs[0]
    if x.name in graph.arrays and view is None:
        return graph.constant(graph.arrays[x.name].reshape(tuple(dims)))
    return x


def _sums(graph: Graph, nodes: Sequence[Node], kept: set[str]) -> list[Node]:
    """Replaces an Add that only a LayerNormalization reads by Sum.

    onnxruntime 1.32 fuses Add and LayerNormalization of three axes into a kernel that is 5x slower than both on a CPU
    (BERT of 768 x 128: 0.60 ms, 0.11 ms), and has no such kernel for Sum.
    """
    read = _with_one_reader(nodes, kept, ("Add",))
    normalized = {node.inputs[0].name for node in nodes if node.op == "LayerNormalization" and not node.domain}
    found = []
    for node in nodes:
        alone = node.output.name in read and node.output.name in normalized
        if alone and node.output.dtype == "float32" and node.output.rank == 3:
            dims = {value.dims for value in node.inputs}
            node = replace(node, op="Sum") if dims == {node.output.dims} else node
        found.append(node)
    return found


def _times(x: Dims, apart: Dims, repeated: Dims, y: Dims) -> list[int] | None:
    """Returns the repetitions along each axis but batch and channels; None if the nodes do something else."""
    if len(x) != len(y) or len(x) < 3 or 0 in x or any(whole % own for own, whole in zip(x, y, strict=True)):
        return None
    times = [whole // own for own, whole in zip(x, y, strict=True)]
    wanted = [pair for own, s in zip(x, times, strict=True) for pair in ((own, own), (1, s)) if pair[1] != 1]
    if len(apart) != len(repeated) or times[:2] != [1, 1] or max(times) == 1:
        return None
    return times if wanted == [pair for pair in zip(apart, repeated, strict=True) if pair[1] != 1] else None


def _shuffle(x: Dims, y: Dims, how: Rearrangement) -> tuple[str, dict[str, object]] | None:
    if len(x) != 4 or len(y) != 4 or 0 in x:
        return None
    (n, c, h, w), (_, d, _, _) = x, y
    block = max(y[2] // h, h // y[2])
    if block < 2:
        return None
    if y == (n, c // block**2, h * block, w * block):
        orders = {
            "DCR": Rearrangement((n, block, block, d, h, w), (0, 3, 4, 1, 5, 2)),
            "CRD": Rearrangement((n, d, block, block, h, w), (0, 1, 4, 2, 5, 3)),
        }
        for mode, order in orders.items():
            if order.canonical() == how:
                return "DepthToSpace", {"blocksize": block, "mode": mode}
    apart = Rearrangement((n, c, h // block, block, w // block, block), (0, 3, 5, 1, 2, 4))
    if y == (n, c * block**2, h // block, w // block) and apart.canonical() == how:
        return "SpaceToDepth", {"blocksize": block}
    return None


_ARITHMETIC: dict[str, Callable[..., Array]] = {
    **{"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Sqrt": np.sqrt},
}
_MOVED: dict[str, Callable[[Node, Array], Array]] = {
    "Reshape": lambda node, x: x.reshape(node.output.dims),
    "Transpose": lambda node, x: x.transpose(node.attributes["perm"]),
    "Expand": lambda node, x: np.broadcast_to(x, node.output.dims),
}


def _folded(graph: Graph, nodes: Sequence[Node], kept: set[str], constants: Mapping[str, Array]) -> list[Node]:
    """Folds arithmetic on constant floats into constants, as runtimes would."""
    made = {node.output.name: node for node in nodes}
    reads = {value.name for node in nodes for value in node.inputs if node.output.name not in graph.fixed} | kept

    def value_of(x: Value) -> Array | None:
        if x.name in graph.arrays:
            return graph.arrays[x.name]
        if x.name in graph.weights:
            return constants[x.name]
        node = made[x.name]
        if node.domain or x.dtype != "float32":
            return None
        if node.op in _MOVED:
            inner = value_of(node.inputs[0])
            return None if inner is None else _MOVED[node.op](node, inner)
        operands = [value_of(each) for each in node.inputs] if node.op in _ARITHMETIC else [None]
        if any(each is None or each.dtype != np.float32 for each in operands):
            return None
        with np.errstate(all="ignore"):
            return _ARITHMETIC[node.op](*operands)

    for node in nodes:
        name = node.output.name
        if name in reads and name not in kept and name in graph.fixed and _is_computed(node, made):
            value = value_of(node.output)
            if value is not None:
                graph.arrays[name] = np.ascontiguousarray(value).reshape(node.output.dims)
    return [node for node in nodes if node.output.name not in graph.arrays]


def _is_computed(node: Node, made: Mapping[str, Node]) -> bool:
    """True if a constant depends on arithmetic: one that is only moved keeps its name."""
    stack = [node]
    while stack:
        each = stack.pop()
        if each.op in _ARITHMETIC:
            return True
        stack += [made[value.name] for value in each.inputs if value.name in made]
    return False
