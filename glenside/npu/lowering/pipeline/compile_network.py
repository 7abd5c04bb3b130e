"""The passes of `glenside.npu.pipeline`: each takes and returns a compilation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from math import inf
from typing import TYPE_CHECKING

from glenside.ir.errors import BadInput
from glenside.ir.forked_work import forked
from glenside.ir.stopwatch import stage
from glenside.ir.term import Term
from glenside.npu.analysis.retargeting import cycles_on, retargeted
from glenside.npu.lowering.emission.cycle_cutoff import TooLong, Trial
from glenside.npu.lowering.pipeline.alternatives import MIN_COST_RATIO, alternatives, predicted_cycles
from glenside.npu.lowering.pipeline.compile_mapped import compile_mapped
from glenside.npu.lowering.pipeline.emit_network import chained
from glenside.npu.lowering.selection.candidates import Options, options_of
from glenside.npu.lowering.selection.feasible_choice import best
from glenside.npu.lowering.selection.ilp_model import Choice, Known
from glenside.npu.lowering.selection.lower_bounds import LowerBounds
from glenside.npu.lowering.selection.neighbourhood_search import Evaluation, Search, Way, is_small
from glenside.npu.lowering.selection.program_memo import Remembered
from glenside.npu.lowering.selection.smaller_machines import smaller
from glenside.npu.lowering.selection.tensor_placement import Tensors, Where
from glenside.npu.lowering.tiling.mapped_layers import Front, Mapped, Unlowered
from glenside.npu.lowering.util.identity_memo import Memo
from glenside.npu.machine.model import HALVES, Machine, with_useful_beats
from glenside.npu.program.program import Choices, NpuProgram
from glenside.passes.distinct_layers import distinct_layers
from glenside.quantization.layers import MANY, IntegerNetwork

if TYPE_CHECKING:
    from glenside.report.result import Result


@dataclass(frozen=True)
class _Planned:
    """A program, its choice, and the predicted costs of all candidates.

    cycles  cycles on the target machine, which may be larger than the machine that the program is planned for
    of_any  a lower bound on the cycles of any choice there; None if unknown
    """

    program: NpuProgram
    choice: Choice
    priced: Options
    cycles: int
    of_any: int | None = None


@dataclass(frozen=True)
class Compilation:
    """A network that is compiled for a machine: a pass returns the compilation with what it found.

    fronts   the candidate mappings of each layer
    first    the program of the selected choice, or of a better alternative
    planned  the program with the fewest cycles so far; it may be planned for a smaller machine
    program  the result
    show     called with each layer that is emitted, its number and the number of layers
    keep     called with each program that is better than the ones before
    """

    network: IntegerNetwork
    fronts: Front
    machine: Machine
    seed: int = 0
    show: Callable[[str, int, int], None] = lambda *_: None
    keep: Callable[[NpuProgram], None] = lambda _: None
    first: _Planned | None = None
    planned: _Planned | None = None
    program: NpuProgram | None = None


def plan(own: Compilation) -> Compilation:
    """Selects mappings and placements by predicted cost and emits the program, and those of alternatives.

    If a layer cannot be emitted as it is mapped, drops that mapping and selects again. The program is planned for the
    machine with a port no wider than banks and columns. Raises Unlowered if a layer has no mapping left.
    """
    network, machine, seed, show, keep = own.network, own.machine, own.seed, own.show, own.keep
    fronts, made = {name: [*front] for name, front in own.fronts.items()}, None
    useful, first = with_useful_beats(machine), None
    while made is None:
        priced, known = options_of(network, fronts, useful, show), Known()
        taken, choice = best(network, fronts, useful, show, priced=priced, known=known)
        find = partial(_bounds, network, fronts, (useful, machine), (priced, known), choice)
        with forked(find, worth=len(network.layers) >= MANY) as computed_bounds:
            try:
                made = compile_mapped(network, taken, useful, seed, choice.axes, show, choice.held, choice.where)
            except Unlowered as error:
                first = first or error
                name = next((name for name in error.layers if len(fronts[name]) > 1), None)
                if name is None:
                    raise first from error
                fronts[name] = [each for each in fronts[name] if each[0].term != taken[name].term]
                continue
            with stage("bound"):
                bounds = computed_bounds() or (0.0, None)
    keep(retargeted(quick := made, machine))
    for other in alternatives(network, fronts, useful, (priced, known), (made, choice, bounds[0]), (seed, show)):
        if other is not (quick := min(quick, other, key=predicted_cycles)):
            continue
        keep(retargeted(quick, machine))
    planned = _Planned(quick, choice, priced, cycles_on(quick, machine), bounds[1])
    return replace(own, first=planned, planned=planned)


def try_smaller_machines(own: Compilation) -> Compilation:
    """Plans small programs for machines with less of some resource, while that takes fewer cycles on the machine."""
    planned = own.planned
    assert planned is not None, "`plan` comes before"
    seen = {planned.program.machine}
    while is_small(planned.program):
        start = planned
        for smaller_machine in smaller(start.program.machine):
            if smaller_machine in seen or planned.cycles <= (planned.of_any or 0):  # no choice takes fewer
                continue
            seen.add(smaller_machine)
            with suppress(BadInput, TooLong):
                most = int(_MAX_SLOWDOWN * planned.cycles)
                other = _quickly(own.network, own.fronts, smaller_machine, own.machine, own.seed, most)
                if other.cycles < planned.cycles:
                    own.keep(retargeted(other.program, own.machine))
                    planned = replace(other, of_any=planned.of_any)
        if planned is start:
            break
    return replace(own, planned=planned)


def compare_neighbours(own: Compilation) -> Compilation:
    """Emits neighbours of the choice, with one other mapping or placement, while they take fewer cycles.

    Choices take other cycles when they are planned for a smaller machine, so those of the machine are compared, too.
    """
    planned, first, machine = own.planned, own.first, own.machine
    assert planned is not None, "`plan` comes before"
    assert first is not None, "`plan` comes before"
    program = _searched(own.network, planned, machine, first.of_any, own.seed)
    if planned is not first:
        most = cycles_on(program, machine)
        other = _searched(own.network, first, machine, first.of_any, own.seed, most)
        choices = other.choices
        assert choices is not None, "they are searched"
        program = min(program, other, key=lambda each: cycles_on(each, machine))
        program = replace(program, choices=replace(choices, least=min(choices.least, most)))
    return replace(own, program=program)


def reuse_programs(own: Compilation) -> Compilation:
    """Takes a program that this process compiled for a smaller machine, if it takes fewer cycles on the machine."""
    made, planned, remembered = own.program, own.planned, Remembered(own.network, own.seed)
    assert planned is not None, "`plan` comes before"
    assert made is not None, "`compare_neighbours` comes before"
    remembered.add(made)
    cycles, whole = remembered.best(own.machine) or (planned.cycles, made)
    choices = made.choices
    if choices is not None and cycles != cycles_on(made, own.machine):
        choices = Choices(choices.count, 0, min(choices.least, cycles))
    return replace(own, program=replace(whole, choices=choices))


def _quickly(network: IntegerNetwork, found: Front, own: Machine, machine: Machine, seed: int, most: int) -> _Planned:
    """Plans for a smaller machine, and counts cycles on the larger one. Raises BadInput and TooLong."""
    priced = options_of(network, found, own)
    taken, choice = best(network, found, own, priced=priced, known=Known())
    made = compile_mapped(network, taken, own, seed, choice.axes, stay=choice.held, where=choice.where, most=most)
    return _Planned(made, choice, priced, cycles_on(made, machine))


_MAX_SLOWDOWN = 1.5
"""Maximum cycles of a program on the smaller machine it is planned for, as a multiple of the best program's."""


def _bounds(
    network: IntegerNetwork,
    fronts: Front,
    machines: tuple[Machine, Machine],
    prices: tuple[Options, Known],
    choice: Choice,
    _: object = None,
) -> tuple[float, int]:
    """Returns two lower bounds: the predicted cost of any choice with all tensors in DRAM, and the cycles of any choice
    on the second machine, for which the first one is planned. The former is exact only as far as it matters.
    """
    (priced, known), enough, (machine, target) = prices, choice.cycles / MIN_COST_RATIO, machines
    in_dram = 0.0
    with suppress(BadInput):
        _, other = best(network, fronts, machine, stay=False, priced=priced, known=known, enough=enough)
        in_dram = other.bound
    return in_dram, LowerBounds(network, priced, target).of_any()


def _searched(
    network: IntegerNetwork,
    planned: _Planned,
    clock: Machine,
    of_any: int | None,
    seed: int,
    most: float = inf,
) -> NpuProgram:
    """Returns the planned program, or a neighbour with fewer cycles on the machine `clock`, and the search space.

    `of_any`: a lower bound on any choice, if known; `most`: the cycles of another program, which a neighbour has to
    undercut. The first reader chooses the layouts in DRAM.
    """
    quick, choice, priced = planned.program, planned.choice, planned.priced
    machine, options, kept = quick.machine, priced.every, priced.kept
    streams = (tensor for own in options.values() for option in own for tensor in option.streams.values())
    tensors = [tensor for tensor in dict.fromkeys(streams) if tensor is not None]
    made, again = dict[object, float](), defaultdict[int, Memo](Memo)
    floors_of = cache(partial(LowerBounds, network, priced, clock))
    answers = [*map(len, kept.values()), *(HALVES for _ in tensors)]

    def parts(way: Way) -> tuple[dict[str, int], set[Term]]:
        return dict(zip(kept, way, strict=False)), {t for t, s in zip(tensors, way[len(kept) :], strict=True) if s}

    def least(way: Way) -> int:
        return floors_of().of(*parts(way)).cycles

    def evaluate(way: Way, most: int) -> Evaluation:
        numbers, stay = parts(way)
        with suppress(BadInput):
            taken = priced.taken(numbers)
            where = Tensors(network, taken, machine, {}, stay).where
            key = way[: len(kept)], _placed(where)
            if key in made:
                return Evaluation(made[key])
            made[key] = inf
            own = floors_of().of(numbers, where[0], {tensor for tensor, passing in where[1].items() if passing.skews})
            if own.cycles >= most:
                return Evaluation(inf)
            try:
                trial = Trial(own.rest, {name: again[id(own.layer)] for name, own in taken.items()}, clock)
                found = chained(network, taken, machine, stay=stay, where=where, most=most, trial=trial)
            except TooLong as error:
                return Evaluation(inf, error.written)
            made[key] = cycles_on(found, clock)
            return Evaluation(made[key], found.size)
        return Evaluation(inf)

    start = *(choice.mappings[name] for name in kept), *(int(tensor in choice.held) for tensor in tensors)
    search = Search(answers, evaluate, least, quick.size, int(min(planned.cycles, most)))
    search.look(start)
    if search.found is not None:
        numbers, stay = parts(search.found)
        quick = compile_mapped(network, priced.taken(numbers), machine, seed, stay=stay)
    return replace(quick, choices=search.choices(lambda: floors_of().of_any() if of_any is None else of_any))


def _placed(where: Where) -> tuple[object, ...]:
    """Returns a key of all placements that change the program."""
    held, passing, chains = where
    return (
        *((term, own.base, own.begin, own.end, own.skew.strides.tobytes()) for term, own in held.items()),
        *((term, *own.skews) for term, own in passing.items()),
        *((own.begin, own.end, *(strip[-1].elements.tobytes() for strip in own.parts)) for own in chains),
    )


def map_layers(result: Result, network: IntegerNetwork) -> Mapping[str, Sequence[tuple[Mapped, int]]]:
    """Returns the candidate mappings of each layer with their cycles, the chosen one first.

    Raises BadInput for a layer without a mapping.
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
