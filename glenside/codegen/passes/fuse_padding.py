"""Fuses padding into the parallel loop that writes the adjacent rows.

The thread that reads the rows at an edge also reads the padding beside them. If one thread filled all padding, the
other threads would fetch it from that thread's cache, line by line. A separate nest would also wait for all threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from glenside.codegen.loop_ir.affine_analysis import at, coefficient, substituted
from glenside.codegen.loop_ir.ir import Buffer, For, Nest, Statement, Store, Way
from glenside.codegen.loop_ir.module import Module
from glenside.codegen.loop_ir.nest_builder import around
from glenside.codegen.processor.model import Machine
from glenside.ir.index_map import Axis

BORDER = "border"
"""The description (`Nest.what`) of a nest that fills padding."""


def fuse_padding(module: Module, _machine: Machine) -> Module:
    """Fuses nests that fill padding into the parallel loop before them, where that fills the rest of the buffer."""
    made: list[Nest] = []
    for nest in module.nests:
        last = made[-1] if made and made[-1].buffer == nest.buffer and nest.what == BORDER else None
        beside = None if last is None else _parallel_padding(last.body[-1], nest)
        if last is None or beside is None:
            made.append(nest)
            continue
        terms = tuple(dict.fromkeys((*last.terms, *nest.terms)))
        body = (*last.body, *beside)
        made[-1] = replace(last, what=f"{last.what}, {BORDER}", body=body, terms=terms, block=None)
    return module.with_nests(made)


def _parallel_padding(before: Statement, border: Nest) -> list[For] | None:
    """Returns the loops of a padding nest as parallel loops that continue loop `before`; None if one cannot be made.

    A loop over pieces of an open axis has no steps at some sizes, in which nothing can run.
    """
    if not isinstance(before, For) or before.way is not Way.PARALLEL or before.axis.limit:
        return None
    steps = {coefficient(store.place, before.axis) for store in _stores(before, border.buffer)}
    width = steps.pop() if len(steps) == 1 else 0
    found = [_parallel_loop(loop, width, before.axis.size) for loop in border.body]
    loops = [loop for loop in found if loop is not None]
    return loops if loops and len(loops) == len(found) else None


def _stores(statement: Statement, buffer: Buffer) -> Iterator[Store]:
    if isinstance(statement, Store) and statement.buffer == buffer:
        yield statement
    for inner in statement.body if isinstance(statement, For) else ():
        yield from _stores(inner, buffer)


def _parallel_loop(loop: Statement, width: int, panels: int) -> For | None:
    """Returns a padding loop as a parallel loop; None if it is not a plain nest of loops around one store.

    The loop runs over `panels` panels of `width` columns if the loop before it does. Otherwise it runs over rows of
    the buffer, and each thread takes the padding rows adjacent to its rows of the loop before it.
    """
    axes: list[Axis] = []
    inner = loop
    while isinstance(inner, For) and len(inner.body) == 1:
        axes.append(inner.axis)
        (inner,) = inner.body
    if not isinstance(inner, Store) or inner.picked or not axes:
        return None
    place, columns = inner.place, axes[-1]
    if width * panels == columns.size and coefficient(place, columns) == 1 and len(axes) > 1:
        numbers = count(max(axis.number for axis in axes) + 1)
        panel, column = Axis(next(numbers), panels), Axis(next(numbers), width)
        moved = replace(inner, place=substituted(place, {columns: at(panel) * width + at(column)}))
        return For(panel, tuple(around([*axes[:-1], column], [moved])), Way.PARALLEL, (panels, 0))
    apart = coefficient(place, axes[0])
    if apart < 1 or not isinstance(loop, For):
        return None
    rows = -(-inner.buffer.dims.product() // apart), place.constant // apart
    return replace(loop, way=Way.PARALLEL, beside=rows)
