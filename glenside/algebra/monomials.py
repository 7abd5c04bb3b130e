"""Polynomials of operands in index notation: sums of monomials."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from glenside.algebra.indices import Axis, Index, Operand
from glenside.algebra.row_operators import RowOperator
from glenside.ir.term import Term


@dataclass(frozen=True, slots=True)
class Monomial:
    """The scale times the sum, over all indices that the result lacks, of the product of operands and row operators.

    through  sources of row operators for which it has a row operator of its own
    """

    scale: Fraction
    operands: tuple[Operand, ...] = ()
    rows: tuple[RowOperator, ...] = ()
    through: frozenset[Index] = frozenset()

    def times(self, other: Monomial) -> Monomial:
        """Returns the product of both."""
        rows = tuple(dict.fromkeys(self.rows + other.rows))
        return Monomial(self.scale * other.scale, self.operands + other.operands, rows, self.through | other.through)

    def scaled(self, factor: Fraction | int) -> Monomial:
        """Returns a multiple of it."""
        return replace(self, scale=self.scale * factor)


@dataclass(frozen=True, slots=True)
class NormalForm:
    """The elements of a term: the sum of monomials.

    axes   the indices of the axes of the term
    inner  the expanded terms, the root first
    leaves the terms below that are not expanded
    """

    term: Term
    axes: tuple[Axis, ...]
    monomials: tuple[Monomial, ...]
    inner: tuple[Term, ...]
    leaves: tuple[Term, ...]

    @property
    def indices(self) -> Axis:
        """The indices of the result."""
        return tuple(index for axis in self.axes for index in axis)
