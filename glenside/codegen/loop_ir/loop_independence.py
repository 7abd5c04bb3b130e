"""Detects loops without loop-carried dependences."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from glenside.codegen.loop_ir.accesses import Access, accesses, changed_locals, is_written_first
from glenside.codegen.loop_ir.footprints import axes_in, counted, distinct
from glenside.codegen.loop_ir.ir import Buffer, For, Role, Way

AT_ONCE = 1 << 20
"""The most steps that are analyzed, or executed by the interpreter, at once."""
OWN_REGISTERS = (Way.LOOP, Way.PARALLEL, Way.APART)
"""Ways of loops in which each step has private registers."""


def is_independent(loop: For) -> bool:
    """True if the steps of a loop are provably independent; the way of the loop is not trusted."""
    if changed_locals(loop.body):
        return False
    keeps = loop.way in OWN_REGISTERS
    found: dict[Buffer, list[Access]] = {}
    for access in accesses((loop,)):
        found.setdefault(access.buffer, []).append(access)
        if not keeps and any(within.way in OWN_REGISTERS for within in access.loops):
            return False
    for buffer, own in found.items():
        reads = {access.writes for access in own} == {True, False}
        private = keeps and buffer.role is Role.REGISTER and is_written_first(buffer, loop.body)
        if reads and not private and not _is_alone(own):
            return False
    return True


def _is_alone(own: Sequence[Access]) -> bool:
    """True if each step reads and writes a single element, different from that of every other step."""
    first = own[0]
    axes = [loop.axis for loop in first.loops]
    same = all(a.place == first.place and not a.picked and [x.axis for x in a.loops] == axes for a in own)
    if not same or prod(axis.size for axis in axes) > AT_ONCE:
        return False
    outer = {axis.number: 0 for axis in axes_in(first.place) if axis not in axes}
    places = np.broadcast_to(first.place.evaluate(counted(axes) | outer), [axis.size for axis in axes])
    return distinct(places).size == places.size
