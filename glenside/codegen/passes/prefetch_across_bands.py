"""Prefetches the operands of the next band from memory during the products of this band.

A depthwise convolution reads an image that exceeds the second-level cache row by row, and stalls on each line. The
products after it do not stall. So each step of the products prefetches some lines of the rows that only the next band
reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from glenside.codegen.loop_ir.affine_analysis import at, coefficient, is_affine
from glenside.codegen.loop_ir.ir import For, Load, Prefetch, Role, Statement, Way
from glenside.codegen.memory.buffer_arena import in_line
from glenside.codegen.processor.model import Machine
from glenside.ir.index_map import Axis, flattened

_MAX_LINES_PER_STEP = 4
"""Maximum cache lines prefetched in one step: more would arrive late and stall the step."""


def asking_for_next(
    statements: Sequence[Statement], loads: Sequence[Load], band: Axis, machine: Machine
) -> list[Statement]:
    """Returns the statements of a band with prefetches of what `loads` read in the next band.

    Only buffers that take more than half of the second-level cache are prefetched.
    """
    path = _longest(statements)
    steps = prod(loop.axis.size for loop in path)
    step = flattened([at(loop.axis) for loop in path], [loop.axis.size for loop in path])
    asked: list[Prefetch] = []
    for buffer in dict.fromkeys(load.buffer for load in loads):
        if not path or buffer.role not in (Role.INPUT, Role.TEMPORARY) or 2 * buffer.bytes <= machine.l2:
            continue
        own = [load for load in loads if load.buffer is buffer]
        apart, end = coefficient(own[0].place, band), _end(own, band)
        line = in_line(buffer.dtype)
        share = -(-apart // steps)
        if end is not None and share <= _MAX_LINES_PER_STEP * line:
            first = at(band) * apart + end + step * share
            asked += [Prefetch(buffer, first + n, far=True) for n in range(0, share, line)]
    return _inserted(statements, path, asked) if asked else list(statements)


def _end(loads: Sequence[Load], band: Axis) -> int | None:
    """Returns the end of the range that the first band reads of a buffer; the next band's end is one stride further.

    None if the range of a band is not contiguous, or if bands run backwards.
    """
    end, apart = 0, coefficient(loads[0].place, band)
    for load in loads:
        if load.picked or not is_affine(load.place) or coefficient(load.place, band) != apart or apart <= 0:
            return None
        span = 1
        for factor, size in sorted((f, a.size) for a, f in load.place.terms if isinstance(a, Axis) and a != band):
            if factor < 0 or (size > 1 and factor > 2 * span):  # padding or a stride may skip less than it reads
                return None
            span += factor * (size - 1)
        end = max(end, load.place.constant + span)
    return end


def _longest(statements: Sequence[Statement]) -> list[For]:
    """Returns the path of nested serial loops with the most steps."""
    found: list[For] = []
    for statement in statements:
        if isinstance(statement, For) and statement.way is Way.LOOP:
            own = [statement, *_longest(statement.body)]
            if prod(loop.axis.size for loop in own) > prod(loop.axis.size for loop in found):
                found = own
    return found


def _inserted(statements: Sequence[Statement], path: Sequence[For], asked: Sequence[Prefetch]) -> list[Statement]:
    """Returns statements with prefetches inserted first in the innermost loop of `path`."""
    if not path:
        return [*asked, *statements]
    return [
        replace(path[0], body=tuple(_inserted(path[0].body, path[1:], asked))) if statement is path[0] else statement
        for statement in statements
    ]
