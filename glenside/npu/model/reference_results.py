"""What the layers of a program mean, and whether that is what it left in DRAM."""

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
    """The layers whose results in that DRAM are not what the interpreter says of what they read in it, or that read
    anything but what the layers before them made, and what the program's own DRAM holds. `meant` is what
    `results_meant` found of the program, or `results_wanted` of its network: of what is left so the interpreter need
    not be asked again. `left` is what `results_left` found in that DRAM.

    Raises BadInput: the text of a layer's meaning is none.
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
    """Of layers by name what tells their results from others, as the interpreter says of the network and of inputs that
    are drawn by the seed, whatever instructions are made of it. `look` is called now and then.
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
    """Of layers by name what tells their results in that DRAM from others, empty where some are no numbers; but for
    those that read anything but what the layers before them made, and what the program's own DRAM holds.
    """
    results, found = {own.name: own.result for own in program.stretches}, dict[str, str]()
    for own in program.stretches:
        if own.result is None or not own.meaning or _operands(own, results, program.dram, dram) is None:
            continue
        found[own.name] = _digest(_left(own.result, dram)) or ""
    return found


def results_meant(program: NpuProgram) -> dict[str, str]:
    """Of layers by name what tells their results from others, as the interpreter says of what the program's DRAM holds:
    of those that read nothing that stands for other numbers. Raises BadInput: the text of a layer's meaning is none.
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
    """Of numbers, the same of equal ones; None where some are none."""
    whole = values.dtype.kind in "iub"
    if not whole and np.isnan(values).any():
        return None
    content = values.astype(np.int64) if whole else values.astype(np.float64) + 0.0
    return blake2b(content.tobytes(), digest_size=32).hexdigest() + content.dtype.kind


def _operands(
    own: Stretch, results: Mapping[str, Place | None], before: Array, after: Array
) -> dict[str, Array] | None:
    """What a layer reads; None where that is not there any more."""
    operands = {}
    for name, place in own.operands.items():
        maker, at = results.get(own.made.get(name, "")), place.addresses
        operands[name] = place.read(before, at) if maker is None else maker.read(after)
        if ((place.read(after, at) != operands[name]) & (at >= 0)).any():
            return None
    return operands


def _evaluated(own: Stretch, operands: Mapping[str, Array]) -> Array | None:
    """The result of a layer; None where it is no array. Raises BadInput."""
    try:
        (found,) = evaluate([parse(own.meaning).term], operands)
    except GlensideError as error:
        raise BadInput(f"what {one_line(own.name)} means is not said by its text: {error}") from error
    return None if isinstance(found, tuple) else np.asarray(found)


def _left(place: Place, dram: Array) -> Array:
    """The numbers that are there, (n), of elements that are anywhere."""
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
