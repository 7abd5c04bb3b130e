"""Lowers loops of steps (the operator scan): the body is a program of its own, whose nests run in each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from glenside.codegen.loop_ir.ir import Buffer, Loops, Packing, Role, StepLoop
from glenside.codegen.loop_ir.nest_builder import View
from glenside.codegen.loop_ir.step_loops import FIRST_NUMBER
from glenside.ir.index_map import Axis, Index
from glenside.ir.operators.scan import STATE, operand_name
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.passes.loop_bodies import read_by_steps

LowerBody = Callable[[Program], Loops]


def stored_operands(scan: Term) -> list[Term]:
    """Returns the operands that a loop reads in memory, in row-major order: all but constants, which bodies contain."""
    return [_base(operand) for operand in read_by_steps(scan) if operand is not None]


def _base(term: Term) -> Term:
    """Returns the term of whose elements, in order, a term is a reshape."""
    while term.operator.name in ("access", "access-reshape"):
        (term,) = term.children
    return term


class Lowered(NamedTuple):
    """A loop, and the constant packings and the temporaries that it adds to a program."""

    loop: StepLoop
    packings: tuple[Packing, ...]
    temporaries: tuple[Buffer, ...]


def lowered(
    scan: Term,
    number: int,
    view: View,
    views: Mapping[Term, View],
    constants: Mapping[str, Buffer],
    body: Program,
    loops: Loops,
) -> Lowered:
    """Returns the loop of a body's loops.

    view       of all states
    views      of the operands
    constants  buffers of constants by name
    """
    _, length, starts, _, *operands = scan.arguments()
    counter = Axis(FIRST_NUMBER + number, length)
    step, size = Index(((counter, 1),)) if length != 1 else Index(), view.dims[1]
    places: dict[Buffer, tuple[Buffer, Index]] = {loops.results[0]: (view.buffer, step * size + size)}
    temporaries: list[Buffer] = []
    for buffer in (*loops.buffers, *(buffer for p in loops.packings for buffer in (p.source, p.buffer))):
        if buffer.role is Role.CONSTANT:
            places[buffer] = constants.get(buffer.name, buffer), Index()
        elif buffer.name == STATE and buffer.role is Role.INPUT:
            places[buffer] = view.buffer, step * size
        elif buffer.role is Role.INPUT:
            number = next(i for i in range(len(operands)) if operand_name(i) == buffer.name)
            row = buffer.dims.product()
            first = (step + starts[number]) * row if number < len(starts) else Index()
            places[buffer] = views[_base(operands[number])].buffer, first
        elif buffer.role is Role.TEMPORARY and buffer not in places:
            own = replace(buffer, name=f"{view.buffer.name}.{buffer.name}")
            places[buffer] = own, Index()
            temporaries.append(own)
    packed = tuple(replace(p, source=places[p.source][0]) for p in loops.packings if p.buffer.role is Role.CONSTANT)
    return Lowered(StepLoop(counter, body, loops, places), packed, tuple(temporaries))
