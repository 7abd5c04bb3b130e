"""Declares the registers of the host port; SystemVerilog package, C header and documents are derived from them."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from glenside.npu.isa.fields import UNITS

FAULTS = (
    "two readers at one port of a lane's bank",
    "two writers at one port of a lane's bank",
    "a lane's address outside",
    "two users of one port of the accumulators",
    "an accumulator outside",
    "a row of weights outside",
    "a row of parameters outside",
    "a table outside",
    "a function outside",
)
"""Meaning of each bit of the register `faults`, from bit 0 on."""
WINDOW = 64
"""Bytes of the address window into which the host writes an instruction."""
BITS = {"start": 1, "running": 1, "done": 2}
"""Bit masks of the register `control`: `start` is written; `running` and `done` are read."""
_UNITS = ", ".join(UNITS)


@dataclass(frozen=True)
class Register:
    """A 64-bit register at a byte address; with a `stride`, one register per unit, in the order of `UNITS`."""

    name: str
    address: int
    doc: str
    stride: int = 0


REGISTERS = (
    Register("control", 0x000, "write 1: start. Read: bit 0 running, bit 1 done"),
    Register("cycles", 0x008, "cycles from the start until everything was completed"),
    Register("starved", 0x010, "cycles in which a queue was empty that should not be: the host was late"),
    Register("faults", 0x018, f"faults since the start: from bit 0 on {', '.join(FAULTS)}"),
    Register("total", 0x040, f"how many instructions of unit u the program has ({_UNITS})", 8),
    Register("completed", 0x080, "how many it has completed", 8),
    Register("free", 0x0C0, "how many more its queue holds", 8),
    Register("instruction", 0x200, "the next instruction of unit u, which goes to its queue", WINDOW),
)
SIZE = REGISTERS[-1].address + len(UNITS) * WINDOW
"""Bytes of the host port."""


def in_systemverilog() -> list[str]:
    """Returns the register addresses as lines of the SystemVerilog package."""
    bits = (SIZE - 1).bit_length()
    lines = ["  // Addresses of the host port; of those that each unit has, the first."]
    return lines + [
        f"  localparam logic [{bits - 1}:0] AT_{r.name.upper()} = {bits}'h{r.address:03x};" for r in REGISTERS
    ]


def in_c() -> str:
    """Returns the register addresses as C definitions: the text of `rtl/registers.h`, which a test compares."""
    lines = [
        "// The registers of the host port. Written by glenside.npu.isa.host_registers.in_c(): do not edit.",
        "#pragma once",
        "",
    ]
    for unit, name in enumerate(UNITS):
        lines.append(f"#define NPU_{name.upper()} {unit}")
    lines += [f"#define NPU_UNITS {len(UNITS)}", f"#define NPU_SIZE 0x{SIZE:03x}", f"#define NPU_WINDOW {WINDOW}"]
    for register in REGISTERS:
        each = f" + {register.stride} * (unit)" if register.stride else ""
        value = f"(0x{register.address:03x}{each})" if each else f"0x{register.address:03x}"
        lines += textwrap.wrap(register.doc, 116, initial_indent="// ", subsequent_indent="// ")
        lines.append(f"#define NPU_AT_{register.name.upper()}{'(unit)' if each else ''} {value}")
    units = ", ".join(f'"{unit}"' for unit in UNITS)
    lines += [
        f"#define NPU_UNIT_NAMES {{{units}}}",
        *(f"#define NPU_{name.upper()} {bit}" for name, bit in BITS.items()),
    ]
    lines += ["// Of the bits of faults, from the lowest on.", "#define NPU_FAULTS \\"]
    lines.append(", \\\n".join(f'    "{name}"' for name in FAULTS))
    return "\n".join([*lines, ""])


def in_markdown() -> str:
    """Returns the register addresses as a Markdown table."""
    lines = ["| address | register | |", "|---|---|---|"]
    for own in REGISTERS:
        each = f" + 0x{own.stride:x}u" if own.stride else ""
        lines.append(f"| 0x{own.address:03x}{each} | `{own.name}` | {own.doc} |")
    return "\n".join(lines)
