"""Encodes and decodes instructions: one bit layout per unit, shared by the queues and the SystemVerilog package.

A layout begins at bit 0 with the operation, if the unit has more than one. Behind it are all parts that any instruction
of the unit has. An instruction occupies whole words of 64 bits; unused bits are 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from glenside.ir.errors import BadInput
from glenside.npu.isa import host_registers
from glenside.npu.isa.base import Instruction
from glenside.npu.isa.fields import UNITS, Part
from glenside.npu.isa.table import INSTRUCTIONS

WORD = 64
"""Bits of a word of the host port."""
OPERATION = "operation"
_SPELLED = {"table": "lane_table", "function": "lookup"}
"""Part names that SystemVerilog reserves -> their names in the package."""


@cache
def operations(unit: str) -> Mapping[int, type[Instruction]]:
    """Returns the instruction classes of a unit, by operation."""
    return {kind.operation: kind for kind in INSTRUCTIONS if kind.unit == unit}


@cache
def layout(unit: str) -> Sequence[Part]:
    """Returns the parts of a unit's layout, from bit 0 on."""
    own = operations(unit)
    found = {OPERATION: Part(OPERATION, (len(own) - 1).bit_length())} if len(own) > 1 else {}
    for instruction in own.values():
        for name, kind in instruction.kinds().items():
            for part in kind.parts(name):
                if part.name in found and found[part.name].bits != part.bits:
                    raise TypeError(f"{part.name} has two sizes among the instructions of {unit}")
                found.setdefault(part.name, part)
    return tuple(found.values())


def bits(unit: str) -> int:
    """Returns the number of bits in a unit's layout."""
    return sum(part.bits for part in layout(unit))


def words(unit: str) -> int:
    """Returns the number of 64-bit words per instruction of a unit."""
    return -(-bits(unit) // WORD)


def encoded(instruction: Instruction) -> list[int]:
    """Encodes an instruction as words. Raises BadInput for a number that does not fit its field."""
    instruction.require_fit()
    numbers = {part.name: number for part, number in instruction.parts()}
    numbers[OPERATION] = instruction.operation
    found = place = 0
    for part in layout(instruction.unit):
        found |= (numbers.get(part.name, 0) & (1 << part.bits) - 1) << place
        place += part.bits
    return [found >> WORD * i & (1 << WORD) - 1 for i in range(words(instruction.unit))]


def decoded(unit: str, content: Sequence[int]) -> Instruction:
    """Decodes an instruction of a unit. Raises BadInput for words that encode no instruction."""
    rest = sum(word << WORD * i for i, word in enumerate(content))
    numbers: dict[str, int] = {}
    for part in layout(unit):
        number = rest & (1 << part.bits) - 1
        numbers[part.name] = number - (1 << part.bits) if part.signed and number >> part.bits - 1 else number
        rest >>= part.bits
    kind = operations(unit).get(numbers.get(OPERATION, 0))
    if kind is None:
        raise BadInput(f"{unit} has no operation {numbers[OPERATION]}")
    found = kind.of_parts(numbers)
    found.require_fit()
    if encoded(found) != list(content):
        raise BadInput(f"a {found.mnemonic()} has bits that it does not use")
    return found


def all_encoded(unit: str, instructions: Sequence[Instruction]) -> Words:
    """Encodes instructions of a unit, (n)(words). Raises BadInput for a number that does not fit its field."""
    found = np.zeros((len(instructions), words(unit)), np.uint64)
    for kind, at in _by_kind(instructions).items():
        numbers = kind.require_all_fit([instructions[each] for each in at]).astype(np.uint64)
        own = np.zeros((len(at), words(unit)), np.uint64)
        _put(own, _at(unit)[OPERATION] if len(operations(unit)) > 1 else None, np.uint64(kind.operation))
        for name, column in zip(kind.part_names(), numbers.T, strict=True):
            _put(own, _at(unit)[name], column)
        found[at] = own
    return found


def all_decoded(unit: str, content: Words) -> Sequence[Instruction]:
    """Decodes instructions of a unit from (n)(words). Raises BadInput for words that encode no instruction."""
    kinds = operations(unit)
    several = len(kinds) > 1
    number = _take(content, _at(unit)[OPERATION]) if several else np.zeros(len(content), np.int64)
    found: list[Instruction | None] = [None] * len(content)
    for operation, kind in kinds.items():
        at = np.flatnonzero(number == operation)
        own = content[at]
        parts = [_take(own, _at(unit)[name]).tolist() for name in kind.part_names()]
        made = kind.of_numbers(parts) if len(at) else []
        for each, instruction in zip(at.tolist(), made, strict=True):
            found[each] = instruction
    every = [own for own in found if own is not None]
    if len(every) < len(found) or not np.array_equal(all_encoded(unit, every), content):
        for own in content.tolist():
            decoded(unit, own)
    return every


Words = npt.NDArray[np.uint64]


def _by_kind(instructions: Sequence[Instruction]) -> Mapping[type[Instruction], list[int]]:
    found: dict[type[Instruction], list[int]] = {}
    for number, own in enumerate(instructions):
        found.setdefault(type(own), []).append(number)
    return found


@cache
def _at(unit: str) -> Mapping[str, tuple[int, Part]]:
    """Returns each part of a unit's layout with its first bit, by name."""
    own = layout(unit)
    begins = accumulate((part.bits for part in own), initial=0)
    return {part.name: (begin, part) for begin, part in zip(begins, own, strict=False)}


def _put(content: Words, where: tuple[int, Part] | None, numbers: Words | np.uint64) -> None:
    if where is None:
        return
    (word, shift), part = divmod(where[0], WORD), where[1]
    own = numbers & np.uint64((1 << part.bits) - 1)
    content[:, word] |= own << np.uint64(shift)
    if shift + part.bits > WORD:
        content[:, word + 1] |= own >> np.uint64(WORD - shift)


def _take(content: Words, where: tuple[int, Part]) -> npt.NDArray[np.int64]:
    (word, shift), part = divmod(where[0], WORD), where[1]
    own = content[:, word] >> np.uint64(shift)
    if shift + part.bits > WORD:
        own = own | content[:, word + 1] << np.uint64(WORD - shift)
    found = (own & np.uint64((1 << part.bits) - 1)).astype(np.int64)
    return found - ((found >> part.bits - 1) << part.bits) if part.signed else found


def package() -> str:
    """Returns registers and layouts as a SystemVerilog package: the text of `rtl/npu_pkg.sv`, which a test compares."""
    lines = [
        "// Registers and the layouts of instructions. Written by glenside.npu.isa.encoding.package(): do not edit.",
        "package npu_pkg;",
        "",
        *host_registers.in_systemverilog(),
    ]
    for unit in UNITS:
        lines += ["", f"  localparam int {unit.upper()}_BITS = {bits(unit)};"]
        lines += [f"  localparam int {unit.upper()}_WORDS = {words(unit)};"]
        if len(operations(unit)) > 1:
            size = layout(unit)[0].bits
            for operation, kind in operations(unit).items():
                lines.append(f"  localparam logic [{size - 1}:0] {kind.mnemonic().upper()} = {size}'d{operation};")
        lines.append("  typedef struct packed {  // the last field begins at bit 0")
        for part in reversed(layout(unit)):
            sign = "signed " if part.signed else ""
            lines.append(f"    logic {sign}[{part.bits - 1}:0] {_SPELLED.get(part.name, part.name)};")
        lines.append(f"  }} {unit}_t;")
    return "\n".join([*lines, *_RECORDS, "", "endpackage", ""])


_RECORDS = """
  // An entry of a lane table, and a column's parameters, as they are in DRAM.
  typedef struct packed {
    logic [7:0] sign;  // of the offset, once more
    logic signed [23:0] offset;
    logic [14:0] unused;
    logic enable;
    logic [15:0] select;
  } entry_t;
  typedef struct packed {
    logic [39:0] unused;
    logic signed [7:0] high;
    logic signed [7:0] low;
    logic signed [7:0] zero;
    logic [31:0] scale;
    logic signed [31:0] bias;
  } parameters_t;""".splitlines()
