"""The best choice of mappings whose tensors stay in the lanes indeed: prices tell only about what room there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import highspy

from glenside.analysis.element_sources import leaves_of
from glenside.ir.stopwatch import stage
from glenside.npu.lowering.selection.candidates import Options, options_of
from glenside.npu.lowering.selection.ilp_model import FIRST, SPARED, Choice, Known, chosen
from glenside.npu.lowering.selection.residency_candidates import Staying
from glenside.npu.lowering.selection.tensor_placement import Tensors
from glenside.npu.lowering.tiling.mapped_layers import Mapped, results_of
from glenside.npu.machine.model import Machine
from glenside.quantization.layers import IntegerNetwork

_ROUNDS = 6
"""How often tensors that are to stay, and do not, are looked at again: for what readers allow, and then given up."""


def best(
    network: IntegerNetwork,
    variants: Mapping[str, Sequence[tuple[Mapped, int]]],
    machine: Machine,
    show: Callable[[str, int, int], None] = lambda *_: None,
    stay: bool = True,
    priced: Options | None = None,
    known: Known | None = None,
    enough: float = highspy.kHighsInf,
    spared: float = SPARED,
    windows: bool = False,
) -> tuple[dict[str, Mapped], Choice]:
    """For each layer of a network one of its mappings, each with its cycles of the array; and the whole choice. Tensors
    may stay in lanes, but for `stay` unset. `priced` are the options of these mappings, where they are known, and
    `known` what they were found to take. Where no choice takes less than `enough` it is any. `windows` looks at what
    these take, where others are taken to be about full.

    Raises BadInput: a layer of which the machine runs no mapping, by name, with the reason of the first; or no
    choice was found.
    """
    priced = priced or options_of(network, variants, machine, show)
    results = {layer.result: layer.name for layer in network.layers}
    requantised = {layer.name for layer in network.layers if layer.requantised is not None}
    outside = {leaf for root in results_of(network) for leaf in leaves_of(root, results)}
    stays = Staying(priced.every, results, requantised, outside, machine) if stay else None
    known = {} if known is None else known
    come = stays.every if windows and stays is not None else None
    again = partial(
        chosen, priced.every, results, machine, show, known=known, enough=enough, spared=spared, windows=come
    )
    before: Choice | None = None
    taken, where = dict[str, Mapped](), None
    for _ in range(_ROUNDS):
        first = FIRST if before is None else 0.0  # most prices are known then
        found = again(stays=None if stays is None else stays.found, first=first, before=before)
        if before is None or not found.is_like(before):
            taken = priced.taken(found.mappings)
            with stage("allocate"):
                where = (
                    Tensors(network, taken, machine, found.axes, found.held).where if found.held or windows else None
                )
        before = found
        there = where[0] if where is not None else {}
        missing = found.held - there.keys()
        if stays is None or not missing or (found.stopped and (not windows or stays.found().keys() <= there.keys())):
            break  # of a large network the others pass DRAM
        if found.stopped:  # and all else is chosen for that
            stays.keep(there)
        else:
            stays.look(missing)
    if windows and where is not None:
        where = where[0], {term: own.ordered(found.axes.get(term)) for term, own in where[1].items()}, where[2]
    return taken, replace(found, held=frozenset(there), where=where)
