"""Integer networks as programs: of the mappings that were found, with what inputs and outputs stand for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from glenside.ir.errors import BadInput
from glenside.ir.forked_work import forked
from glenside.ir.stopwatch import stage
from glenside.ir.term import Term
from glenside.npu.analysis.retargeting import cycles_on, retargeted
from glenside.npu.lowering.emission.cycle_cutoff import TooLong, Trial
from glenside.npu.lowering.pipeline.compile_mapped import as_mapped
from glenside.npu.lowering.pipeline.emit_network import chained
from glenside.npu.lowering.selection.candidates import Options, options_of
from glenside.npu.lowering.selection.feasible_choice import best
from glenside.npu.lowering.selection.ilp_model import Choice, Known
from glenside.npu.lowering.selection.known_programs import Remembered
from glenside.npu.lowering.selection.lower_bounds import Floors
from glenside.npu.lowering.selection.neighbourhood_search import Search, Told, Way, is_small
from glenside.npu.lowering.selection.smaller_machines import smaller
from glenside.npu.lowering.selection.tensor_placement import Tensors, Where
from glenside.npu.lowering.tiling.elementwise_as_matmul import every_mapping
from glenside.npu.lowering.tiling.mapped_layers import Mapped, Unlowered
from glenside.npu.lowering.util.identity_memo import Again
from glenside.npu.machine.model import HALVES, Machine, with_useful_beats
from glenside.npu.program.program import Choices, NpuProgram
from glenside.npu.program.results import with_host
from glenside.passes.distinct_layers import distinct_layers
from glenside.quantization.layers import MANY, IntegerNetwork

if TYPE_CHECKING:
    from glenside.report.result import Result


def integer_program(
    result: Result,
    network: IntegerNetwork,
    machine: Machine,
    seed: int = 0,
    show: Callable[[str, int, int], None] = lambda *_: None,
    keep: Callable[[NpuProgram], None] = lambda _: None,
    quick: bool = False,
) -> NpuProgram:
    """An integer network as one program, from what was found for its program; inputs are drawn by the seed. Inputs and
    outputs say what they stand for. A `quick` one is lowered layer by layer, and no other one is looked for. Raises
    BadInput: a layer that the machine does not run, and why.
    """
    found = mappings(result, network)
    if quick and network.layers:
        return layer_by_layer(network, found, machine, seed, show)
    return least(network, found, machine, seed, show, keep)


Front = Mapping[str, Sequence[tuple[Mapped, int]]]


def least(
    network: IntegerNetwork,
    found: Front,
    machine: Machine,
    seed: int = 0,
    show: Callable[[str, int, int], None] = lambda *_: None,
    keep: Callable[[NpuProgram], None] = lambda _: None,
) -> NpuProgram:
    """The program of a network that takes the fewest cycles: mappings chosen together with tensors that stay in lanes,
    and, where prices do not rule out that they are quicker, the same without these, and layer by layer; what is
    planned for smaller machines; and what this process made for a smaller machine before, so that none of these takes
    fewer cycles there. `keep` is given the best one so far, for whoever does not wait.

    Raises BadInput: as `integer_program`.
    """
    if not network.layers:
        return with_host(NpuProgram(machine, {}, np.zeros(0, np.uint8), predicted=0), network)
    first = _planned(network, found, machine, seed, show, keep)
    with stage("smaller machines", alone=True):
        planned = _of_smaller_machines(network, found, machine, first, seed, keep)
    made, remembered = _searched(network, planned, machine, first.of_any, seed), Remembered(network, seed)
    remembered.add(made)
    cycles, whole = remembered.best(machine) or (planned.cycles, made)
    if made.choices is None or cycles == cycles_on(made, machine):
        return replace(whole, choices=made.choices)
    return replace(whole, choices=Choices(made.choices.count, 0, min(made.choices.least, cycles)))


@dataclass(frozen=True)
class _Planned:
    """A program, the choice of which it was made, and the prices of what there was to choose from.

    cycles  on the machine that it is for, which may be larger than the one that it was planned for
    of_any  what any choice takes there at least, where that is known
    """

    program: NpuProgram
    choice: Choice
    priced: Options
    cycles: int
    of_any: int | None = None


def _planned(
    network: IntegerNetwork,
    found: Front,
    machine: Machine,
    seed: int,
    show: Callable[[str, int, int], None],
    keep: Callable[[NpuProgram], None],
) -> _Planned:
    """What is planned for the machine itself, but for a port that is wider than lanes and columns."""
    fronts, made = {name: [*front] for name, front in found.items()}, None
    own, first = with_useful_beats(machine), None
    while made is None:
        priced, known = options_of(network, fronts, own, show), Known()
        taken, choice = best(network, fronts, own, show, priced=priced, known=known)
        find = partial(_bounds, network, fronts, (own, machine), (priced, known), choice)
        with forked(find, worth=len(network.layers) >= MANY) as told:
            try:
                made = as_mapped(network, taken, own, seed, choice.axes, show, choice.held, choice.where)
            except Unlowered as error:
                first = first or error
                name = next((name for name in error.layers if len(fronts[name]) > 1), None)
                if name is None:
                    raise first from error
                fronts[name] = [own for own in fronts[name] if own[0].term != taken[name].term]
                continue
            with stage("bound"):
                bounds = told() or (0.0, None)
    keep(retargeted(quick := made, machine))
    for other in _others(network, fronts, own, (priced, known), (made, choice, bounds[0]), (seed, show)):
        if other is not (quick := min(quick, other, key=_predicted)):
            continue
        keep(retargeted(quick, machine))
    return _Planned(quick, choice, priced, cycles_on(quick, machine), bounds[1])


def _of_smaller_machines(
    network: IntegerNetwork,
    found: Front,
    machine: Machine,
    best_known: _Planned,
    seed: int,
    keep: Callable[[NpuProgram], None],
) -> _Planned:
    """That, or what is planned for a machine with less of some resource where it takes fewer cycles on this one; then
    less of these. Of small programs: others take too long to make.
    """
    seen = {best_known.program.machine}
    while is_small(best_known.program):
        there = best_known
        for own in smaller(there.program.machine):
            if own in seen or best_known.cycles <= (best_known.of_any or 0):  # no choice takes fewer
                continue
            seen.add(own)
            with suppress(BadInput, TooLong):
                other = _quickly(network, found, own, machine, seed, int(_SLOWER * best_known.cycles))
                if other.cycles < best_known.cycles:
                    keep(retargeted(other.program, machine))
                    best_known = replace(other, of_any=best_known.of_any)
        if best_known is there:
            break
    return best_known


def _quickly(network: IntegerNetwork, found: Front, own: Machine, machine: Machine, seed: int, most: int) -> _Planned:
    """What prices tell to plan for a machine, with what it takes on a larger one. Raises BadInput; and TooLong."""
    priced = options_of(network, found, own)
    taken, choice = best(network, found, own, priced=priced, known=Known())
    made = as_mapped(network, taken, own, seed, choice.axes, stay=choice.held, where=choice.where, most=most)
    return _Planned(made, choice, priced, cycles_on(made, machine))


_SLOWER = 1.5
"""How many times the cycles of the best program one may take on the smaller machine that it is planned for."""


def _bounds(
    network: IntegerNetwork,
    fronts: Front,
    machines: tuple[Machine, Machine],
    prices: tuple[Options, Known],
    choice: Choice,
    _: object = None,
) -> tuple[float, int]:
    """What is asked for once the program of a choice is there: what no choice takes less than by prices where all
    tensors are in DRAM, as far as it matters if the program takes no longer than it seems; and what any takes at least
    on the second machine, which the first one is planned for.
    """
    (priced, known), enough, (machine, target) = prices, choice.cycles / _TRUST, machines
    in_dram = 0.0
    with suppress(BadInput):
        _, other = best(network, fronts, machine, stay=False, priced=priced, known=known, enough=enough)
        in_dram = other.bound
    return in_dram, Floors(network, priced, target).of_any()


def _predicted(program: NpuProgram) -> int:
    assert program.predicted is not None, "whatever is lowered has its cycles"
    return program.predicted


def _others(
    network: IntegerNetwork,
    fronts: Front,
    machine: Machine,
    prices: tuple[Options, Known],
    than: tuple[NpuProgram, Choice, float],
    how: tuple[int, Callable[[str, int, int], None]],
) -> Iterator[NpuProgram]:
    """Programs of other choices that may be quicker: where prices were too low, one by which more tensors stay in
    lanes; and simpler ones, where it is not known that these take longer by prices.
    """
    made, choice, in_dram = than
    most = _predicted(made)
    lanes = partial(_more_in_lanes, network, fronts, machine, prices, choice, how)
    simpler = partial(_simpler, network, fronts, machine, prices, in_dram, how)
    if most <= _WRONG * choice.cycles:
        for found in lanes(most):
            most = min(most, _predicted(found))
            yield found
        yield from simpler(most)
        return
    least = most
    for found in _windows_priced(network, fronts, machine, prices, how, most):
        least = min(least, _predicted(found))
        yield found
    for found in simpler(least):
        least = min(least, _predicted(found))
        yield found
    if least == most:  # else prices that told so little need not be asked again
        yield from lanes(most)


def _more_in_lanes(
    network: IntegerNetwork,
    fronts: Front,
    machine: Machine,
    prices: tuple[Options, Known],
    choice: Choice,
    how: tuple[int, Callable[[str, int, int], None]],
    most: int,
) -> Iterator[NpuProgram]:
    """Where prices were too low, one by which more tensors stay in lanes."""
    if most <= _FAR * choice.cycles:
        return
    priced, known = prices
    with suppress(BadInput, TooLong):
        taken, other = best(network, fronts, machine, priced=priced, known=known, spared=1.0)
        if other.held != choice.held or other.mappings != choice.mappings:
            yield as_mapped(network, taken, machine, how[0], other.axes, how[1], other.held, other.where, most)


def _windows_priced(
    network: IntegerNetwork,
    fronts: Front,
    machine: Machine,
    prices: tuple[Options, Known],
    how: tuple[int, Callable[[str, int, int], None]],
    most: int,
) -> Iterator[NpuProgram]:
    """By prices of windows, as lowering lays them out: what else is taken of these is wrong where lanes are small."""
    priced, known = prices
    with suppress(BadInput, TooLong):
        taken, choice = best(network, fronts, machine, priced=priced, known=known, windows=True)
        yield as_mapped(network, taken, machine, how[0], choice.axes, how[1], choice.held, choice.where, most)


def _simpler(
    network: IntegerNetwork,
    fronts: Front,
    machine: Machine,
    prices: tuple[Options, Known],
    in_dram: float,
    how: tuple[int, Callable[[str, int, int], None]],
    most: int,
) -> Iterator[NpuProgram]:
    """Without tensors that stay, and layer by layer, where it is not known that these take longer by prices."""
    if in_dram * _TRUST > most:
        return
    priced, known = prices
    with suppress(BadInput, TooLong):
        taken, choice = best(network, fronts, machine, stay=False, priced=priced, known=known, enough=most / _TRUST)
        if choice.bound * _TRUST > most:
            return
        found = as_mapped(network, taken, machine, how[0], choice.axes, how[1], (), most=most)
        most = min(most, _predicted(found))
        yield found
    with suppress(BadInput, TooLong):
        yield layer_by_layer(network, fronts, machine, *how, most)


def _searched(network: IntegerNetwork, planned: _Planned, clock: Machine, of_any: int | None, seed: int) -> NpuProgram:
    """That program, or the one of other mappings or other tensors that stay that takes fewer cycles on the machine
    `clock`, as far as it is worth looking for one; with what is known of all choices, of which it may be known what any
    takes at least. Tensors in DRAM are there as the first who reads them wants.
    """
    quick, choice, priced = planned.program, planned.choice, planned.priced
    machine, options, kept = quick.machine, priced.every, priced.kept
    streams = (tensor for own in options.values() for option in own for tensor in option.streams.values())
    tensors = [tensor for tensor in dict.fromkeys(streams) if tensor is not None]
    made, again = dict[object, float](), defaultdict[int, Again](Again)
    floors_of = cache(partial(Floors, network, priced, clock))
    answers = [*map(len, kept.values()), *(HALVES for _ in tensors)]

    def parts(way: Way) -> tuple[dict[str, int], set[Term]]:
        return dict(zip(kept, way, strict=False)), {t for t, s in zip(tensors, way[len(kept) :], strict=True) if s}

    def least(way: Way) -> int:
        return floors_of().of(*parts(way)).cycles

    def told(way: Way, most: int) -> Told:
        numbers, stay = parts(way)
        with suppress(BadInput):
            taken = priced.taken(numbers)
            where = Tensors(network, taken, machine, {}, stay).where
            key = way[: len(kept)], _placed(where)
            if key in made:
                return Told(made[key])
            made[key] = inf
            own = floors_of().of(numbers, where[0], {tensor for tensor, passing in where[1].items() if passing.skews})
            if own.cycles >= most:
                return Told(inf)
            try:
                trial = Trial(own.rest, {name: again[id(own.layer)] for name, own in taken.items()}, clock)
                found = chained(network, taken, machine, stay=stay, where=where, most=most, trial=trial)
            except TooLong as error:
                return Told(inf, error.written)
            made[key] = cycles_on(found, clock)
            return Told(made[key], found.size)
        return Told(inf)

    start = *(choice.mappings[name] for name in kept), *(int(tensor in choice.held) for tensor in tensors)
    search = Search(answers, told, least, quick.size, planned.cycles)
    with stage("compare neighbours", alone=True):
        search.look(start)
    if search.found is not None:
        numbers, stay = parts(search.found)
        quick = as_mapped(network, priced.taken(numbers), machine, seed, stay=stay)
    with stage("bound"):
        return replace(quick, choices=search.choices(lambda: floors_of().of_any() if of_any is None else of_any))


def _placed(where: Where) -> tuple[object, ...]:
    """What of places in lanes programs differ by."""
    held, passing, chains = where
    return (
        *((term, own.base, own.begin, own.end, own.skew.strides.tobytes()) for term, own in held.items()),
        *((term, *own.skews) for term, own in passing.items()),
        *((own.begin, own.end, *(strip[-1].elements.tobytes() for strip in own.parts)) for own in chains),
    )


_FAR = 1.05
"""How many times its price a program takes where prices did not tell enough."""
_WRONG = 1.6
"""And how many times where they told so little that simpler programs are the best guess, by which it is soon known of
others that they take longer.
"""
_TRUST = 0.75
"""What part of its price a choice takes at least: prices are of parts of layers."""


def layer_by_layer(
    network: IntegerNetwork,
    found: Front,
    machine: Machine,
    seed: int = 0,
    show: Callable[[str, int, int], None] = lambda *_: None,
    most: int | None = None,
) -> NpuProgram:
    """Each layer's quickest mapping, with all tensors in DRAM as the next one fills lanes soonest; where the machine
    does not run it there, its next. Raises BadInput: none is left; and TooLong.
    """
    known = {layer.name: found.get(layer.name) or every_mapping(layer, (), machine) for layer in network.layers}
    left = {name: sorted(own, key=lambda pair: pair[1]) for name, own in known.items()}
    while True:
        try:
            taken = {name: own[0][0] for name, own in left.items()}
            return as_mapped(network, taken, machine, seed, show=show, stay=(), most=most)
        except Unlowered as error:
            name = next((name for name in error.layers if len(left[name]) > 1), None)
            if name is None:
                raise
            left[name] = left[name][1:]


@stage("map")
def mappings(result: Result, network: IntegerNetwork) -> Mapping[str, Sequence[tuple[Mapped, int]]]:
    """The mappings that were found for each layer, with their cycles, the one that was chosen first.

    Raises BadInput: a layer without a mapping.
    """
    layers = distinct_layers(network.program)
    found = dict[str, list[tuple[Mapped, int]]]()
    for name, variants in result.answer.fronts.items():
        own = [(variant.term, variant) for variant in variants if variant.term is not None]
        if not own:
            raise BadInput(f"the layer {name}: it has no mapping onto {result.target.name}")
        chosen = result.target.best([variant for _, variant in own]).term
        number, arguments = layers.places[name]
        operands = dict(zip(layers.formals[number], arguments, strict=True))
        own.sort(key=lambda pair: pair[0] != chosen)
        found[name] = [(Mapped(term, operands), int(variant.measures["cycles"] or 0)) for term, variant in own]
    return found
