"""Linear operators along one axis, which only choose elements: windows, strides, paddings, slices and gathers.

A row operator takes the index of an axis, its source, to other indices, its targets: X[p] becomes X[2 i + k - 1]. It is
a matrix of zeros and ones between the source and the targets, so a sum of products that it is part of may be computed
before it or after it. It is never multiplied out: it is applied to an array that has the source.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import gcd

from glenside.algebra.indices import Axis, Index, Operand, size_of
from glenside.builder.layout import gather, pad, pad_or_crop, reshape, slice_axis, split_at, transpose
from glenside.builder.windows import windows
from glenside.ir.term import Term, build


@dataclass(frozen=True, slots=True)
class Affine:
    """X[p] at p = offset + sum of coefficient x index; 0 where p is not within `valid`.

    terms  (index, coefficient > 0), each index once
    valid  (first, one beyond the last) element of the source that is not replaced by 0
    """

    source: Index
    terms: tuple[tuple[Index, int], ...]
    offset: int
    valid: tuple[int, int]

    @property
    def targets(self) -> Axis:
        """The indices of the result."""
        return tuple(index for index, _ in self.terms)

    @property
    def reach(self) -> tuple[int, int]:
        """The smallest and largest p."""
        return self.offset, self.offset + sum(c * (index.size - 1) for index, c in self.terms)

    @property
    def chosen(self) -> tuple[int, int]:
        """The smallest and largest p that is not replaced by 0."""
        (low, high), (first, beyond) = self.reach, self.valid
        return max(low, first), min(high, beyond - 1)

    @property
    def is_total(self) -> bool:
        """True if no element is replaced by 0."""
        return self.chosen == self.reach

    @property
    def is_identity(self) -> bool:
        """True if it only renames the source."""
        return len(self.terms) == 1 and self.terms[0][1] == 1 and self.chosen == (0, self.source.size - 1) == self.reach

    def groups(self) -> list[tuple[Axis, int]] | None:
        """Returns at most two axes with their coefficients, joining row-major indices; None if there are more."""
        found: list[tuple[Axis, int]] = []
        for index, c in sorted(self.terms, key=lambda term: -term[1]):
            if found and found[-1][1] == c * index.size:
                found[-1] = (*found[-1][0], index), c
            else:
                found.append(((index,), c))
        return found if len(found) <= 2 else None


@dataclass(frozen=True, slots=True)
class Selected:
    """X[p] at p = indices[targets], for an array of indices.

    axes  the indices of each axis of `indices`
    """

    source: Index
    indices: Term
    axes: tuple[Axis, ...]

    @property
    def targets(self) -> Axis:
        """The indices of the result."""
        return tuple(index for axis in self.axes for index in axis)


RowOperator = Affine | Selected


def affine(axis: Axis, coefficient: int = 1) -> tuple[tuple[Index, int], ...]:
    """Returns the terms of the element of an axis with these indices, row-major, times a coefficient."""
    return tuple((index, coefficient * size_of(axis[k + 1 :])) for k, index in enumerate(axis))


def through(row: Affine, shift: int, size: int, valid: tuple[int, int]) -> Affine:
    """Returns the row operator of an array, from that of the array moved by `shift`, whose other elements are 0.

    size   elements of the array
    valid  the elements of the moved array that may be other than 0
    """
    first, beyond = max(row.valid[0], valid[0]), min(row.valid[1], valid[1])
    return Affine(Index(size), row.terms, row.offset - shift, (max(first - shift, 0), min(beyond - shift, size)))


def renamed(row: RowOperator, names: Mapping[Index, Index]) -> RowOperator:
    """Returns the row operator with other indices."""
    source = names.get(row.source, row.source)
    if isinstance(row, Affine):
        return replace(row, source=source, terms=tuple((names.get(index, index), c) for index, c in row.terms))
    return replace(row, source=source, axes=tuple(tuple(names.get(i, i) for i in axis) for axis in row.axes))


def without_paddings(
    rows: Sequence[RowOperator], operands: Iterable[Operand], result: Collection[Index]
) -> list[RowOperator]:
    """Returns the row operators of a sum with slices in place of paddings of an index k that is summed over.

    Only k = q + shift for q of the padded array give terms other than 0, so the other operands are read there.
    """
    left, have = list(rows), {index for own in operands for index in own.indices}
    for row in rows:
        if not isinstance(row, Affine) or len(row.terms) != 1 or row.is_total:
            continue
        (k, c), q, shift = row.terms[0], row.source, -row.offset
        others = [other for other in left if other.source is not q]
        reading = [other for other in others if k in other.targets]
        apart = k in result or any(other.source is k for other in left)
        if c != 1 or apart or row.chosen != (0, q.size - 1) or not all(isinstance(each, Affine) for each in reading):
            continue
        left = [_shifted(other, k, q, shift) if isinstance(other, Affine) else other for other in others]
        left += [Affine(k, ((q, 1),), shift, (0, k.size))] if k in have else []
    return left


def _shifted(row: Affine, k: Index, q: Index, shift: int) -> Affine:
    """Returns a row operator at k = q + shift."""
    terms = tuple((q if index is k else index, c) for index, c in row.terms)
    return replace(row, terms=terms, offset=row.offset + sum(c * shift for index, c in row.terms if index is k))


@dataclass(frozen=True, slots=True)
class Relation:
    """An equation between two indices, index = factor x other + shift; without `other`, index = shift."""

    index: Index
    other: Index | None
    factor: int
    shift: int

    def operand(self, dtype: str) -> Operand:
        """Returns the matrix of zeros and ones (other)(index), or the vector (index)."""
        n = self.index.size
        if self.other is None:
            ones = pad(build("full", (1,), "1", dtype), [(self.shift, n - 1 - self.shift)])
            return Operand(ones, ((self.index,),))
        rows, step = self.other.size, n + self.factor  # ones are a row and `factor` elements apart
        ones = reshape(pad(build("full", (rows, 1), "1", dtype), [(0, 0), (0, step - 1)]), (rows * step,))
        moved = pad_or_crop(ones, [(self.shift, rows * n - self.shift - rows * step)])
        return Operand(reshape(moved, (rows, n)), ((self.other,), (self.index,)))


Agreement = tuple[dict[Index, Index], list[Relation]]
"""Names of indices of the second in those of the first, and relations that the second's indices fix."""


def agreement(first: RowOperator, second: RowOperator, result: Collection[Index]) -> Agreement | None:
    """Returns where two row operators of one source choose the same elements, for all values of the second's indices.

    None if that is nowhere, or unknown.
    """
    if isinstance(first, Affine) and isinstance(second, Affine):
        return _affine_agreement(first, second, result)
    if isinstance(first, Selected) and isinstance(second, Selected) and first.indices is second.indices:
        pairs = list(zip(first.targets, second.targets, strict=False))
        same = [len(axis) for axis in first.axes] == [len(axis) for axis in second.axes]
        if same and all(a is b or (a.size == b.size and a not in result and b not in result) for a, b in pairs):
            return {b: a for a, b in pairs if a is not b}, []
    return None


def _affine_agreement(first: Affine, second: Affine, result: Collection[Index]) -> Agreement | None:
    (low, high), (start, beyond) = second.reach, first.valid
    if (max(start, low), min(beyond - 1, high)) != second.chosen or second.chosen[0] > second.chosen[1]:
        return None
    both = {*first.terms} & {*second.terms}
    left, right = ([term for term in row.terms if term not in both] for row in (first, second))
    if any(index in result for index, _ in (*left, *right)):
        return None
    shift = second.offset - first.offset
    left, right = (sorted(terms, key=lambda term: (term[0].size, term[1])) for terms in (left, right))
    if shift == 0 and [(i.size, c) for i, c in left] == [(i.size, c) for i, c in right]:
        return {b: a for (a, _), (b, _) in zip(left, right, strict=True)}, []
    if len(left) != 1 or len(right) > 1:
        return None
    ((index, step),) = left
    other, c = right[0] if right else (None, step)
    relation = Relation(index, other, c // step, shift // step)
    last = relation.shift + relation.factor * (0 if other is None else other.size - 1)
    fits = c % step == 0 and shift % step == 0 and relation.shift >= 0 and last < index.size
    return ({}, [relation]) if fits else None


def composed(first: Affine, second: Affine, own: Collection[Index], dtype: str) -> tuple[Affine, Operand] | None:
    """Returns one row operator for two in a row, and the array (k n m) that joins their windows k and n to one, m.

    The elements of a window of windows are those of a larger window. None if the second replaces elements by 0, or if
    there is not one index of a window of each.

    own  the indices of the result
    """
    inner = [(index, c) for index, c in first.terms if index is not second.source and index not in own]
    steps = [c for index, c in first.terms if index is second.source]
    if not second.is_total or len(inner) != 1 or len(steps) != 1 or len(first.terms) != 2:
        return None
    (step,) = steps
    outer = [(index, c * step) for index, c in second.terms if index not in own]
    if len(outer) != 1:
        return None
    ((k, a), (n, b)) = inner[0], outer[0]
    unit = gcd(a, b)
    a, b = a // unit, b // unit
    m = Index(a * (k.size - 1) + b * (n.size - 1) + 1)
    rest = tuple((index, c * step) for index, c in second.terms if index in own)
    row = replace(first, terms=(*rest, (m, unit)), offset=first.offset + step * second.offset)
    # Ones are m.size + b elements apart along n, and n.size m.size + a along k.
    ones = pad(build("full", (k.size, n.size, 1), "1", dtype), [(0, 0), (0, 0), (0, m.size + b - 1)])
    ones = reshape(ones, (k.size, n.size * (m.size + b)))
    ones = reshape(pad_or_crop(ones, [(0, 0), (0, a - n.size * b)]), (k.size * (n.size * m.size + a),))
    ones = pad_or_crop(ones, [(0, -k.size * a)])
    return row, Operand(reshape(ones, (k.size, n.size, m.size)), ((k,), (n,), (m,)))


def applied(one: Operand, rows: Sequence[RowOperator], inside: Sequence[Index]) -> Operand:
    """Returns the array with the targets of row operators in place of their sources, one axis for each index.

    one     an array with one axis for each index
    inside  indices that are summed over by what reads the array, in order: they become the last axes where possible
    """
    for row in rows:
        if isinstance(row, Selected):
            at = one.indices.index(row.source)
            term = gather(split_at(one.term, 0), row.indices, at)
            before, after = one.indices[:at], one.indices[at + 1 :]
            indices = (*before, *row.targets, *after)
            one = Operand(reshape(term, [index.size for index in indices]), tuple((index,) for index in indices))
    chosen = [row for row in rows if isinstance(row, Affine)]
    return _windows(one, chosen, inside) if chosen else one


def _windows(one: Operand, rows: Sequence[Affine], inside: Sequence[Index]) -> Operand:
    sources = {row.source for row in rows}
    others = [index for index in one.indices if index not in sources]
    item = sorted((index for index in others if index in inside), key=list(inside).index)
    lead = [index for index in others if index not in inside]
    have = list(one.indices)
    x = transpose(one.term, [have.index(index) for index in (*lead, *item, *(row.source for row in rows))])
    first = len(lead) + len(item)
    for axis, row in enumerate(rows, first):
        (low, high), (start, beyond) = row.reach, row.valid
        edges = [(0, 0)] * x.access.rank
        edges[axis] = (start - low, high + 1 - beyond)
        x = pad_or_crop(slice_axis(x, axis, start, beyond), edges)
    moves = [_moves(row, inside) for row in rows]
    outer, inner = [move.outer for move in moves], [move.inner for move in moves]
    if any(move.stride > 1 or move.inner for move in moves):
        dims = [index.size for index in item]
        x = windows(
            split_at(x, len(lead)),
            (*dims, *map(size_of, inner)),
            (*(1 for _ in item), *(move.stride for move in moves)),
            (*(1 for _ in item), *(move.step for move in moves)),
        )
        for _ in item:
            x = build("access-squeeze", x, len(lead))
        indices = (*lead, *chain.from_iterable(outer), *item, *chain.from_iterable(inner))
    else:
        indices = (*lead, *item, *chain.from_iterable(outer))
    sizes = tuple(index.size for index in indices)
    return Operand(x if x.access.dims == sizes else reshape(x, sizes), tuple((index,) for index in indices))


@dataclass(frozen=True, slots=True)
class _Moves:
    """A window at each value of `outer`, `stride` elements apart, with elements `inner` that are `step` apart."""

    outer: Axis
    stride: int
    inner: Axis
    step: int


def _moves(row: Affine, inside: Collection[Index]) -> _Moves:
    groups = row.groups()
    assert groups is not None
    if groups and any(index in inside for index in groups[0][0]):
        groups.reverse()  # what is summed over is inside of a window
    if len(groups) == 2:
        return _Moves(*groups[0], *groups[1])
    if groups and groups[0][1] == 1 and any(index in inside for index in groups[0][0]):
        return _Moves((), 1, *groups[0])
    return _Moves(*groups[0], (), 1) if groups else _Moves((), 1, (), 1)
