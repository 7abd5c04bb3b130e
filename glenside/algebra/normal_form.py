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

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from itertools import pairwise

from glenside.algebra.indices import Axis, Index, Operand, size_of
from glenside.algebra.monomials import Monomial, NormalForm
from glenside.algebra.row_operators import Affine, RowOperator, Selected, affine, renamed, through, without_paddings
from glenside.algebra.splits import Opaque, Splits
from glenside.builder.layout import split_at
from glenside.builder.pointwise import divide, filled
from glenside.ir.dtypes import FLOATS
from glenside.ir.open_integer import OpenInteger, OpenText
from glenside.ir.term import Term, build
from glenside.ir.types import AccessType, Dims

MAX_MONOMIALS = 8
"""Maximum monomials of a form; sums of more terms stay operands."""


MAX_FACTORS = 8
"""Maximum operands of a monomial; a product of more is one of an operand that is a product."""

MAX_DEPTH = 100
"""Maximum terms between the root of a form and an operand: expansion is recursive."""


class _Cut(Exception):
    """A concatenation along an index that is summed over: the sum is that of both parts."""

    def __init__(self, index: Index, at: int) -> None:
        self.index, self.at = index, at


@dataclass
class _Expansion(Splits):
    """Expands one term.

    expands  False for terms that stay operands
    result   the axes of the term itself
    inner    the expanded terms
    leaves   the terms below that are not expanded
    whole    indices that are summed over and not cut
    made     concatenations of some parts of those of the term
    cuts_all True: sums over concatenations of operands alone are cut, too
    """

    expands: Callable[[Term], bool] = lambda _: False
    result: tuple[Axis, ...] = ()
    inner: list[Term] = field(default_factory=list)
    leaves: list[Term] = field(default_factory=list)
    whole: set[Index] = field(default_factory=set)
    made: set[Term] = field(default_factory=set)
    cuts_all: bool = False
    depth: int = 0

    def pull(self, term: Term, axes: Sequence[Axis]) -> list[Monomial]:
        """Returns the monomials of a term whose axes have these indices."""
        before, leaves = len(self.inner), len(self.leaves)
        self.depth += 1
        try:
            return self._expanded(term, tuple(axes))
        except Opaque:
            del self.inner[before:], self.leaves[leaves:]
            self.leaves.append(term)
            return [_operand(term, axes)]
        finally:
            self.depth -= 1

    def _expanded(self, term: Term, axes: tuple[Axis, ...]) -> list[Monomial]:
        expand = _EXPAND.get(term.operator.name)
        if expand is None or self.depth > MAX_DEPTH:
            raise Opaque
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
            raise Opaque
        return self._moved(x, axes, axis, before, (before, before + x.access.dims[axis]))

    def _concatenated(self, term: Term, axes: tuple[Axis, ...]) -> list[Monomial]:
        """Cuts an axis that is summed over: [a b] [A; B] = a A + b B, where A and B are slices of what a and b meet.

        If only elements of some parts are chosen, those are expanded.
        """
        (axis,) = term.attributes
        assert isinstance(axis, int)
        own = tuple(self.resolved(axes[axis]))
        row = self._at(own)
        if row.chosen[0] > row.chosen[1]:
            raise Opaque
        flat: list[Term] = []
        start = at = 0
        for x in _flat(term, axis):
            size = x.access.dims[axis]
            if row.chosen[0] < at + size and at <= row.chosen[1]:
                start = start if flat else at
                flat.append(x)
            at += size
        some = reduce(lambda a, b: build("access-concatenate", a, b, axis), flat)
        if some.access.dims[axis] < term.access.dims[axis]:
            self.made.update([some] if len(flat) > 1 else [])
            return self._moved(some, axes, axis, start, (start, start + some.access.dims[axis]))
        ((index, c),) = row.terms if len(row.terms) == 1 else ((Index(0), 0),)
        if (
            c != 1
            or not row.is_total
            or index in self.rows
            or index in self.whole
            or index in (i for of in self.result for i in self.resolved(of))
        ):
            raise Opaque
        raise _Cut(index, self._first_part(flat, axis, axes) - row.offset)

    def _first_part(self, flat: Sequence[Term], axis: int, axes: tuple[Axis, ...]) -> int:
        """Returns where to cut a concatenation: before or after the first part that does not stay an operand.

        Raises `Opaque` if all parts do.
        """
        at = 0
        for k, x in enumerate(flat):
            size = x.access.dims[axis]
            if self.cuts_all and k + 1 < len(flat):
                return size
            if not self._stays(x, (*axes[:axis], (Index(size),), *axes[axis + 1 :])):
                return at or size
            at += size
        raise Opaque

    def _stays(self, x: Term, axes: tuple[Axis, ...]) -> bool:
        """True if a term is not expanded."""
        apart = replace(self, inner=[], leaves=[], splits=dict(self.splits), rows=dict(self.rows))
        try:
            pulled = apart.pull(x, axes)
        except _Cut:
            return False
        return len(pulled) == 1 and any(own.term is x for own in pulled[0].operands)

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

    def _at(self, own: Axis) -> Affine:
        """Returns the row operator of the element of an axis, from an array of unknown size."""
        row = self.rows.get(own[0]) if len(own) == 1 else None
        if isinstance(row, Affine):
            known = self.resolved_row(row)
            assert isinstance(known, Affine)
            return known
        return self._combined(Affine(Index(0), affine(own), 0, (-(1 << 62), 1 << 62)))

    def _combined(self, row: Affine) -> Affine:
        """Puts strides that replace no element by 0 in place of the targets that are their sources."""
        terms: list[tuple[Index, int]] = []
        offset = row.offset
        for index, c in row.terms:
            within = self.rows.get(index)
            if isinstance(within, Affine) and within.is_total and len(within.terms) <= 1:
                terms += ((own, c * factor) for own, factor in within.terms)
                offset += c * within.offset
            else:
                terms.append((index, c))
        if len({index for index, _ in terms}) < len(terms):
            raise Opaque
        return replace(row, terms=tuple(terms), offset=offset)

    def _moved(self, x: Term, axes: Sequence[Axis], axis: int, shift: int, valid: tuple[int, int]) -> list[Monomial]:
        """Returns the monomials of x moved along an axis by `shift`, with 0 for what is not `valid` there."""
        size = x.access.dims[axis]
        own = tuple(self.resolved(axes[axis]))
        outer = self._at(own)
        replaced = frozenset(own) if len(own) == 1 and isinstance(self.rows.get(own[0]), Affine) else frozenset()
        row = through(outer, shift, size, valid)
        if row.chosen[0] > row.chosen[1]:
            raise Opaque
        found = self._with_rows(x, (*axes[:axis], (row.source,), *axes[axis + 1 :]), [row])
        return [replace(one, through=one.through | replaced) for one in found]

    def _with_rows(self, x: Term, axes: Sequence[Axis], rows: Sequence[RowOperator]) -> list[Monomial]:
        """Returns the monomials of x with row operators for some of its indices."""
        self.rows.update((row.source, row) for row in rows)
        found = self.pull(x, axes)
        split = [self.rows[index] for row in rows for index in self.resolved((row.source,))]
        return [self._with_own(one, split, x.access.dtype) for one in found]

    def _with_own(self, one: Monomial, rows: Sequence[RowOperator], dtype: str) -> Monomial:
        for row in rows:
            has = any(row.source in self.resolved(operand.indices) for operand in one.operands)
            has = has or any(row.source in self.targets(own) for own in one.rows)
            if not has and row.source not in one.through and isinstance(row, Affine) and not row.is_total:
                ones = Operand(build("full", (row.source.size,), "1", dtype), ((row.source,),))
                one, has = replace(one, operands=(*one.operands, ones)), True
            if has:
                one = replace(one, rows=tuple(dict.fromkeys((*one.rows, row))))
        return one

    def final(self, one: Monomial) -> Monomial:
        """Returns the monomial with all indices as they are split at the end."""
        one = self._resolved_monomial(one)
        operands, rows = list(one.operands), list(one.rows)
        names = {row.source: row.targets[0] for row in rows if isinstance(row, Affine) and row.is_identity}
        for source in names:
            while names[source] in names:
                names[source] = names[names[source]]
        operands = [
            replace(own, axes=tuple(tuple(names.get(i, i) for i in axis) for axis in own.axes)) for own in operands
        ]
        rows = [renamed(row, names) for row in rows if row.source not in names]
        rows = without_paddings(rows, operands, {index for axis in self.result for index in self.resolved(axis)})
        have = {index for own in operands for index in own.indices}.union(*(row.targets for row in rows))
        return Monomial(one.scale, tuple(operands), tuple(dict.fromkeys(row for row in rows if row.source in have)))

    def _resolved_monomial(self, one: Monomial) -> Monomial:
        """Returns the monomial with all indices as they are split by now."""
        operands = [Operand(own.term, tuple(tuple(self.resolved(axis)) for axis in own.axes)) for own in one.operands]
        return replace(one, operands=tuple(operands), rows=tuple(map(self.resolved_row, one.rows)))

    def _computed(self, term: Term, axes: tuple[Axis, ...]) -> list[Monomial]:
        if not self.expands(term):
            raise Opaque
        self.inner.append(term)
        (x,), kind = term.children, str(term.attributes[0])
        if kind == "negative":
            return [one.scaled(-1) for one in self.pull(x, axes)]
        if kind in ("reduce-sum", "reduce-mean"):
            count = x.access.item.product() if kind == "reduce-mean" else 1
            return [one.scaled(Fraction(1, _fixed(count))) for one in self._contracted(kind, x, axes)]
        if x.operator.name != "access-product":
            raise Opaque
        a, b = x.children
        if kind == "dot-product":
            found = self._contracted(kind, x, axes)
        else:
            left, right = _axes_of_pair(x, axes[: x.access.split], axes[x.access.split :])
            if kind in ("elementwise-add", "subtract"):
                sign = -1 if kind == "subtract" else 1
                found = self.pull(a, left) + [one.scaled(sign) for one in self.pull(b, right)]
            elif kind == "elementwise-mul":
                found = self._products(a, b, left, right)
            elif kind == "elementwise-div":
                inverse = self._reciprocal(b, right)
                found = [one.times(inverse) for one in self.pull(a, left)]
            else:
                raise Opaque
        if len(found) > MAX_MONOMIALS or any(len(one.operands) > MAX_FACTORS for one in found):
            raise Opaque
        return found

    def _contracted(
        self, kind: str, x: Term, axes: tuple[Axis, ...], known: tuple[Axis, ...] | None = None
    ) -> list[Monomial]:
        """Returns the monomials of a sum over items, cut where a concatenation along one of its axes asks for that.

        Counts an index that is summed over and that no operand has as a factor.

        known  the indices of the items, if some of these must not be cut
        """
        inner, leaves = len(self.inner), len(self.leaves)
        items = x.children[0] if kind == "dot-product" else x
        item = _fresh(items.access.item) if known is None else known
        try:
            if kind == "dot-product":
                a, b = x.children
                found = self._products(a, b, *_axes_of_pair(x, axes, item))
            else:
                found = self.pull(x, (*axes, *item))
        except _Cut as cut:
            del self.inner[inner:], self.leaves[leaves:]
            own = [tuple(self.resolved(axis)) for axis in item]
            if (cut.index,) not in own:
                if not any(cut.index in axis for axis in own):
                    raise
                self.whole.add(cut.index)
                return self._contracted(kind, x, axes, item)
            at, ends = own.index((cut.index,)), (0, cut.at, cut.index.size)
            return [one for lo, hi in pairwise(ends) for one in self._contracted(kind, _of_items(x, at, lo, hi), axes)]
        indices = [index for axis in item for index in self.resolved(axis)]
        return [one.scaled(_fixed(size_of(i for i in indices if not self._has(one, i)))) for one in found]

    def _products(self, a: Term, b: Term, left: Sequence[Axis], right: Sequence[Axis]) -> list[Monomial]:
        factors = self.pull(a, left), self.pull(b, right)
        return [one.times(other) for one in factors[0] for other in factors[1]]

    def _has(self, one: Monomial, index: Index) -> bool:
        return any(index in self.resolved(operand.indices) for operand in one.operands) or any(
            index is row.source or index in self.targets(row) for row in one.rows
        )

    def _reciprocal(self, term: Term, axes: tuple[Axis, ...]) -> Monomial:
        """Returns the reciprocal of one operand, which is computed where it has fewest elements."""
        apart = replace(self, inner=[], expands=lambda _: False)
        found = apart.pull(term, axes)
        one = found[0] if len(found) == 1 else None
        if one is None or one.rows:  # a concatenation is a sum of its parts
            raise Opaque
        if not one.operands and one.scale:
            return Monomial(1 / one.scale)
        if len(one.operands) == 1 and one.scale == 1:
            (operand,) = one.operands
            whole = split_at(operand.term, 0)
            return Monomial(Fraction(1), (Operand(divide(filled(whole, "1"), whole), operand.axes),))
        raise Opaque


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


def _axes_of_pair(x: Term, shape: Sequence[Axis], item: Sequence[Axis]) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """Returns the axes of both operands of a product, from those of its shape and of one item."""
    (shared,), split = x.attributes, x.children[0].access.split
    assert isinstance(shared, int)
    return (*shape[:split], *item), (*shape[:shared], *shape[split:], *item)


def _of_items(x: Term, axis: int, low: int, high: int) -> Term:
    """Returns what is summed over, or a product, with a slice along an axis of its items."""
    if x.operator.name != "access-product":
        return build("access-slice", x, x.access.split + axis, low, high)
    both = (build("access-slice", each, each.access.split + axis, low, high) for each in x.children)
    return build("access-product", *both, *x.attributes)


def _fixed(count: int) -> int:
    """Returns a count of elements as a factor. Raises Opaque for one that depends on open sizes."""
    if isinstance(count, OpenInteger):
        raise Opaque
    return count


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
    """Returns the number of a `full`; infinities, not-a-number and open sizes are no scales."""
    if isinstance(text, OpenText):
        raise Opaque
    try:
        return Fraction(text)
    except ValueError:
        raise Opaque from None


def _fresh(dims: Sequence[int]) -> tuple[Axis, ...]:
    return tuple(() if size == 1 else (Index(size),) for size in dims)


def normal_form(
    term: Term, expands: Callable[[Term], bool], first: Term | None = None, *, cuts_all: bool = False
) -> NormalForm | None:
    """Returns the normal form of a term of floats; None if it has none, or has axes without elements.

    expands   True for terms below that may be computed otherwise, or not at all
    first     the computation that is expanded in any case: the term, or what it is moved from
    cuts_all  True: sums over concatenations of operands alone are cut, too, as forms are compared
    """
    if not _is_of(term, None) or term.access.dtype not in FLOATS:
        return None
    always = term if first is None else first
    work = _Expansion(expands=lambda each: each is always or (_is_of(each, term.access.dtype) and expands(each)))
    work.cuts_all = cuts_all
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
    leaves = dict.fromkeys(part for leaf in work.leaves for part in _made_of(leaf, work.made))
    return NormalForm(term, resolved, monomials, tuple(dict.fromkeys(work.inner)), tuple(leaves))


def _made_of(leaf: Term, made: Container[Term]) -> Iterable[Term]:
    """Returns the parts of a concatenation that was made, or the term."""
    return _flat(leaf, int(str(leaf.attributes[0]))) if leaf in made else (leaf,)


def _is_of(term: Term, dtype: str | None) -> bool:
    return isinstance(term.type, AccessType) and term.access.size > 0 and (dtype is None or term.access.dtype == dtype)
