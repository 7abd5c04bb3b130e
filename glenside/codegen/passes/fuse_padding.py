"""Borders: the rows and columns around what a nest fills are filled by the threads that fill what lies beside them.

Who reads the rows at an edge reads the border beside them. Were it filled by one thread, the others would fetch it from
that one's cache, line by line; and a nest of its own would wait for all threads.
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
"""What such a nest computes, in words."""


def fuse_padding(module: Module, _machine: Machine) -> Module:
    """Fuses nests that fill padding into the parallel loop before them, where that fills the rest of the buffer."""
    made: list[Nest] = []
    for nest in module.nests:
        last = made[-1] if made and made[-1].buffer == nest.buffer and nest.what == BORDER else None
        beside = None if last is None else _beside(last.body[-1], nest)
        if last is None or beside is None:
            made.append(nest)
            continue
        terms = tuple(dict.fromkeys((*last.terms, *nest.terms)))
        body = (*last.body, *beside)
        made[-1] = replace(last, what=f"{last.what}, {BORDER}", body=body, terms=terms, block=None)
    return module.with_nests(made)


def _beside(before: Statement, border: Nest) -> list[For] | None:
    """The loops of a border, to be taken with the one before them; None where they cannot be."""
    if not isinstance(before, For) or before.way is not Way.PARALLEL:
        return None
    steps = {coefficient(store.place, before.axis) for store in _stores(before, border.buffer)}
    width = steps.pop() if len(steps) == 1 else 0
    found = [_with(loop, width, before.axis.size) for loop in border.body]
    loops = [loop for loop in found if loop is not None]
    return loops if loops and len(loops) == len(found) else None


def _stores(statement: Statement, buffer: Buffer) -> Iterator[Store]:
    if isinstance(statement, Store) and statement.buffer == buffer:
        yield statement
    for inner in statement.body if isinstance(statement, For) else ():
        yield from _stores(inner, buffer)


def _with(loop: Statement, width: int, panels: int) -> For | None:
    """A loop of a border by panels of so many columns, if the loop before it goes by those; else by rows of the buffer,
    those that lie together with the rows of that loop.
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
