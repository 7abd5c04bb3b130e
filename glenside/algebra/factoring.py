"""The cheapest way to compute a normal form: like terms collected, common operands factored out, products in order.

Two monomials with a common operand F are F a + F b = F (a + b), once both use the same index names. Of the remaining
terms, constants are added once, and computed operands where that is cheaper. If an index of F stays in one monomial but
is summed over in the other, the first monomial is multiplied by an identity matrix: x + x W = x (I + W).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from glenside.algebra.contraction_order import arranged, best_order, emitted
from glenside.algebra.normal_form import Index, Monomial, NormalForm, Operand, size_of
from glenside.builder.layout import pad, rearrange, reshape, slice_axis, split_at
from glenside.builder.pointwise import add
from glenside.ir.program import is_product
from glenside.ir.term import Term, build
from glenside.targets.base import ProductPrices


@dataclass(frozen=True, slots=True)
class Computed:
    """A term that computes a form, its cost, and the equations that it took."""

    term: Term
    cost: float
    equations: tuple[str, ...]


@dataclass
class Factoring:
    """Finds the cheapest way to compute normal forms.

    constant  True for a term whose elements are known
    """

    constant: Callable[[Term], bool]
    prices: ProductPrices
    _costs: dict[Term, float] = field(default_factory=dict)

    def best(self, form: NormalForm) -> Computed | None:
        """Returns the cheapest way that is found; None for forms of too many operands."""
        self._costs.clear()
        result, dtype = form.indices, form.term.access.dtype
        monomials: list[Sequence[Operand]] = [self._scaled(one, dtype) for one in form.monomials]
        equations = []
        if len(monomials) > 1 and any(is_product(each) for each in form.inner):
            equations.append("products distribute over sums")
        if any(len(operands) > 2 for operands in monomials):
            equations.append("products and scales in another order")
        while (better := self._factored(monomials, result, dtype)) is not None:
            monomials = better
            equations.append("a common operand is factored out")
        found = self._sum(monomials, result)
        if found is None:
            return None
        operand, cost = found
        sizes = [index.size for index in result]
        term = rearrange(arranged(operand, result), sizes, range(len(sizes)), form.term.access.dims)
        return Computed(split_at(term, form.term.access.split), cost, tuple(dict.fromkeys(equations)))

    def _scaled(self, one: Monomial, dtype: str) -> tuple[Operand, ...]:
        """Returns the operands of a monomial, its scale as one of them."""
        if one.scale == 1 and one.operands:
            return one.operands
        return (*one.operands, Operand(build("full", (), str(one.scale), dtype), ()))

    def _known(self, operands: Sequence[Operand]) -> bool:
        return all(self.constant(one.term) for one in operands)

    def _product(self, operands: Sequence[Operand], result: Sequence[Index]) -> tuple[Operand, float] | None:
        """Returns a product of operands in the best order, with the indices of the result that they have."""
        own = [index for index in result if any(index in one.indices for one in operands)]
        found = best_order(operands, own, [self.constant(one.term) for one in operands], self.prices)
        if found is None:
            return None
        return emitted(found.plan), found.cost + sum(self._costs.get(one.term, 0.0) for one in operands)

    def _sum(self, monomials: Sequence[Sequence[Operand]], result: Sequence[Index]) -> tuple[Operand, float] | None:
        """Returns a sum of products, constants first, with the indices of the result that any has."""
        made = []
        for operands in monomials:
            product = self._product(operands, result)
            if product is None:
                return None
            made.append((product, self._known(operands)))
        made.sort(key=lambda each: not each[1])
        indices = [index for index in result if any(index in one.indices for (one, _), _ in made)]
        (total, cost), known = made[0]
        for (one, more), constant in made[1:]:
            term = add(arranged(total, indices), arranged(one, indices))
            total, known = Operand(term, tuple((index,) for index in indices)), known and constant
            size = size_of(indices)
            cost += more + (0.0 if known else self.prices.elementwise(2 * size, size))
        return total, cost

    def _factored(
        self, monomials: Sequence[Sequence[Operand]], result: Sequence[Index], dtype: str
    ) -> list[Sequence[Operand]] | None:
        """Factors the operand out of the two monomials for which that saves most; None if it saves nothing."""
        best, most = None, 0.0
        for i, first in enumerate(monomials):
            for j in range(i + 1, len(monomials)):
                apart = self._sum([first, monomials[j]], result)
                if apart is None:
                    continue
                both = (first, monomials[j]), (monomials[j], first)
                for joined in chain.from_iterable(self._joined(a, b, result, dtype) for a, b in both):
                    together = self._product(joined, result)
                    if together is not None and apart[1] - together[1] > most:
                        most = apart[1] - together[1]
                        best = [joined, *(one for k, one in enumerate(monomials) if k not in (i, j))]
        return best

    def _joined(
        self, first: Sequence[Operand], second: Sequence[Operand], result: Sequence[Index], dtype: str
    ) -> Iterator[Sequence[Operand]]:
        """Yields products that are the sum of two monomials, one for each set of operands that is factored out."""
        own = {index: Index(index.size) for one in second for index in one.indices if index not in result}
        second = [_renamed(one, own) for one in second]  # distribution has left both with some of the same indices
        seen = set()
        for i, one in enumerate(first):
            for j, other in enumerate(second):
                if one.term is not other.term or not one.axes:
                    continue
                common, names = [(i, j)], _matched(one, other, {})
                if names is None:
                    continue
                for a, b in self._others(first, second, i, j):  # all that agree with this one
                    more = _matched(first[a], second[b], names)
                    if more is not None and all(a != x and b != y for x, y in common):
                        common.append((a, b))
                        names = more
                key = frozenset(common)
                if key in seen:
                    continue
                seen.add(key)
                found = self._with_sum(first, second, common, names, result, dtype)
                if found is not None:
                    yield found

    def _others(self, first: Sequence[Operand], second: Sequence[Operand], i: int, j: int) -> Iterator[tuple[int, int]]:
        for a, one in enumerate(first):
            for b, other in enumerate(second):
                if a != i and b != j and one.term is other.term and not self.constant(one.term):
                    yield a, b

    def _with_sum(
        self,
        first: Sequence[Operand],
        second: Sequence[Operand],
        common: Sequence[tuple[int, int]],
        names: Mapping[Index, Index],
        result: Sequence[Index],
        dtype: str,
    ) -> Sequence[Operand] | None:
        """Returns the common operands, times the sum of the remaining factors of both monomials."""
        left = [one for k, one in enumerate(first) if k not in {i for i, _ in common}]
        right = [one for k, one in enumerate(second) if k not in {j for _, j in common}]
        shared = [first[i] for i, _ in common]
        renamed = [_renamed(one, names) for one in right]
        # An index of the result keeps its name: if an operand names it otherwise, an identity matrix connects both
        # names.
        for index in result:
            name = names.get(index, index)
            if name is not index:
                if name in result:
                    return None
                renamed.append(_identity(index, name, dtype))
        if any(ours in result and theirs not in result for theirs, ours in names.items()):
            return None  # the monomials exchanged have it the other way round
        indices = list(dict.fromkeys([*result, *(index for one in shared for index in one.indices)]))
        one = self._sum([left or [_one(dtype)], renamed or [_one(dtype)]], indices)
        if one is None:
            return None
        operand, cost = one
        known = self._known([*left, *renamed])
        self._costs[operand.term] = 0.0 if known else cost
        return [*shared, operand]


def _identity(row: Index, column: Index, dtype: str) -> Operand:
    """Returns the identity matrix: ones that are n + 1 elements apart."""
    n = row.size
    rows = pad(build("full", (n, 1), "1", dtype), [(0, 0), (0, n)])
    return Operand(reshape(slice_axis(reshape(rows, (n * (n + 1),)), 0, 0, n * n), (n, n)), ((row,), (column,)))


def _one(dtype: str) -> Operand:
    return Operand(build("full", (), "1", dtype), ())


def _matched(one: Operand, other: Operand, names: Mapping[Index, Index]) -> Mapping[Index, Index] | None:
    """Maps the index names of `other` to those of `one`, in addition to a known mapping; None if they conflict."""
    found = dict(names)
    for ours, theirs in zip(one.axes, other.axes, strict=True):
        if [index.size for index in ours] != [index.size for index in theirs]:
            return None
        for a, b in zip(ours, theirs, strict=True):
            if found.setdefault(b, a) is not a:
                return None
    return found if len(set(found.values())) == len(found) else None


def _renamed(one: Operand, names: Mapping[Index, Index]) -> Operand:
    return replace(one, axes=tuple(tuple(names.get(index, index) for index in axis) for axis in one.axes))
