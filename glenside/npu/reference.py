"""The instructions in words, for `rtl/README.md`: a table of them, and the bits of each unit's."""

from __future__ import annotations

from glenside.npu.encoding import bits, layout, operations, words
from glenside.npu.instructions import UNITS, Instruction

BEGIN, END = "<!-- instructions: written by glenside.npu.reference -->", "<!-- end of instructions -->"


def instructions() -> str:
    """Every instruction with its fields, and every layout, as Markdown."""
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
