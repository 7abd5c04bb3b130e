"""Rearrangements: the same elements in another row-major order, as parts of what there was and an order of those.

`parts` cut the elements in row-major order, `order[i]` is the part that stands i-th in the result. Any chain of
reshapes and transposes is one rearrangement, and its canonical form is the same however the chain was spelled. Layouts
(NCHW, NHWC, blocked) are told apart by nothing else.
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
        """The sizes of the parts as they stand in the result."""
        return tuple(self.parts[i] for i in self.order)

    @property
    def is_identity(self) -> bool:
        """Whether every element stays where it is: a reshape, at most."""
        moved = [i for i in self.order if self.parts[i] != 1]
        return moved == sorted(moved)

    def canonical(self) -> Rearrangement:
        """The same with the fewest parts: none of size 1, none that stay side by side."""
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
        """What undoes it."""
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return Rearrangement(self.result, tuple(back))

    def then(self, other: Rearrangement) -> Rearrangement | None:
        """Both, this one first; None where the parts of one do not cut those of the other into whole numbers."""
        sizes = refined(self.result, other.parts)
        if sizes is None:
            return None
        mine, theirs = self.cut_result(sizes), other.cut_parts(sizes)
        assert mine is not None
        assert theirs is not None
        order = tuple(mine.order[i] for i in theirs.order)
        return Rearrangement(mine.parts, order).canonical()

    def cut_parts(self, sizes: Sequence[int]) -> Rearrangement | None:
        """The same with these sizes, of which each part is a run; None where they are not."""
        runs = runs_of(self.parts, sizes)
        if runs is None:
            return None
        return Rearrangement(tuple(sizes), tuple(j for i in self.order for j in runs[i]))

    def cut_result(self, sizes: Sequence[int]) -> Rearrangement | None:
        """The same with parts so fine that the result's sizes are these; None where they do not fit."""
        cut = self.inverse().cut_parts(sizes)
        return None if cut is None else cut.inverse()


def identity(size: int) -> Rearrangement:
    """Everything as one part."""
    return Rearrangement((size,), (0,))


def of_transpose(dims: Sequence[int], order: Sequence[int]) -> Rearrangement:
    """The transpose of an array of these dims."""
    return Rearrangement(tuple(dims), tuple(order)).canonical()


def refined(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...] | None:
    """The fewest sizes of which every size of a and of b is a run's product; None where there are none."""
    cuts = sorted({*_cuts(a), *_cuts(b)})
    if any(low == 0 or high % low for low, high in pairwise(cuts)):
        return None
    return tuple(high // low for low, high in pairwise(cuts))[::-1]


def _cuts(sizes: Sequence[int]) -> list[int]:
    """How many elements lie behind each cut, that behind all of them included."""
    return list(accumulate(reversed(sizes), operator.mul, initial=1))


def runs_of(whole: Sequence[int], sizes: Sequence[int]) -> list[list[int]] | None:
    """For each size of `whole`, the places in `sizes` whose product it is, in order; a size of 1 may have none."""
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


def places_along(parts: Sequence[int], axes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Places along axes of row-major parts, in that order of the axes, said with the fewest parts and axes.

    None of size 1; what is not of the axes is one part between them, and axes that follow one another are one. Both are
    empty where all places are one.
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
