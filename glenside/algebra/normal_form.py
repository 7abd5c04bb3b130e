"""Normal forms of terms: sums of products of operands, in index notation as in Einstein's.

A term such as ``dot-product(access-product(A, B))`` is sum_k A[i, k] B[j, k]. Operands that are products themselves are
expanded, through transposes, reshapes and broadcasts, which only name indices anew. The same holds for elementwise
products (both operands and the result have the index), divisions (products by the reciprocal), negations, sums and
means over axes, and for sums of terms, over which products distribute. The result is a polynomial: a sum of monomials.
A monomial is a scale and operands, which are opaque. The reals are a commutative ring: any order of pairwise
contractions of a monomial's operands, and any factoring of common operands, computes the same reals.

An axis of an array is a tuple of indices, in row-major order: reshapes split and join axes, so an index is split where
a reshape cuts it. Windows, strides, paddings, slices and gathers are row operators of a monomial: see `row_operators`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from glenside.algebra.indices import Axis, Index, Operand, size_of
from glenside.algebra.row_operators import Affine, RowOperator, Selected, affine, through
from glenside.builder.layout import split_at
from glenside.builder.pointwise import divide, filled
from glenside.ir.dtypes import FLOATS
from glenside.ir.term import Term, build
from glenside.ir.types import AccessType, Dims


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


MAX_MONOMIALS = 8
"""Maximum monomials of a form; sums of more terms stay operands."""


MAX_FACTORS = 8
"""Maximum operands of a monomial; a product of more is one of an operand that is a product."""

MAX_DEPTH = 100
"""Maximum terms between the root of a form and an operand: expansion is recursive."""


class _Opaque(Exception):
    """A term that is no polynomial of others, or whose axes do not split as needed."""


@dataclass
class _Expansion:
    """Expands one term.

    expands  False for terms that stay operands
    result   the axes of the term itself
    inner    the expanded terms
    leaves   the terms below that are not expanded
    splits   index -> the indices that it was split into
    rows     source -> its row operator, for windows, paddings and slices
    """

    expands: Callable[[Term], bool]
    result: tuple[Axis, ...] = ()
    inner: list[Term] = field(default_factory=list)
    leaves: list[Term] = field(default_factory=list)
    splits: dict[Index, Axis] = field(default_factory=dict)
    rows: dict[Index, RowOperator] = field(default_factory=dict)
    depth: int = 0

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
        if index in self.rows:
            raise _Opaque
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
        before, leaves = len(self.inner), len(self.leaves)
        self.depth += 1
        try:
            return self._expanded(term, tuple(axes))
        except _Opaque:
            del self.inner[before:], self.leaves[leaves:]
            self.leaves.append(term)
            return [_operand(term, axes)]
        finally:
            self.depth -= 1

    def _expanded(self, term: Term, axes: tuple[Axis, ...]) -> list[Monomial]:
        expand = _EXPAND.get(term.operator.name)
        if expand is None or self.depth > MAX_DEPTH:
            raise _Opaque
        return expand(self, term, axes)

    def _same_order(self, term: Term, axes: tuple[Axis, ...]) -> list[Monomial]:
        (x,) = term.children
        return self.pull(x, self.regrouped(axes, x.access.dims))

    def _transposed(self, term: Term, axes: tuple[Axis, ...]) -> list[Monomial]:
        (x,), (order,) = term.children, term.attributes
        assert isinstance(order, tuple)
        at = dict(zip(order, axes, strict=True))
        return self.pull(x, [at[axis] for axis in range(len(axes))])

    def _broadcast(self, term: Term, axes: tuple[Axis, ...]) -> list[Monomial]:
        (x,) = term.children
        return self.pull(x, [() if size == 1 else axis for size, axis in zip(x.access.dims, axes, strict=True)])

    def _full(self, term: Term, _: tuple[Axis, ...]) -> list[Monomial]:
        return [Monomial(_exact(str(term.attributes[1])))]

    def _sliced(self, term: Term, axes: tuple[Axis, ...]) -> list[Monomial]:
        (x,), (axis, low, high) = term.children, term.attributes
        assert isinstance(axis, int)
        assert isinstance(low, int)
        assert isinstance(high, int)
        return self._moved(x, axes, axis, -low, (0, high - low))

    def _padded(self, term: Term, axes: tuple[Axis, ...]) -> list[Monomial]:
        (x,), (kind, axis, before, _) = term.children, term.attributes
        assert isinstance(axis, int)
        assert isinstance(before, int)
        if kind != "zero-padding":
            raise _Opaque
        return self._moved(x, axes, axis, before, (before, before + x.access.dims[axis]))

    def _concatenated(self, term: Term, axes: tuple[Axis, ...]) -> list[Monomial]:
        """Cuts an axis that is summed over: [a b] [A; B] = a A + b B, where A and B are slices of what a and b meet."""
        (axis,) = term.attributes
        assert isinstance(axis, int)
        own = tuple(self.resolved(axes[axis]))
        result = {index for of in self.result for index in self.resolved(of)}
        if len(own) != 1 or own[0] in result or own[0] in self.rows:
            raise _Opaque
        found, start = [], 0
        for x, plain in self._parts(term, axis, axes):
            size = x.access.dims[axis]
            inner = Index(size)
            row = Affine(own[0], ((inner, 1),), start, (0, own[0].size))
            self.rows[own[0]] = row  # an index that is cut here is not split elsewhere
            of_part = (*axes[:axis], (inner,), *axes[axis + 1 :])
            self.leaves += _flat(x, axis) if plain else ()
            part = [_operand(x, of_part)] if plain else self.pull(x, of_part)
            found += [replace(one, rows=(*one.rows, row)) for one in part]
            start += size
        if len(found) > MAX_MONOMIALS:
            raise _Opaque
        return found

    def _parts(self, term: Term, axis: int, axes: tuple[Axis, ...]) -> list[tuple[Term, bool]]:
        """Returns the parts of nested concatenations, and whether they stay operands; neighbours that do are one part.

        Raises `_Opaque` if all are one part.
        """
        parts: list[tuple[Term, bool]] = []
        for x in _flat(term, axis):
            apart = replace(self, inner=[], leaves=[], splits=dict(self.splits), rows=dict(self.rows))
            pulled = apart.pull(x, (*axes[:axis], (Index(x.access.dims[axis]),), *axes[axis + 1 :]))
            plain = len(pulled) == 1 and any(own.term is x for own in pulled[0].operands)
            if plain and parts and parts[-1][1]:
                parts[-1] = build("access-concatenate", parts[-1][0], x, axis), True
            else:
                parts.append((x, plain))
        if len(parts) == 1:
            raise _Opaque
        return parts

    def _gathered(self, term: Term, axes: tuple[Axis, ...]) -> list[Monomial]:
        (x, indices), (axis,) = term.children, term.attributes
        assert isinstance(axis, int)
        self.leaves.append(indices)
        source, beyond = Index(x.access.dims[axis]), axis + indices.access.rank
        row = Selected(source, split_at(indices, 0), axes[axis:beyond])
        return self._with_rows(x, (*axes[:axis], (source,), *axes[beyond:]), [row])

    def _windowed(self, term: Term, axes: tuple[Axis, ...]) -> list[Monomial]:
        (x,), (window, strides) = term.children, term.attributes
        assert isinstance(window, Dims)
        assert isinstance(strides, Dims)
        split, rank = x.access.split, len(window)
        found, rows = list(axes[:split]), []
        for size, starts, inside, n, stride in zip(
            x.access.item, axes[split : split + rank], axes[split + rank :], window, strides, strict=True
        ):
            starts, inside = tuple(self.resolved(starts)), tuple(self.resolved(inside))
            if n == size:
                found.append(inside)
            elif n == 1 and stride == 1:
                found.append(starts)
            else:
                source = Index(size)
                rows.append(self._combined(Affine(source, (*affine(starts, stride), *affine(inside)), 0, (0, size))))
                found.append((source,))
        return self._with_rows(x, found, rows)

    def _combined(self, row: Affine) -> Affine:
        """Puts strides that replace no element by 0 in place of the targets that are their sources."""
        terms: list[tuple[Index, int]] = []
        offset = row.offset
        for index, c in row.terms:
            within = self.rows.get(index)
            if isinstance(within, Affine) and within.is_total and len(within.terms) == 1:
                terms += ((own, c * factor) for own, factor in within.terms)
                offset += c * within.offset
            else:
                terms.append((index, c))
        if len({index for index, _ in terms}) < len(terms):
            raise _Opaque
        return replace(row, terms=tuple(terms), offset=offset)

    def _moved(self, x: Term, axes: Sequence[Axis], axis: int, shift: int, valid: tuple[int, int]) -> list[Monomial]:
        """Returns the monomials of x moved along an axis by `shift`, with 0 for what is not `valid` there."""
        size = x.access.dims[axis]
        own = tuple(self.resolved(axes[axis]))
        above = self.rows.get(own[0]) if len(own) == 1 else None
        replaced = frozenset(own) if isinstance(above, Affine) else frozenset()
        outer = above if isinstance(above, Affine) else Affine(Index(0), affine(own), 0, (-(1 << 62), 1 << 62))
        row = through(outer, shift, size, valid)
        if row.chosen[0] > row.chosen[1]:
            raise _Opaque
        found = self._with_rows(x, (*axes[:axis], (row.source,), *axes[axis + 1 :]), [row])
        return [replace(one, through=one.through | replaced) for one in found]

    def _with_rows(self, x: Term, axes: Sequence[Axis], rows: Sequence[RowOperator]) -> list[Monomial]:
        """Returns the monomials of x with row operators for some of its indices."""
        self.rows.update((row.source, row) for row in rows)
        return [self._with_own(one, rows, x.access.dtype) for one in self.pull(x, axes)]

    def _with_own(self, one: Monomial, rows: Sequence[RowOperator], dtype: str) -> Monomial:
        for row in rows:
            has = any(row.source in self.resolved(operand.indices) for operand in one.operands)
            has = has or any(row.source in self._targets(own) for own in one.rows)
            if not has and row.source not in one.through and isinstance(row, Affine) and not row.is_total:
                ones = Operand(build("full", (row.source.size,), "1", dtype), ((row.source,),))
                one, has = replace(one, operands=(*one.operands, ones)), True
            if has:
                one = replace(one, rows=tuple(dict.fromkeys((*one.rows, row))))
        return one

    def final(self, one: Monomial) -> Monomial:
        """Returns the monomial with all indices as they are split at the end."""
        operands = tuple(
            Operand(own.term, tuple(tuple(self.resolved(axis)) for axis in own.axes)) for own in one.operands
        )
        rows = tuple(map(self._resolved_row, one.rows))
        have = {index for own in operands for index in own.indices}.union(*(row.targets for row in rows))
        return Monomial(one.scale, operands, tuple(row for row in rows if row.source in have))

    def _resolved_row(self, row: RowOperator) -> RowOperator:
        if isinstance(row, Selected):
            return replace(row, axes=tuple(tuple(self.resolved(axis)) for axis in row.axes))
        return replace(
            row, terms=tuple(term for index, c in row.terms for term in affine(tuple(self.resolved((index,))), c))
        )

    def _targets(self, row: RowOperator) -> Axis:
        return tuple(self.resolved(row.targets))

    def _computed(self, term: Term, axes: tuple[Axis, ...]) -> list[Monomial]:
        if not self.expands(term):
            raise _Opaque
        self.inner.append(term)
        (x,), kind = term.children, str(term.attributes[0])
        if kind == "negative":
            return [one.scaled(-1) for one in self.pull(x, axes)]
        if kind in ("reduce-sum", "reduce-mean"):
            count = x.access.item.product() if kind == "reduce-mean" else 1
            item = _fresh(x.access.item)
            return self._summed([one.scaled(Fraction(1, count)) for one in self.pull(x, (*axes, *item))], item)
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
            found = self.pull(a, left) + [one.scaled(sign) for one in self.pull(b, right)]
        elif kind in ("dot-product", "elementwise-mul"):
            found = [one.times(other) for one in self.pull(a, left) for other in self.pull(b, right)]
            found = self._summed(found, item) if contracts else found
        elif kind == "elementwise-div":
            inverse = self._reciprocal(b, right)
            found = [one.times(inverse) for one in self.pull(a, left)]
        else:
            raise _Opaque
        if len(found) > MAX_MONOMIALS or any(len(one.operands) > MAX_FACTORS for one in found):
            raise _Opaque
        return found

    def _summed(self, found: list[Monomial], axes: Sequence[Axis]) -> list[Monomial]:
        """Counts an index that is summed over and that no operand has as a factor."""
        indices = [index for axis in axes for index in self.resolved(axis)]
        return [one.scaled(size_of(i for i in indices if not self._has(one, i))) for one in found]

    def _has(self, one: Monomial, index: Index) -> bool:
        return any(index in self.resolved(operand.indices) for operand in one.operands) or any(
            index is row.source or index in self._targets(row) for row in one.rows
        )

    def _reciprocal(self, term: Term, axes: tuple[Axis, ...]) -> Monomial:
        """Returns the reciprocal of one operand, which is computed where it has fewest elements."""
        apart = _Expansion(lambda _: False, leaves=self.leaves, splits=self.splits, rows=self.rows)
        (one,) = apart.pull(term, axes)
        if one.rows:
            raise _Opaque
        if not one.operands and one.scale:
            return Monomial(1 / one.scale)
        if len(one.operands) == 1 and one.scale == 1:
            (operand,) = one.operands
            whole = split_at(operand.term, 0)
            return Monomial(Fraction(1), (Operand(divide(filled(whole, "1"), whole), operand.axes),))
        raise _Opaque


_EXPAND: dict[str, Callable[[_Expansion, Term, tuple[Axis, ...]], list[Monomial]]] = {
    "access": lambda self, term, axes: self.pull(term.children[0], axes),
    "access-reshape": _Expansion._same_order,
    "access-squeeze": _Expansion._same_order,
    "access-insert-axis": _Expansion._same_order,
    "access-transpose": _Expansion._transposed,
    "access-broadcast": _Expansion._broadcast,
    "access-windows": _Expansion._windowed,
    "access-slice": _Expansion._sliced,
    "access-pad": _Expansion._padded,
    "access-gather": _Expansion._gathered,
    "access-concatenate": _Expansion._concatenated,
    "full": _Expansion._full,
    "compute": _Expansion._computed,
}

MOVEMENT = frozenset(_EXPAND) - {"full", "compute", "access-concatenate"}
"""Operators that name indices otherwise, or are row operators."""


def _operand(term: Term, axes: Sequence[Axis]) -> Monomial:
    return Monomial(Fraction(1), (Operand(term, tuple(axes)),))


def _flat(term: Term, axis: int) -> Iterator[Term]:
    """Yields the parts of nested concatenations along one axis."""
    if term.operator.name == "access-concatenate" and term.attributes == (axis,):
        for child in term.children:
            yield from _flat(child, axis)
    else:
        yield term


def _exact(text: str) -> Fraction:
    """Returns the number of a `full`; infinities and not-a-number are no scales."""
    try:
        return Fraction(text)
    except ValueError:
        raise _Opaque from None


def _fresh(dims: Sequence[int]) -> tuple[Axis, ...]:
    return tuple(() if size == 1 else (Index(size),) for size in dims)


def normal_form(term: Term, expands: Callable[[Term], bool], first: Term | None = None) -> NormalForm | None:
    """Returns the normal form of a term of floats; None if it has none, or has axes without elements.

    expands  True for terms below that may be computed otherwise, or not at all
    first    the computation that is expanded in any case: the term, or what it is moved from
    """
    if not _is_of(term, None) or term.access.dtype not in FLOATS:
        return None
    always = term if first is None else first
    work = _Expansion(lambda each: each is always or (_is_of(each, term.access.dtype) and expands(each)))
    axes = work.result = _fresh(term.access.dims)
    found = work.pull(term, axes)
    if not work.inner or not any(own.indices for one in found for own in one.operands):
        return None
    monomials = tuple(work.final(one) for one in found)
    if not all(_is_of(own.term, term.access.dtype) for one in monomials for own in one.operands):
        return None
    if any(isinstance(row, Affine) and row.groups() is None for one in monomials for row in one.rows):
        return None
    resolved = tuple(tuple(work.resolved(axis)) for axis in axes)
    return NormalForm(term, resolved, monomials, tuple(work.inner), tuple(dict.fromkeys(work.leaves)))


def _is_of(term: Term, dtype: str | None) -> bool:
    return isinstance(term.type, AccessType) and term.access.size > 0 and (dtype is None or term.access.dtype == dtype)
