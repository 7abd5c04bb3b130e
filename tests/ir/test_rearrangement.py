"""Tests rearrangements against numpy: each method on arrays of distinct numbers."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import mul

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from glenside.ir.rearrangement import Rearrangement, canonical_axes, identity, of_transpose, refined, runs_of

SIZES = st.sampled_from((1, 2, 3, 4, 6))


@st.composite
def rearrangements(draw: st.DrawFn, parts: Sequence[int] | None = None) -> Rearrangement:
    sizes = tuple(draw(st.lists(SIZES, min_size=1, max_size=5)) if parts is None else parts)
    return Rearrangement(sizes, tuple(draw(st.permutations(range(len(sizes))))))


@st.composite
def cut_anew(draw: st.DrawFn, size: int) -> tuple[int, ...]:
    """Sizes whose product is that one."""
    found = []
    while size > 1:
        found.append(draw(st.sampled_from([n for n in range(2, size + 1) if size % n == 0])))
        size //= found[-1]
    return (*found, 1) if draw(st.booleans()) or not found else tuple(found)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Rearrangement, Rearrangement]:
    """Two of the same number of elements."""
    first = draw(rearrangements())
    return first, draw(rearrangements(parts=draw(cut_anew(math.prod(first.parts)))))


def moved(r: Rearrangement, given: np.ndarray | None = None) -> list[int]:
    """Where each element of the result was."""
    given = np.arange(math.prod(r.parts)) if given is None else given
    return [int(n) for n in given.reshape(r.parts).transpose(r.order).reshape(-1)]


@given(rearrangements())
def test_the_canonical_form_moves_the_same_and_is_a_fixed_point(r: Rearrangement) -> None:
    small = r.canonical()
    assert moved(small) == moved(r)
    assert small.canonical() == small
    assert len(small.parts) <= len(r.parts)


@given(pairs())
def test_equal_permutations_have_one_canonical_form_and_others_have_others(
    pair: tuple[Rearrangement, Rearrangement],
) -> None:
    a, b = pair
    assert (a.canonical() == b.canonical()) == (moved(a) == moved(b))


@given(st.data(), rearrangements())
def test_cutting_parts_further_keeps_the_canonical_form(data: st.DataObject, r: Rearrangement) -> None:
    sizes = [size for part in r.parts for size in data.draw(cut_anew(part))]
    finer = r.cut_parts(sizes)
    assert finer is not None
    assert finer.parts == tuple(sizes)
    assert moved(finer) == moved(r)
    assert finer.canonical() == r.canonical()
    sizes = [size for part in r.result for size in data.draw(cut_anew(part))]
    finer = r.cut_result(sizes)
    assert finer is not None
    assert finer.result == tuple(sizes)
    assert finer.canonical() == r.canonical()


@given(rearrangements())
def test_the_inverse_undoes_it(r: Rearrangement) -> None:
    whole = list(range(math.prod(r.parts)))
    assert moved(r.inverse(), np.array(moved(r))) == whole
    both = r.then(r.inverse())
    assert both == identity(len(whole)).canonical()


@given(pairs())
def test_one_and_then_another(pair: tuple[Rearrangement, Rearrangement]) -> None:
    a, b = pair
    both = a.then(b)
    chain = sorted({*accumulate(reversed(a.result), mul), *accumulate(reversed(b.parts), mul)})
    assert (both is None) == any(high % low for low, high in pairwise(chain))
    if both is not None:
        assert moved(both) == moved(b, np.array(moved(a)))
        assert both == both.canonical()


@given(rearrangements())
def test_the_identity_is_known(r: Rearrangement) -> None:
    assert r.is_identity == (moved(r) == sorted(moved(r)))


@given(rearrangements())
def test_a_transpose_is_one(r: Rearrangement) -> None:
    assert moved(of_transpose(r.parts, r.order)) == moved(r)


@given(st.sampled_from((1, 24, 36)).flatmap(lambda n: st.tuples(cut_anew(n), cut_anew(n))))
def test_refined_sizes_are_the_fewest_that_both_are_runs_of(pair: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = pair
    sizes = refined(a, b)
    if sizes is None:
        return
    assert math.prod(sizes) == math.prod(a)
    assert 1 not in sizes
    for whole in (a, b):
        runs = runs_of(whole, sizes)
        assert runs is not None
        assert [math.prod(sizes[i] for i in run) for run in runs] == list(whole)
    cuts = {1, *(math.prod(of[i:]) for of in (a, b) for i in range(len(of)))}
    assert len(sizes) == len(cuts) - 1


def test_sizes_that_do_not_cut_each_other_have_no_refinement() -> None:
    assert refined((2, 3), (3, 2)) is None
    assert refined((4, 6), (2, 12)) == (2, 2, 6)
    assert refined((0, 3), (3,)) is None
    assert Rearrangement((2, 3), (1, 0)).then(Rearrangement((2, 3), (1, 0))) is None


@given(st.lists(cut_anew(12), max_size=3))
def test_runs_name_every_place_once_in_order(cut: list[tuple[int, ...]]) -> None:
    sizes = [size for of in cut for size in of]
    runs = runs_of([12] * len(cut), sizes)
    assert runs is not None
    assert [place for run in runs for place in run] == list(range(len(sizes)))
    assert [math.prod(sizes[i] for i in run) for run in runs] == [12] * len(cut)


def test_runs_that_there_are_not() -> None:
    assert runs_of((4, 3), (2, 6)) is None
    assert runs_of((4,), (2, 2, 3)) is None
    assert runs_of((4, 3), (2, 2)) is None
    assert runs_of((1, 4), (4,)) == [[], [0]]
    assert runs_of((4,), (4, 1)) == [[0, 1]]


def test_canonical_axes_have_the_fewest_parts() -> None:
    """As numpy numbers them, and alike however they were spelled."""
    rng = random.Random(0)
    for _ in range(300):
        parts = [rng.choice((1, 2, 3, 4)) for _ in range(rng.randint(0, 5))]
        axes = rng.sample(range(len(parts)), rng.randint(0, len(parts)))
        few, kept = canonical_axes(parts, axes)
        assert (_places(few, kept, math.prod(parts)) == _places(parts, axes, math.prod(parts))).all()
        assert 1 not in few
        again = [size for n in parts for size in ((n, 1) if n % 2 else (n // 2, 2))]
        assert canonical_axes(again, [i for axis in axes for i in (2 * axis, 2 * axis + 1)]) == (few, kept)


def _places(parts: Sequence[int], axes: Sequence[int], size: int) -> np.ndarray:
    grid = np.indices(tuple(parts)).reshape(len(parts), math.prod(parts))
    number = np.zeros(math.prod(parts), int)
    for axis in axes:
        number = number * parts[axis] + grid[axis]
    return np.broadcast_to(number, size)
