"""Normal forms of terms: sums of products of operands, in index notation as in Einstein's.

A term such as ``dot-product(access-product(A, B))`` is sum_k A[i, k] B[j, k]. Operands that are products themselves are
expanded, through transposes, reshapes and broadcasts, which only name indices anew. The same holds for elementwise
products (both operands and the result have the index), divisions (products by the reciprocal), negations, sums and
means over axes, and for sums of terms, over which products distribute. The result is a polynomial: a sum of monomials.
A monomial is a scale and operands, which are opaque. The reals are a commutative ring: any order of pairwise
contractions of a monomial's operands, and any factoring of common operands, computes the same reals.

An axis of an array is a tuple of indices, in row-major order: reshapes split and join axes, so an index is split where
a reshape cuts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod

from glenside.builder.layout import split_at
from glenside.builder.pointwise import divide, filled
from glenside.ir.dtypes import FLOATS
from glenside.ir.term import Term
from glenside.ir.types import AccessType


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


@dataclass(frozen=True, slots=True)
class Monomial:
    """The scale times the sum, over all indices that the result lacks, of the product of the operands."""

    scale: Fraction
    operands: tuple[Operand, ...]

    def times(self, other: Monomial) -> Monomial:
        """Returns the product of both."""
        return Monomial(self.scale * other.scale, self.operands + other.operands)


@dataclass(frozen=True, slots=True)
class NormalForm:
    """The elements of a term: the sum of monomials.

    axes   the indices of the axes of the term
    inner  the expanded terms, the root first
    """

    term: Term
    axes: tuple[Axis, ...]
    monomials: tuple[Monomial, ...]
    inner: tuple[Term, ...]

    @property
    def indices(self) -> Axis:
        """The indices of the result."""
        return tuple(index for axis in self.axes for index in axis)


MAX_MONOMIALS = 8
"""Maximum monomials of a form; sums of more terms stay operands."""


class _Opaque(Exception):
    """A term that is no polynomial of others, or whose axes do not split as needed."""


@dataclass
class _Expansion:
    """Expands one term.

    expands  False for terms that stay operands
    inner    the expanded terms
    splits   index -> the indices that it was split into
    """

    expands: Callable[[Term], bool]
    inner: list[Term] = field(default_factory=list)
    splits: dict[Index, Axis] = field(default_factory=dict)

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
        self.splits[index] = parts
        return parts

    def regrouped(self, axes: Sequence[Axis], dims: Sequence[int]) -> tuple[Axis, ...]:
        """Returns the indices of these axes as those of an array of `dims` with the same row-major order."""
        left = [index for axis in axes for index in self.resolved(axis)][::-1]
        found: list[Axis] = []
        for size in dims:
            axis: list[Index] = []
            have = 1
            while have < size:
                if not left:
                    raise _Opaque
                index = left.pop()
                wanted = size // have
                if size % have:
                    raise _Opaque
                if wanted % index.size:
                    if index.size % wanted:
                        raise _Opaque
                    index, rest = self.split(index, wanted)
                    left.append(rest)
                axis.append(index)
                have *= index.size
            found.append(tuple(axis))
        if left:
            raise _Opaque
        return tuple(found)

    def pull(self, term: Term, axes: Sequence[Axis]) -> list[Monomial]:
        """Returns the monomials of a term whose axes have these indices."""
        before = len(self.inner)
        try:
            return self._expanded(term, tuple(axes))
        except _Opaque:
            del self.inner[before:]
            return [Monomial(Fraction(1), (Operand(term, tuple(axes)),))]

    def _expanded(self, term: Term, axes: tuple[Axis, ...]) -> list[Monomial]:
        name = term.operator.name
        if name in ("access", "access-reshape", "access-squeeze", "access-insert-axis"):
            (x,) = term.children
            return self.pull(x, axes if name == "access" else self.regrouped(axes, x.access.dims))
        if name == "access-transpose":
            (x,), (order,) = term.children, term.attributes
            assert isinstance(order, tuple)
            at = dict(zip(order, axes, strict=True))
            return self.pull(x, [at[axis] for axis in range(len(axes))])
        if name == "access-broadcast":
            (x,) = term.children
            if x.access.rank != len(axes):
                raise _Opaque
            return self.pull(x, [() if size == 1 else axis for size, axis in zip(x.access.dims, axes, strict=True)])
        if name == "full":
            return [Monomial(_exact(str(term.attributes[1])), ())]
        if name == "compute" and self.expands(term):
            self.inner.append(term)
            return self._computed(str(term.attributes[0]), term.children[0], axes)
        raise _Opaque

    def _computed(self, kind: str, x: Term, axes: tuple[Axis, ...]) -> list[Monomial]:
        if kind == "negative":
            return [Monomial(-one.scale, one.operands) for one in self.pull(x, axes)]
        if kind in ("reduce-sum", "reduce-mean"):
            count = x.access.item.product() if kind == "reduce-mean" else 1
            item = _fresh(x.access.item)
            return self._summed(
                [Monomial(one.scale / count, one.operands) for one in self.pull(x, (*axes, *item))], item
            )
        if x.operator.name != "access-product":
            raise _Opaque
        a, b = x.children
        (shared,) = x.attributes
        assert isinstance(shared, int)
        contracts = kind == "dot-product"
        items = len(a.access.item)
        item = _fresh(a.access.item) if contracts else axes[len(axes) - items :]
        stays = axes if contracts else axes[: len(axes) - items]
        left = (*stays[: a.access.split], *item)
        right = (*stays[:shared], *stays[a.access.split :], *item)
        if kind in ("elementwise-add", "subtract"):
            sign = -1 if kind == "subtract" else 1
            found = self.pull(a, left) + [Monomial(sign * one.scale, one.operands) for one in self.pull(b, right)]
        elif kind in ("dot-product", "elementwise-mul"):
            found = [one.times(other) for one in self.pull(a, left) for other in self.pull(b, right)]
            found = self._summed(found, item) if contracts else found
        elif kind == "elementwise-div":
            inverse = self._reciprocal(b, right)
            found = [one.times(inverse) for one in self.pull(a, left)]
        else:
            raise _Opaque
        if len(found) > MAX_MONOMIALS:
            raise _Opaque
        return found

    def _summed(self, found: list[Monomial], axes: Sequence[Axis]) -> list[Monomial]:
        """Counts an index that is summed over and that no operand has as a factor."""
        indices = [index for axis in axes for index in self.resolved(axis)]
        return [
            Monomial(one.scale * size_of(i for i in indices if not self._has(one, i)), one.operands) for one in found
        ]

    def _has(self, one: Monomial, index: Index) -> bool:
        return any(index in self.resolved(operand.indices) for operand in one.operands)

    def _reciprocal(self, term: Term, axes: tuple[Axis, ...]) -> Monomial:
        """Returns the reciprocal of one operand, which is computed where it has fewest elements."""
        apart = _Expansion(lambda _: False, splits=self.splits)
        (one,) = apart.pull(term, axes)
        if not one.operands and one.scale:
            return Monomial(1 / one.scale, ())
        if len(one.operands) == 1 and one.scale == 1:
            (operand,) = one.operands
            whole = split_at(operand.term, 0)
            return Monomial(Fraction(1), (Operand(divide(filled(whole, "1"), whole), operand.axes),))
        raise _Opaque


def _exact(text: str) -> Fraction:
    """Returns the number of a `full`; infinities and not-a-number are no scales."""
    try:
        return Fraction(text)
    except ValueError:
        raise _Opaque from None


def _fresh(dims: Sequence[int]) -> tuple[Axis, ...]:
    return tuple(() if size == 1 else (Index(size),) for size in dims)


def normal_form(term: Term, expands: Callable[[Term], bool]) -> NormalForm | None:
    """Returns the normal form of a term of floats; None if it has none, or has axes without elements.

    expands  True for terms below that may be computed otherwise, or not at all
    """
    if not _is_of(term, None) or term.access.dtype not in FLOATS:
        return None
    work = _Expansion(lambda each: each is term or (_is_of(each, term.access.dtype) and expands(each)))
    axes = _fresh(term.access.dims)
    found = work.pull(term, axes)
    if not work.inner:
        return None
    monomials = tuple(
        Monomial(
            one.scale,
            tuple(Operand(own.term, tuple(tuple(work.resolved(axis)) for axis in own.axes)) for own in one.operands),
        )
        for one in found
    )
    if not all(_is_of(own.term, term.access.dtype) for one in monomials for own in one.operands):
        return None
    return NormalForm(term, tuple(tuple(work.resolved(axis)) for axis in axes), monomials, tuple(work.inner))


def _is_of(term: Term, dtype: str | None) -> bool:
    return isinstance(term.type, AccessType) and term.access.size > 0 and (dtype is None or term.access.dtype == dtype)


def size_of(indices: Iterable[Index]) -> int:
    """Returns the number of elements of an array with these indices."""
    return prod(index.size for index in indices)
