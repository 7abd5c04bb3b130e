"""What the layers of a program mean, and whether that is what it left in DRAM."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from glenside.ir.operand import Array
from glenside.ir.text import parse
from glenside.npu.program import NpuProgram, Place, Stretch
from glenside.semantics.interpreter import evaluate


def wrong(program: NpuProgram, dram: Array) -> list[str]:
    """The layers whose results in that DRAM are not what the interpreter says of what they read in it, or that read
    what is no layer's result and has changed. Bytes without an address are those that no layer reads.

    Raises GlensideError: the text of a layer's meaning is none.
    """
    computed = np.zeros(len(dram), bool)
    for own in program.stretches:
        computed[_bytes([own.result] if own.result is not None else [])] = True
    changed = (program.dram != dram) & ~computed
    return [own.name for own in program.stretches if not _is_right(own, dram, changed)]


def _bytes(places: Iterable[Place]) -> Array:
    """The addresses of all that places have."""
    found = [np.zeros(0, np.int64)]
    for place in places:
        at = place.addresses.reshape(-1, 1)
        found.append((at[at[:, 0] >= 0] + np.arange(np.dtype(place.dtype).itemsize)).reshape(-1))
    return np.concatenate(found)


def _is_right(own: Stretch, dram: Array, changed: Array) -> bool:
    if own.result is None or not own.meaning:
        return True
    if changed[_bytes(own.operands.values())].any():
        return False
    operands = {name: place.read(dram) for name, place in own.operands.items()}
    (wanted,) = evaluate([parse(own.meaning).term], operands)
    got = own.result.read(dram)
    kept = own.result.addresses >= 0 if own.result.dtype == "int8" else np.ones(got.shape, bool)
    return bool(np.array_equal(np.asarray(wanted).reshape(got.shape)[kept], got[kept]))
