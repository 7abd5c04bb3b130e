"""Compares the results that a program left in DRAM with the interpreter's results, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np

from glenside.ir.errors import BadInput, GlensideError
from glenside.ir.names import one_line
from glenside.ir.operand import Array
from glenside.ir.term import Term
from glenside.ir.text import parse
from glenside.npu.program.program import NpuProgram, Place, Stretch
from glenside.quantization.layers import IntegerNetwork
from glenside.semantics.interpreter import evaluate


def wrong(
    program: NpuProgram, dram: Array, meant: Mapping[str, str] | None = None, left: Mapping[str, str] | None = None
) -> list[str]:
    """Returns the layers with wrong results in `dram`, by name.

    A result is wrong if it differs from the interpreter's result on the layer's operands in `dram`, or if an operand is
    neither an earlier layer's result nor content of the program's DRAM image.

    `meant`: digests of `results_meant` or `results_wanted`; layers whose digests agree are not interpreted again.
    `left`: digests of `results_left`, if already computed. Raises BadInput if the text of a layer's meaning is not a
    program.
    """
    left = results_left(program, dram) if left is None else left
    results, found = {own.name: own.result for own in program.stretches}, list[str]()
    as_meant = set[str]()
    for own in program.stretches:
        if own.result is None or not own.meaning:
            continue
        if own.name not in left:
            found.append(own.name)
            continue
        if meant and {*own.made.values()} <= as_meant and meant.get(own.name, "") == left[own.name] != "":
            as_meant.add(own.name)
            continue
        operands = _operands(own, results, program.dram, dram)
        if operands is None or not _is_left(own.result, _evaluated(own, operands), dram):
            found.append(own.name)
        elif {*own.made.values()} <= as_meant:
            as_meant.add(own.name)
    return found


def results_wanted(network: IntegerNetwork, seed: int, look: Callable[[], None] = lambda: None) -> dict[str, str]:
    """Returns digests of the network's layer results by name, interpreted on random inputs of the seed.

    The digests do not depend on the instructions of a program. Calls `look` for each value.
    """
    found, names = dict[str, str](), network.wanted()

    def note(term: Term, value: Any) -> None:
        look()
        digest = None if isinstance(value, tuple) else _digest(np.asarray(value))
        if digest is not None:
            found[names[term]] = digest

    evaluate([*names], {**network.constants, **network.drawn_inputs(seed)}, watch=note)
    return found


def results_left(program: NpuProgram, dram: Array) -> dict[str, str]:
    """Returns digests of the layers' results in `dram` by name; "" for results with NaNs.

    Leaves out layers with an operand that is neither an earlier layer's result nor content of the program's DRAM image.
    """
    results, found = {own.name: own.result for own in program.stretches}, dict[str, str]()
    for own in program.stretches:
        if own.result is None or not own.meaning or _operands(own, results, program.dram, dram) is None:
            continue
        found[own.name] = _digest(_left(own.result, dram)) or ""
    return found


def results_meant(program: NpuProgram) -> dict[str, str]:
    """Returns digests of the layers' results by name, interpreted on the program's own DRAM image.

    Leaves out layers that read results stored as quantized integers. Raises BadInput if the text of a layer's meaning
    is not a program.
    """
    results, dram = {own.name: own.result for own in program.stretches}, program.dram.copy()
    found = dict[str, str]()
    for own in program.stretches:
        makers = [results.get(made) for made in own.made.values()]
        known = {*own.made.values()} <= found.keys() and all(m is not None and m.stands_for is None for m in makers)
        if own.result is None or not own.meaning or not known:
            continue
        operands = _operands(own, results, program.dram, dram)
        wanted = None if operands is None else _evaluated(own, operands)
        if wanted is not None and wanted.size == int(np.prod(own.result.shape)):
            there = own.result.addresses >= 0
            digest = _digest(wanted.reshape(own.result.shape)[there])
            if digest is not None:
                found[own.name] = digest
            if own.result.stands_for is None:
                own.result.write(dram, wanted.reshape(own.result.shape).astype(own.result.dtype))
    return found


def _digest(values: Array) -> str | None:
    """Returns a digest of numbers, equal for equal numbers; None for NaNs."""
    whole = values.dtype.kind in "iub"
    if not whole and np.isnan(values).any():
        return None
    content = values.astype(np.int64) if whole else values.astype(np.float64) + 0.0
    return blake2b(content.tobytes(), digest_size=32).hexdigest() + content.dtype.kind


def _operands(
    own: Stretch, results: Mapping[str, Place | None], before: Array, after: Array
) -> dict[str, Array] | None:
    """Returns a layer's operands; None if `after` does not hold the expected numbers at their places.

    Expected are the maker's result in `after`, or else the content of `before`.
    """
    operands = {}
    for name, place in own.operands.items():
        maker, at = results.get(own.made.get(name, "")), place.addresses
        operands[name] = place.read(before, at) if maker is None else maker.read(after)
        if ((place.read(after, at) != operands[name]) & (at >= 0)).any():
            return None
    return operands


def _evaluated(own: Stretch, operands: Mapping[str, Array]) -> Array | None:
    """Interprets a layer; None if its result is a tuple. Raises BadInput."""
    try:
        (found,) = evaluate([parse(own.meaning).term], operands)
    except GlensideError as error:
        raise BadInput(f"the meaning of {one_line(own.name)} is not a program: {error}") from error
    return None if isinstance(found, tuple) else np.asarray(found)


def _left(place: Place, dram: Array) -> Array:
    """Reads the stored elements of a place, dequantized, (n)."""
    at = place.addresses
    got = place.read(dram, at)
    got = got if place.stands_for is None else place.stands_for.real(got)
    found: Array = got[at >= 0]
    return found


def _is_left(place: Place, wanted: Array | None, dram: Array) -> bool:
    there = place.addresses >= 0
    if wanted is None or wanted.size != there.size:
        return False
    return bool(np.array_equal(wanted.reshape(there.shape)[there], _left(place, dram)))
