"""What the layers of a program mean, and whether that is what it left in DRAM."""

from __future__ import annotations

import numpy as np

from glenside.ir.operand import Array
from glenside.ir.text import parse
from glenside.npu.program import NpuProgram, Stretch
from glenside.semantics.interpreter import evaluate


def wrong(program: NpuProgram, dram: Array) -> list[str]:
    """The layers whose results in that DRAM are not what the interpreter says of what they read in the program's.

    Raises GlensideError: the text of a layer's meaning is none.
    """
    return [own.name for own in program.stretches if not _is_right(own, program.dram, dram)]


def _is_right(own: Stretch, before: Array, after: Array) -> bool:
    if own.result is None or not own.meaning:
        return True
    operands = {name: place.read(before) for name, place in own.operands.items()}
    (wanted,) = evaluate([parse(own.meaning).term], operands)
    got = own.result.read(after)
    return bool(np.array_equal(np.asarray(wanted).reshape(got.shape), got))
