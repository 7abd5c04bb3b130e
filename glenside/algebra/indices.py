"""Indices of arrays, as in index notation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from glenside.builder.layout import broadcast, rearrange
from glenside.ir.term import Term


@dataclass(frozen=True, eq=False, slots=True)
class Index:
    """An index variable with values 0 to size - 1. Two indices are equal only if they are the same object."""

    size: int


Axis = tuple[Index, ...]
"""The indices of an axis, row-major; none for an axis of one element, or for a broadcast one."""


@dataclass(frozen=True, slots=True)
class Operand:
    """An array with the indices of each of its axes; an index that it does not have does not change its elements."""

    term: Term
    axes: tuple[Axis, ...]

    @property
    def indices(self) -> Axis:
        """All indices, in the order of axes."""
        return tuple(index for axis in self.axes for index in axis)


def size_of(indices: Iterable[Index]) -> int:
    """Returns the number of elements of an array with these indices."""
    return prod(index.size for index in indices)


def arranged(one: Operand, indices: Sequence[Index]) -> Term:
    """Returns an array with one axis for each of these indices, from an operand that may lack some."""
    have = list(one.indices)
    order = [have.index(index) for index in indices if index in have]
    dims = [index.size if index in have else 1 for index in indices]
    moved = rearrange(one.term, [index.size for index in have], order, dims)
    return broadcast(moved, [index.size for index in indices])
