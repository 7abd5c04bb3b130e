"""Defines rearrangements: the same elements in another row-major order, as a split into parts and their permutation.

`parts` split the elements in row-major order; `order[i]` is the part that becomes part i of the result. Any chain of
reshapes and transposes is one rearrangement, and its canonical form does not depend on how the chain was spelled.
Layouts (NCHW, NHWC, blocked) are identified by it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise


@dataclass(frozen=True, slots=True)
class Rearrangement:
    """`out = in.reshape(parts).transpose(order).reshape(-1)`; parts are at least 1."""

    parts: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def result(self) -> tuple[int, ...]:
        """The sizes of the parts in the order of the result."""
        return tuple(self.parts[i] for i in self.order)

    @property
    def is_identity(self) -> bool:
        """True if every element keeps its position: at most a reshape."""
        moved = [i for i in self.order if self.parts[i] != 1]
        return moved == sorted(moved)

    def canonical(self) -> Rearrangement:
        """Returns the same rearrangement with the fewest parts: none of size 1, no two that stay adjacent."""
        order = [i for i in self.order if self.parts[i] != 1]
        groups: list[list[int]] = []
        for i in order:
            follows = groups and not any(self.parts[j] != 1 for j in range(groups[-1][-1] + 1, i))
            if follows and groups[-1][-1] < i:
                groups[-1].append(i)
            else:
                groups.append([i])
        place = {g[0]: n for n, g in enumerate(sorted(groups))}
        sizes = [math.prod(self.parts[i] for i in g) for g in sorted(groups)]
        return Rearrangement(tuple(sizes) or (1,), tuple(place[g[0]] for g in groups) or (0,))

    def inverse(self) -> Rearrangement:
        """Returns the inverse rearrangement."""
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return Rearrangement(self.result, tuple(back))

    def then(self, other: Rearrangement) -> Rearrangement | None:
        """Composes both, this one first; returns None if no common split of both parts exists."""
        sizes = refined(self.result, other.parts)
        if sizes is None:
            return None
        mine, theirs = self.cut_result(sizes), other.cut_parts(sizes)
        assert mine is not None
        assert theirs is not None
        order = tuple(mine.order[i] for i in theirs.order)
        return Rearrangement(mine.parts, order).canonical()

    def cut_parts(self, sizes: Sequence[int]) -> Rearrangement | None:
        """Splits parts into these finer sizes; returns None if the parts are not products of runs of them."""
        runs = runs_of(self.parts, sizes)
        if runs is None:
            return None
        return Rearrangement(tuple(sizes), tuple(j for i in self.order for j in runs[i]))

    def cut_result(self, sizes: Sequence[int]) -> Rearrangement | None:
        """Splits parts so that the result's sizes are these; returns None if they do not fit."""
        cut = self.inverse().cut_parts(sizes)
        return None if cut is None else cut.inverse()


def identity(size: int) -> Rearrangement:
    """Returns the identity: one part with all elements."""
    return Rearrangement((size,), (0,))


def of_transpose(dims: Sequence[int], order: Sequence[int]) -> Rearrangement:
    """Returns the transpose of an array of `dims`."""
    return Rearrangement(tuple(dims), tuple(order)).canonical()


def refined(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...] | None:
    """Returns the coarsest common refinement: every size of a and of b is the product of a run; None if there is
    none.
    """
    cuts = sorted({*_cuts(a), *_cuts(b)})
    if any(low == 0 or high % low for low, high in pairwise(cuts)):
        return None
    return tuple(high // low for low, high in pairwise(cuts))[::-1]


def _cuts(sizes: Sequence[int]) -> list[int]:
    """Returns the number of elements after each cut, including the cut before all of them."""
    return list(accumulate(reversed(sizes), operator.mul, initial=1))


def runs_of(whole: Sequence[int], sizes: Sequence[int]) -> list[list[int]] | None:
    """Returns, for each size of `whole`, the indices in `sizes` whose product it is, in order; a size 1 may have
    none.
    """
    runs: list[list[int]] = []
    at = 0
    for size in whole:
        run: list[int] = []
        have = 1
        while have < size and at < len(sizes):
            have *= sizes[at]
            run.append(at)
            at += 1
        if have != size:
            return None
        runs.append(run)
    if any(sizes[i] != 1 for i in range(at, len(sizes))):
        return None
    if runs:
        runs[-1] += range(at, len(sizes))
    return runs if runs or not sizes else None


def canonical_axes(parts: Sequence[int], axes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Canonicalizes a selection of axes of row-major parts, in the given order of axes: the fewest parts, and its axes.

    No part has size 1; adjacent unselected parts are merged, and so are selected axes that follow one another. Both
    results are empty if the selection has one element.
    """
    turn = {axis: i for i, axis in enumerate(axis for axis in axes if parts[axis] != 1)}
    groups: list[list[int]] = []
    for part in (part for part, n in enumerate(parts) if n != 1) if turn else ():
        before = turn.get(groups[-1][-1], -2) if groups else None
        if before is not None and turn.get(part, -1) == before + 1:
            groups[-1].append(part)
        else:
            groups.append([part])
    number = {group[0]: i for i, group in enumerate(groups)}
    kept = tuple(number[axis] for axis in turn if axis in number)
    return tuple(math.prod(parts[part] for part in group) for group in groups), kept
