"""What the layers of a program mean, and whether that is what it left in DRAM."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from glenside.ir.errors import BadInput, GlensideError
from glenside.ir.names import one_line
from glenside.ir.operand import Array
from glenside.ir.text import parse
from glenside.npu.program import NpuProgram, Place, Stretch
from glenside.semantics.interpreter import evaluate


def wrong(program: NpuProgram, dram: Array) -> list[str]:
    """The layers whose results in that DRAM are not what the interpreter says of what they read in it, or that read
    anything but what the layers before them made, and what the program's own DRAM holds.

    Raises BadInput: the text of a layer's meaning is none.
    """
    results = {own.name: own.result for own in program.stretches}
    return [own.name for own in program.stretches if not _is_right(own, results, program.dram, dram)]


def _is_right(own: Stretch, results: Mapping[str, Place | None], before: Array, after: Array) -> bool:
    if own.result is None or not own.meaning:
        return True
    operands = {}
    for name, place in own.operands.items():
        maker, at = results.get(own.made.get(name, "")), place.addresses
        operands[name] = place.read(before, at) if maker is None else maker.read(after)
        if ((place.read(after, at) != operands[name]) & (at >= 0)).any():
            return False
    try:
        (found,) = evaluate([parse(own.meaning).term], operands)
    except GlensideError as error:
        raise BadInput(f"what {one_line(own.name)} means is not said by its text: {error}") from error
    at, stands_for = own.result.addresses, own.result.stands_for
    there, got = at >= 0, own.result.read(after, at)
    if isinstance(found, tuple) or (wanted := np.asarray(found)).size != got.size:
        return False
    got = got if stands_for is None else stands_for.real(got)
    return bool(np.array_equal(wanted.reshape(got.shape)[there], got[there]))
