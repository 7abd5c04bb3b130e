"""Axes whose indices are split where reshapes cut them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from glenside.algebra.indices import Axis, Index
from glenside.algebra.row_operators import Affine, RowOperator, Selected, affine


class Opaque(Exception):
    """A term that is no polynomial of others, or whose axes do not split as needed."""


@dataclass
class Splits:
    """The indices of an expansion.

    splits   index -> the indices that it was split into
    rows     source -> its row operator, for windows, paddings and slices
    """

    splits: dict[Index, Axis] = field(default_factory=dict)
    rows: dict[Index, RowOperator] = field(default_factory=dict)

    def resolved(self, axis: Iterable[Index]) -> Iterator[Index]:
        """Yields the indices of an axis as they are split by now."""
        for index in axis:
            parts = self.splits.get(index)
            if parts is None:
                yield index
            else:
                yield from self.resolved(parts)

    def split(self, index: Index, outer: int) -> Axis:
        """Splits an index into `outer` times the rest; returns both."""
        parts = Index(outer), Index(index.size // outer)
        if index in self.rows:
            self._split_row(self.rows[index], *parts)
        self.splits[index] = parts
        return parts

    def _split_row(self, row: RowOperator, outer: Index, inner: Index) -> None:
        """Adds the row operators of both parts of a source p = n q + r, which are q and r."""
        if isinstance(row, Selected) or not row.is_total:
            raise Opaque
        n = inner.size
        terms = [term for index, c in row.terms for term in affine(tuple(self.resolved((index,))), c)]
        rest = [(index, c) for index, c in terms if c % n]
        if len(rest) == 1 and rest[0][1] == 1 and rest[0][0].size > n and rest[0][0].size % n == 0:
            ((whole, _),) = rest
            high, low = self.split(whole, whole.size // n)
            terms = [*(term for term in terms if term[0] is not whole), (high, n), (low, 1)]
            rest = [(low, 1)]
        if row.offset % n + sum(c * (index.size - 1) for index, c in rest) >= n:
            raise Opaque
        whole_terms = tuple((index, c // n) for index, c in terms if c % n == 0)
        self.rows[outer] = Affine(outer, whole_terms, row.offset // n, (0, outer.size))
        self.rows[inner] = Affine(inner, tuple(rest), row.offset % n, (0, n))

    def regrouped(self, axes: Sequence[Axis], dims: Sequence[int]) -> tuple[Axis, ...]:
        """Returns the indices of these axes as those of an array of `dims` with the same row-major order."""
        left = [index for axis in axes for index in self.resolved(axis) if index.size > 1][::-1]
        found: list[Axis] = []
        for size in dims:
            axis: list[Index] = []
            have = 1
            while have < size:
                if not left:
                    raise Opaque
                index = left.pop()
                wanted = size // have
                if size % have:
                    raise Opaque
                if wanted % index.size:
                    if index.size % wanted:
                        raise Opaque
                    index, rest = self.split(index, wanted)
                    left.append(rest)
                axis.append(index)
                have *= index.size
            found.append(tuple(axis))
        if left:
            raise Opaque
        return tuple(found)

    def resolved_row(self, row: RowOperator) -> RowOperator:
        """Returns a row operator with targets as they are split by now."""
        if isinstance(row, Selected):
            return replace(row, axes=tuple(tuple(self.resolved(axis)) for axis in row.axes))
        return replace(
            row, terms=tuple(term for index, c in row.terms for term in affine(tuple(self.resolved((index,))), c))
        )

    def targets(self, row: RowOperator) -> Axis:
        """Returns the targets of a row operator as they are split by now."""
        return tuple(self.resolved(row.targets))
