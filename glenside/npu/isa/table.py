"""Lists all instructions, from which encoder, decoder, assembler and documents are derived."""

from __future__ import annotations

from glenside.npu.isa.base import (
    Fill,
    Instruction,
    Lanes,
    Load,
    Out,
    Parameters,
    Spread,
    Store,
    Stream,
    Sums,
    Tables,
    Weights,
)
from glenside.npu.isa.column_unit import Apply, Deviation, Functions, Greatest, Mean, Scale, Total

INSTRUCTIONS: tuple[type[Instruction], ...] = (
    Load, Stream, Store, Greatest, Mean, Deviation, Total, Scale, Apply,
    Weights, Lanes, Fill, Tables, Parameters, Out, Sums, Spread, Functions,
)  # fmt: skip
