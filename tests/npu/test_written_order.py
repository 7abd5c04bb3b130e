"""Tests that loads of tables and parameters precede loads for later runs, but not before their slots are free."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from glenside.npu.isa.base import Fill, Instruction, Parameters, Spread, Store, Tables, Weights
from glenside.npu.isa.fields import Address
from glenside.npu.lowering.emission.instruction_list import Written

LATER = [Weights(64 * number, 4 * number, 4) for number in range(3)]


def _fill(table: int) -> Fill:
    return Fill((1, 1, 1), Address(0), table)


def _written(before: list[Instruction], behind: list[Instruction], ahead: bool = True) -> list[Instruction]:
    """What becomes of instructions behind weights for later."""
    own = Written()
    for each in before:
        own.add(each)
    own.ahead = len(own) if ahead else None
    for each in (*LATER, *behind):
        own.add(each)
    return [*own]


def test_a_table_comes_before_what_is_for_later() -> None:
    table, use = Tables(0, 1, 1), _fill(1)
    assert _written([_fill(0)], [table, use]) == [_fill(0), table, *LATER, use]
    assert _written([_fill(0)], [table, use], ahead=False) == [_fill(0), *LATER, table, use]


def test_several_keep_their_order() -> None:
    tables = [Tables(64, 1, 1), Tables(128, 2, 2)]
    uses = [_fill(1), _fill(3)]
    assert _written([], [tables[0], uses[0], tables[1], uses[1]]) == [*tables, *LATER, *uses]


def test_it_does_not_come_before_the_last_that_uses_its_slot() -> None:
    old, use, new = Tables(0, 1, 1), _fill(1), Tables(64, 1, 1)
    assert _written([old, use], [new, use]) == [old, use, new, *LATER, use]
    assert _written([old], [use, new, use]) == [old, *LATER, use, new, use]
    wide = Tables(64, 0, 2)
    assert _written([old], [use, wide, use]) == [old, *LATER, use, wide, use]
    walk = Spread((2, 1, 1), Address(0), Address(0), 0, True)
    assert _written([Tables(0, 0, 2)], [walk, new, use]) == [Tables(0, 0, 2), *LATER, walk, new, use]
    assert _written([wide], [replace(walk, increment=False), new]) == [
        wide,
        new,
        *LATER,
        replace(walk, increment=False),
    ]


def test_parameters_come_behind_all_that_is_stored_before() -> None:
    store = Store((1, 1, 1), Address(0), Address(0), 0, Address(3))
    first, second = Parameters(0, 3, 1), Parameters(64, 3, 1)
    assert _written([store], [first, store, second, store]) == [store, first, *LATER, store, second, store]


@pytest.mark.parametrize("seed", range(20))
def test_what_each_finds_in_its_slots_is_what_was_written_down(seed: int) -> None:
    draw = np.random.default_rng(seed)

    def seen(every: list[Instruction]) -> list[tuple[Instruction, object]]:
        tables, rows, found = dict[int, int](), dict[int, int](), list[tuple[Instruction, object]]()
        for own in every:
            if isinstance(own, Tables):
                tables |= {own.table + each: own.dram + each for each in range(own.number)}
            elif isinstance(own, Parameters):
                rows[own.parameters] = own.dram
            elif isinstance(own, Store):
                found.append((own, (tables.get(own.table), rows.get(own.parameters.base))))
            elif isinstance(own, Fill):
                found.append((own, tables.get(own.table)))
            elif isinstance(own, Spread):
                found.append((own, [tables.get(own.table + each) for each in range(own.tables)]))
        return found

    own, plain = Written(), list[Instruction]()
    for number in range(60):
        slot = int(draw.integers(3))
        kinds: list[Instruction] = [
            Tables(64 * number, slot, 1 + int(draw.integers(2))),
            Parameters(64 * number, slot, 1),
            Store((1, 1, number + 1), Address(0), Address(0), slot, Address(int(draw.integers(3)))),
            Fill((1, 1, number + 1), Address(0), slot),
            Weights(64 * number, 0, 1),
            Spread((2, 1, number + 1), Address(0), Address(0), slot, bool(slot)),
        ]
        if not draw.integers(6):
            own.ahead = len(own)
        plain.append(kinds[int(draw.integers(len(kinds)))])
        own.add(plain[-1])
    assert seen([*own]) == seen(plain)
    assert sorted(map(repr, own)) == sorted(map(repr, plain))
    assert [*own] != plain
