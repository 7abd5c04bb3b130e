"""Sinks transposes below elementwise operators, which then compute in the memory order of their operands.

f(transpose(x), c) is transpose(f(x, c')). Between a Conv whose result has channels first and the next one, transposes
thus meet and cancel, for any elementwise computation between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from glenside.exporters.onnx.affine_indices import Loop, Reading, Unreadable, below_views, read
from glenside.exporters.onnx.graph import Graph
from glenside.exporters.writer import Value
from glenside.ir.index_map import Axis, Index, flattened, reshaped
from glenside.ir.rearrangement import Rearrangement, identity, of_transpose, refined
from glenside.ir.types import Dims


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand in the order of another: an array with these axes, of `dims` there, 1 where it lacks an axis."""

    value: Value
    axes: tuple[Axis, ...]
    wanted: tuple[Axis, ...]
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sunk:
    """The operands in memory order, the dims of the elementwise result, and its final transpose."""

    operands: tuple[Operand, ...]
    dims: Dims
    parts: tuple[int, ...]
    order: tuple[int, ...]


def sunk(graph: Graph, operands: Sequence[Value], dims: Dims) -> Sunk | None:
    """Returns the operands in the axis order of one that is transposed, broadcast to `dims`; None if another operand
    has not this order.

    Constants may be in any order.
    """
    for main in operands:
        if main.name in graph.fixed or main.dims.product() != dims.product() or not main.rank:
            continue
        base, how = _arranged(graph, main)
        sizes = how and base is not main and refined(how.parts, base.dims)
        if not sizes or not how or (cut := how.cut_parts(sizes)) is None:
            continue
        found = _in_order_of(graph, operands, operands.index(main), base, cut, dims)
        if found is not None:
            return found
    return None


def _arranged(graph: Graph, x: Value) -> tuple[Value, Rearrangement | None]:
    """Returns the base of a value and its rearrangement; None instead if that does not permute whole parts."""
    chain = []
    base = x
    while (node := graph.producer(base, "Reshape") or graph.producer(base, "Transpose")) is not None:
        chain.append(node)
        base = node.inputs[0]
    how: Rearrangement | None = identity(base.dims.product())
    for node in reversed(chain):
        if node.op == "Transpose" and how is not None:
            how = how.then(of_transpose(node.inputs[0].dims, node.attributes["perm"]))
    return base, how


def _in_order_of(
    graph: Graph, operands: Sequence[Value], main: int, base: Value, how: Rearrangement, dims: Dims
) -> Sunk | None:
    """Returns all operands in the order of the main operand's base."""
    loop = Loop.over(how.parts)

    def made() -> list[Reading]:
        readings = []
        inside = loop.places()
        flat = flattened([inside[i] for i in how.order], how.result)
        (piece,) = reshaped(dims, (dims.product(),)).pieces
        places = piece.at([flat]).indices
        for number, x in enumerate(operands):
            if number == main:
                continue
            own = places[len(dims) - x.rank :]
            at = [place if n != 1 else Index() for place, n in zip(own, x.dims, strict=True)]
            readings.append(below_views(loop, graph, x, at))
        return readings

    try:
        readings = read(loop, made)
        axes = [axis for own in loop.parts for axis in own]
        of_each = [reading.axes for reading in readings]
    except Unreadable:
        return None
    readings.insert(main, Reading(base, ()))
    of_each.insert(main, axes)
    for x, own in zip(operands, of_each, strict=True):
        if x.name not in graph.fixed and own != [axis for axis in axes if axis in own]:
            return None
    runs = _runs(base.dims, axes, of_each) or [[axis] for axis in axes]
    sunk_dims = Dims(prod(axis.size for axis in run) for run in runs)
    made_of = [
        Operand(
            reading.value,
            tuple(own),
            tuple(axis for axis in axes if axis in own),
            tuple(prod(axis.size for axis in run) if {*run} <= {*own} else 1 for run in runs),
        )
        for reading, own in zip(readings, of_each, strict=True)
    ]
    return Sunk(tuple(made_of), sunk_dims, how.parts, how.order)


def _runs(dims: Sequence[int], axes: Sequence[Axis], of_each: Sequence[Sequence[Axis]]) -> list[list[Axis]] | None:
    """Returns for each of the dims its axes; None if an operand has only some of them."""
    rest, runs = list(axes), []
    for size in dims:
        run: list[Axis] = []
        while rest and prod(axis.size for axis in run) < size:
            run.append(rest.pop(0))
        runs.append(run)
    whole = all({*run} <= {*own} or not {*run} & {*own} for own in of_each for run in runs)
    return runs if whole else None
