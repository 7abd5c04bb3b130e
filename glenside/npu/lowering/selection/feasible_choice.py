"""Selects mappings whose resident tensors can be allocated: the cost model only estimates the scratchpad capacity."""

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
"""Maximum number of repairs of a choice whose resident tensors do not fit: first readers are examined, then tensors
dropped.
"""


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
    """Returns the chosen mapping of each layer, with its array cycles, and the whole choice.

    Tensors may stay in the scratchpad, unless `stay` is False. `priced` are the candidates of these mappings, and
    `known` their costs, if the caller has them. If no choice costs less than `enough`, any may be returned. `windows`
    predicts the cost of windows, which are otherwise assumed to be nearly full.

    Raises BadInput for a layer whose mappings the machine cannot run, by name, with the first reason; or if no choice
    was found.
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
        first = FIRST if before is None else 0.0  # most costs are known then
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
            break  # of a large network the others pass through DRAM
        if found.stopped:  # and all else is chosen for that
            stays.keep(there)
        else:
            stays.look(missing)
    if windows and where is not None:
        where = where[0], {term: own.ordered(found.axes.get(term)) for term, own in where[1].items()}, where[2]
    return taken, replace(found, held=frozenset(there), where=where)
