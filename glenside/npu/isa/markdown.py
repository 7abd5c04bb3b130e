"""Writes the generated sections of `rtl/README.md`: tables of instructions and registers, and the bit layouts."""

from __future__ import annotations

from glenside.npu.isa.base import Instruction
from glenside.npu.isa.effects import Effect
from glenside.npu.isa.encoding import bits, layout, operations, words
from glenside.npu.isa.fields import UNITS
from glenside.npu.isa.host_registers import in_markdown

SECTIONS = ("instructions", "accesses", "registers")
"""The generated sections of the document, each between its `marks`."""


def marks(section: str) -> tuple[str, str]:
    """Returns the comment lines before and after a section."""
    return f"<!-- {section}: written by glenside.npu.isa.markdown -->", f"<!-- end of {section} -->"


def section(name: str) -> str:
    """Returns the text of a section."""
    return {"instructions": instructions, "accesses": accesses, "registers": in_markdown}[name]()


def instructions() -> str:
    """Returns all instructions with their fields, and each unit's bit layout, as Markdown."""
    lines = ["| unit | operation | instruction | does | fields |", "|---|---|---|---|---|"]
    for unit in UNITS:
        lines += [_row(unit, kind) for kind in operations(unit).values()]
    for unit in UNITS:
        lines += ["", f"`{unit}`, {bits(unit)} bits in {words(unit)} words, from bit 0 on:"]
        lines.append(", ".join(f"{part.name} {part.bits}{' signed' if part.signed else ''}" for part in layout(unit)))
    return "\n".join(lines)


def _row(unit: str, kind: type[Instruction]) -> str:
    does = " ".join((kind.__doc__ or "").split())
    fields = "; ".join(f"`{name}` {own.doc}" for name, own in kind.kinds().items() if name != "wait")
    return f"| {unit} | {kind.operation} | `{kind.mnemonic()}` | {does} | {fields} |"


def accesses() -> str:
    """Returns the cycles of all accesses, from the start of an iteration on, and the interlocks, as Markdown."""
    lines = ["| unit | instruction | reads | writes |", "|---|---|---|---|"]
    for unit in UNITS:
        for kind in operations(unit).values():
            columns = (", ".join(_access(own) for own in kind.effects if own.writes is way) for way in (False, True))
            lines.append(f"| {unit} | `{kind.mnemonic()}` | {' | '.join(columns)} |")
    lines += ["", "| instruction | starts no earlier than | in a serial array |", "|---|---|---|"]
    for kind in (kind for unit in UNITS for kind in operations(unit).values()):
        if (lock := kind.interlock) is not None:
            which = f" with `{lock.when}`" if lock.when else ""
            nth = f"(n - {lock.lag})-th" if lock.lag else "n-th"
            other = f"of the {nth} interlocked instruction of {lock.other}"
            lines.append(f"| n-th `{kind.mnemonic()}`{which} | {lock.event} {other} | {lock.serial} |")
    return "\n".join(lines)


def _access(own: Effect) -> str:
    skew = "+c of column c" if own.skewed else ""
    return f"{own.memory.name} +{own.delay}{skew}{f' with `{own.when}`' if own.when else ''}"
