"""Tests the neighbourhood search: for small networks no other choice takes fewer cycles; for others the gap is
reported.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from math import inf, prod

import pytest
from fuzzing import Fuzzing
from npu_layers import MACHINES
from npu_networks import branches, network

import glenside as gl
from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.npu.lowering.pipeline.compile_mapped import compile_mapped
from glenside.npu.lowering.pipeline.compile_network import map_layers
from glenside.npu.lowering.selection import neighbourhood_search
from glenside.npu.lowering.selection.candidates import options_of
from glenside.npu.lowering.selection.lower_bounds import LowerBounds
from glenside.npu.lowering.selection.neighbourhood_search import Evaluation, Search, Way
from glenside.npu.lowering.selection.tensor_placement import Tensors
from glenside.npu.machine.model import Machine
from glenside.npu.pipeline import compile_fronts
from glenside.npu.program.program import Choices
from glenside.quantization.network import integer_network

MOST = 300


def _compared(program: Program, machine: Machine, most: int = MOST) -> tuple[int, int] | None:
    """Of a network the cycles of its program and how many choices there are, of which all are lowered and none takes
    fewer cycles, nor fewer than it is said to take at least; None where it has not 3 or 4 layers, too many
    choices, or some that nobody looked at.
    """
    found = integer_network(program)
    if not 3 <= len(found.layers) <= 4:
        return None
    fronts = map_layers(gl.optimize(found.program, gl.NPU(machine), verify=False), found)
    priced = options_of(found, fronts, machine)
    options, kept = priced.every, priced.kept
    streams = (tensor for own in options.values() for option in own for tensor in option.streams.values())
    tensors = [tensor for tensor in dict.fromkeys(streams) if tensor is not None]
    ways = prod(map(len, kept.values())) << len(tensors)
    if ways > most:
        return None
    best, floors = inf, LowerBounds(found, priced, machine)
    for numbers in product(*map(range, map(len, kept.values()))):
        taken = priced.taken(dict(zip(kept, numbers, strict=True)))
        for stays in product((False, True), repeat=len(tensors)):
            stay = {tensor for tensor, there in zip(tensors, stays, strict=True) if there}
            try:
                where = Tensors(found, taken, machine, {}, stay).where
                made = compile_mapped(found, taken, machine, stay=stay, where=where).predicted
            except BadInput:
                continue
            assert made is not None
            mapped = dict(zip(kept, numbers, strict=True))
            windows = [tensor for tensor, passing in where[1].items() if passing.skews]
            assert (
                floors.of_any() <= floors.of(mapped, stay).cycles <= floors.of(mapped, where[0], windows).cycles <= made
            )
            best = min(best, made)
    own = compile_fronts(found, fronts, machine)
    assert own.predicted is not None
    assert own.predicted <= best
    choices = own.choices
    assert choices is not None
    if choices.tried < ways:  # so many instructions are not written, or it is planned for a smaller machine
        assert choices == Choices(ways, choices.tried, choices.least)
        assert choices.least <= own.predicted
        return None if own.predicted == best else (own.predicted, ways)
    assert choices == Choices(ways, ways, own.predicted)
    return own.predicted, ways


@pytest.mark.parametrize("seed", [11, pytest.param(12, marks=pytest.mark.slow)])
def test_no_other_choice_takes_less(seed: int) -> None:
    compared = _compared(network(random.Random(seed)), MACHINES[seed % len(MACHINES)])
    assert compared is not None
    assert compared[1] > 4


@pytest.mark.slow
def test_of_many_networks_no_other_choice_takes_less(fuzzing: Fuzzing) -> None:
    _compare_all(fuzzing, 80, network)


@pytest.mark.slow
def test_of_networks_that_branch_no_other_choice_takes_less(fuzzing: Fuzzing) -> None:
    _compare_all(fuzzing, 60, branches)


def _compare_all(fuzzing: Fuzzing, count: int, drawn: Callable[[random.Random], Program]) -> None:
    every = [_compared(drawn(random.Random(seed)), MACHINES[seed % len(MACHINES)]) for seed in fuzzing.seeds(count)]
    assert fuzzing.minutes is not None or sum(own is not None for own in every) >= 10


def _drawn(seed: int) -> tuple[random.Random, list[int], dict[Way, float], dict[Way, int]]:
    """Questions, the cycles of every choice, and what each takes at least."""
    rng = random.Random(seed)
    answers = [rng.randint(1, 4) for _ in range(rng.randint(1, 5))]
    every = [*product(*map(range, answers))]
    cycles = {way: float(rng.randint(10, 30)) for way in every}
    return rng, answers, cycles, {way: rng.randint(5, int(own)) for way, own in cycles.items()}


@pytest.mark.parametrize("seed", range(20))
def test_all_choices_are_looked_at_or_ruled_out(seed: int) -> None:
    rng, answers, cycles, floors = _drawn(seed)
    asked = list[Way]()

    def told(way: Way, most: int) -> Evaluation:
        asked.append(way)
        return Evaluation(cycles[way] if cycles[way] < most else inf, 1)

    start, there = rng.choice([*cycles]), rng.randint(8, 32)
    search = Search(answers, told, floors.__getitem__, 1, there)
    search.look(start)
    assert search.best == min(there, *cycles.values())
    assert (search.found is None) == (there <= min(cycles.values()))
    assert search.found is None or cycles[search.found] == search.best
    assert len({*asked}) == len(asked)
    assert all(floors[way] >= search.best for way in cycles.keys() - {*asked})
    assert search.choices(lambda: 0) == Choices(len(cycles), len(cycles), search.best)


@pytest.mark.parametrize("seed", range(20))
def test_where_not_all_are_looked_at_what_others_take_at_least_is_told(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, answers, cycles, floors = _drawn(seed)
    monkeypatch.setattr(neighbourhood_search, "_INSTRUCTIONS", max(2, len(cycles) // 2))
    monkeypatch.setattr(neighbourhood_search, "_FEW", 1)
    start = rng.choice([*cycles])
    search = Search(
        answers, lambda way, most: Evaluation(cycles[way] if cycles[way] < most else inf, 1), floors.__getitem__, 1, 32
    )
    search.look(start)
    known = search.choices(lambda: 0)
    assert known.least <= min(cycles.values()) <= search.best
    assert known.count == len(cycles) >= known.tried
    assert known.least == search.best or not known.are_all_tried
    near = [way for way in cycles if sum(a != b for a, b in zip(way, start, strict=True)) == 1]
    assert all(search.best <= cycles[way] for way in near) or not known.are_all_tried


def test_large_programs_are_made_once() -> None:
    def told(way: Way, most: int) -> Evaluation:
        raise AssertionError

    search = Search([2, 3], told, lambda way: 0, neighbourhood_search._INSTRUCTIONS, 100)
    search.look((0, 0))
    assert search.best == 100
    assert search.choices(lambda: 70) == Choices(6, 1, 70)
    assert search.choices(lambda: 70).gap(100) == pytest.approx(0.3)
