"""Tests the order in which variants of layers are tried."""

from __future__ import annotations

import itertools

import pytest

from glenside.ir.term import build
from glenside.targets.base import Variant
from glenside.targets.cpu.trial_order import first_trials, next_trials

TERM = build("full", (1,), 0, "float32")


def _variant(outputs: tuple[int, ...], time: int = 0) -> Variant:
    words = [f"winograd:{axis}:{m}:3" for axis, m in enumerate(outputs, 1) if m > 1]
    return Variant("", TERM, {"time": time}, " ".join(words))


def _rank(variant: Variant) -> tuple[float, ...]:
    return (variant.measures["time"] or 0,)


EVERY = [_variant(outputs) for outputs in itertools.product((1, 2, 4), repeat=2)]


@pytest.mark.parametrize(
    ("best", "second", "expected"),
    [
        ((4, 4), (2, 2), [(2, 4), (4, 2)]),
        ((2, 2), (4, 4), [(2, 4), (4, 2)]),
        ((2, 2), (1, 1), [(1, 2), (2, 1)]),
        ((1, 1), (4, 4), [(1, 2), (2, 1)]),
        ((4, 4), (1, 1), [(2, 4), (4, 2)]),
    ],
)
def test_neighbours_of_the_best_follow(
    best: tuple[int, int], second: tuple[int, int], expected: list[tuple[int, int]]
) -> None:
    order = [best, second, *({(1, 1), (2, 2), (4, 4)} - {best, second})]
    tried = [_variant(outputs, time) for time, outputs in enumerate(order)]
    assert {v.recipe for v in first_trials(EVERY)} == {v.recipe for v in tried}
    found = next_trials(EVERY, tried, _rank)
    assert sorted(v.recipe for v in found) == sorted(_variant(outputs).recipe for outputs in expected)


def test_other_variants_are_all_tried() -> None:
    """One axis, one variant, other steps, and variants of which none is even but the layer as written."""
    single = [_variant((m,)) for m in (1, 2, 4)]
    assert first_trials(single) == single
    assert next_trials(single, single, _rank) == []
    assert first_trials(EVERY[:1]) == EVERY[:1]
    assert next_trials(EVERY[:1], EVERY[:1], _rank) == []
    uneven = [_variant(outputs) for outputs in ((1, 1), (1, 2), (2, 1))]
    assert first_trials(uneven) == uneven
    other = [EVERY[0], Variant("", TERM, {"time": 0}, "other step")]
    assert first_trials(other) == other
    assert next_trials(other, other, _rank) == []
