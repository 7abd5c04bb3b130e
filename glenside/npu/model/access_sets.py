"""Computes the locations that an instruction accesses, from its effects alone: the basis of inferred waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from glenside.ir.errors import BadInput
from glenside.npu.isa.address_generators import Integers, Table, generated
from glenside.npu.isa.base import Instruction
from glenside.npu.isa.effects import DRAM, LANES, TABLES, Effect
from glenside.npu.isa.fields import Address
from glenside.npu.machine.model import Machine
from glenside.npu.model.bounds import require_within
from glenside.npu.program.table_memory import LaneTables


def access_sets(
    own: Instruction, machine: Machine, tables: LaneTables, beats: int
) -> Iterator[tuple[Effect, Integers]]:
    """Yields each effect of an instruction, reads first, with the flat indices of its locations, (iterations)(..).

    `tables` are read after the access of the table was yielded; `beats` is the size of DRAM. Raises BadInput for a
    location that does not exist.
    """
    for effect in own.effects:
        if effect.holds(own):
            at = _locations(effect, own, machine, tables)
            size = beats if effect.memory.size is None else effect.memory.size(machine)
            if at.size and not (at.min() >= 0 and at.max() < size):
                _require_exists(effect, at, machine, size)
            yield effect, at


def _locations(effect: Effect, own: Any, machine: Machine, tables: LaneTables) -> Integers:
    if not effect.at:
        return np.zeros((1, 1), np.intp)
    first = getattr(own, effect.at)
    base = generated(first, own.counts) if isinstance(first, Address) else np.array([first])
    if effect.memory is DRAM:
        size = machine.bandwidth
        if (base % size).any():
            raise BadInput(f"DRAM is accessed in beats of {size} bytes, got address {base[(base % size).argmax()]:,}")
        return base[:, None] // size + np.arange(own.cycles(machine) // len(base))
    if effect.through:
        return _through_table(effect, own, machine, base, tables)
    return base[:, None] + np.arange(getattr(own, effect.count) if effect.count else 1)


def _through_table(effect: Effect, own: Any, machine: Machine, base: Integers, tables: LaneTables) -> Integers:
    """Returns the locations that the enabled entries of an instruction's tables select."""
    reads = own.effect(TABLES)
    number = getattr(own, reads.count) if reads.count else 1
    table = tables.of(getattr(own, reads.at), number, getattr(machine, own.entries))
    if effect.through == "column":
        found: Integers = base.reshape(-1, number)[:, table.which] + table.offset
        return found
    return _in_lanes(own, machine.rows, base, table, table.lanes if effect.through == "lane" else table.select)


def _in_lanes(own: Any, rows: int, base: Integers, table: Table, lanes: Integers) -> Integers:
    """Returns flat indices: byte q is in bank q mod R. Without a carry, the bank alone is rotated."""
    turn = generated(own.turn, own.counts)[:, None]
    if own.carry:
        return base[:, None] * rows + turn + (table.offset * rows + lanes)
    return (base[:, None] + table.offset) * rows + (lanes + turn) % rows


def _require_exists(effect: Effect, at: Integers, machine: Machine, size: int) -> None:
    if effect.memory is LANES:
        require_within("lane address", at // machine.rows, machine.depth)
    require_within(effect.memory.word, at, size)
