"""The cheapest way to compute a normal form: like terms collected, common operands factored out, products in order.

Two monomials with a common operand F are F a + F b = F (a + b), once both use the same index names. Of the remaining
terms, constants are added once, and computed operands where that is cheaper. If an index of F stays in one monomial but
is summed over in the other, the first monomial is multiplied by an identity matrix: x + x W = x (I + W). If F has
windows in both, those of the smaller one are part of the larger ones, and its weights are padded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from glenside.algebra.contraction_order import Product, best_order, emitted
from glenside.algebra.equations import ADJOINT, COMMUTE, COMPOSE, DEPTH, DISTRIBUTE, IDENTITY, of_form
from glenside.algebra.indices import Index, Operand, arranged, size_of
from glenside.algebra.monomials import Monomial, NormalForm
from glenside.algebra.row_operators import Affine, Relation, RowOperator, Selected, agreement, composed, renamed
from glenside.builder.layout import rearrange, split_at
from glenside.builder.pointwise import add
from glenside.ir.term import Term, build, postorder
from glenside.targets.base import ProductPrices


@dataclass(frozen=True, slots=True)
class Computed:
    """A term that computes a form, its cost, and the names of the equations that it took."""

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
    _equations: dict[Term, tuple[str, ...]] = field(default_factory=dict)
    _known_products: dict[tuple[Product, tuple[Index, ...]], tuple[Operand, float] | None] = field(default_factory=dict)

    def best(self, form: NormalForm) -> Computed | None:
        """Returns the cheapest way that is found; None for forms of too many operands."""
        self._costs.clear()
        self._equations.clear()
        self._known_products.clear()
        result, dtype = form.indices, form.term.access.dtype
        products = self._with_one_constant([self._scaled(one, dtype) for one in form.monomials], result)
        while (better := self._factored(products, result, dtype)) is not None:
            products = better
        found = self._sum(products, result)
        if found is None:
            return None
        operand, cost = found
        sizes = [index.size for index in result]
        term = rearrange(arranged(operand, result), sizes, range(len(sizes)), form.term.access.dims)
        of_terms = (self._equations.get(each, ()) for each in postorder(term, without={*form.leaves}))
        names = dict.fromkeys((*of_form(form), *chain.from_iterable(of_terms)))
        return Computed(split_at(term, form.term.access.split), cost, tuple(names))

    def _with_one_constant(self, products: list[Product], result: Sequence[Index]) -> list[Product]:
        """Returns the products with the sum of those of constants as one operand."""
        constants = [one for one in products if self._known(one)]
        found = self._sum(constants, result) if 1 < len(constants) < len(products) else None
        return products if found is None else [*(one for one in products if not self._known(one)), Product((found[0],))]

    def _scaled(self, one: Monomial, dtype: str) -> Product:
        """Returns a monomial with its scale as an operand."""
        if one.scale == 1 and one.operands:
            return Product(one.operands, one.rows)
        return Product((*one.operands, Operand(build("full", (), str(one.scale), dtype), ())), one.rows)

    def _known(self, one: Product) -> bool:
        selections = (row.indices for row in one.rows if isinstance(row, Selected))
        return all(map(self.constant, (*(own.term for own in one.operands), *selections)))

    def _product(self, one: Product, result: Sequence[Index]) -> tuple[Operand, float] | None:
        """Returns a product of operands in the best order, with the indices of the result that they have."""
        have = one.indices
        own = tuple(index for index in result if index in have)
        if (one, own) not in self._known_products:
            self._known_products[one, own] = self._ordered(one, own)
        return self._known_products[one, own]

    def _ordered(self, one: Product, own: Sequence[Index]) -> tuple[Operand, float] | None:
        joint = _with_joint_windows(one, own)
        orders = [best_order(each, own, self.constant, self.prices) for each in (one, *joint)]
        found = min((each for each in orders if each is not None), key=lambda each: each.cost, default=None)
        if found is None:
            return None
        operand = emitted(found.plan)
        if joint and found is orders[1]:
            self._equations[operand.term] = (COMPOSE, ADJOINT)
        return operand, found.cost + sum(self._costs.get(own.term, 0.0) for own in one.operands)

    def _sum(self, products: Sequence[Product], result: Sequence[Index]) -> tuple[Operand, float] | None:
        """Returns a sum of products, constants first, with the indices of the result that any has."""
        made = []
        for one in products:
            product = self._product(one, result)
            if product is None:
                return None
            made.append((product, self._known(one)))
        made.sort(key=lambda each: not each[1])
        indices = [index for index in result if any(index in one.indices for (one, _), _ in made)]
        (total, cost), known = made[0]
        for (operand, more), constant in made[1:]:
            term = add(arranged(total, indices), arranged(operand, indices))
            total, known = Operand(term, tuple((index,) for index in indices)), known and constant
            size = size_of(indices)
            cost += more + (0.0 if known else self.prices.elementwise(2 * size, size))
        return total, cost

    def _factored(self, products: Sequence[Product], result: Sequence[Index], dtype: str) -> list[Product] | None:
        """Factors the operand out of the two products for which that saves most; None if it saves nothing."""
        best, most = None, 0.0
        for i, first in enumerate(products):
            for j in range(i + 1, len(products)):
                apart = self._sum([first, products[j]], result)
                if apart is None:
                    continue
                both = (first, products[j]), (products[j], first)
                for joined in chain.from_iterable(self._joined(a, b, result, dtype) for a, b in both):
                    together = self._product(joined, result)
                    if together is not None and apart[1] - together[1] > most:
                        most = apart[1] - together[1]
                        best = [joined, *(one for k, one in enumerate(products) if k not in (i, j))]
        return best

    def _joined(self, first: Product, second: Product, result: Sequence[Index], dtype: str) -> Iterator[Product]:
        """Yields products that are the sum of two, one for each set of operands that is factored out."""
        inner = {*second.indices, *(row.source for row in second.rows)}.difference(result)
        second = _renamed(second, {index: Index(index.size) for index in inner})  # both may have the same indices
        seen = set()
        for i, one in enumerate(first.operands):
            for j, other in enumerate(second.operands):
                if one.term is not other.term or not one.axes:
                    continue
                common, names = [(i, j)], _matched(one, other, {})
                if names is None:
                    continue
                for a, b in self._others(first, second, i, j):  # all that agree with this one
                    more = _matched(first.operands[a], second.operands[b], names)
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

    def _others(self, first: Product, second: Product, i: int, j: int) -> Iterator[tuple[int, int]]:
        for a, one in enumerate(first.operands):
            for b, other in enumerate(second.operands):
                if a != i and b != j and one.term is other.term and not self.constant(one.term):
                    yield a, b

    def _with_sum(
        self,
        first: Product,
        second: Product,
        common: Sequence[tuple[int, int]],
        names: Mapping[Index, Index],
        result: Sequence[Index],
        dtype: str,
    ) -> Product | None:
        """Returns the common operands, times the sum of the remaining factors of both products."""
        rows = _common_rows(first, second, names, result)
        if rows is None:
            return None
        shared_rows, left_rows, right_rows, names, relations = rows
        left = [one for k, one in enumerate(first.operands) if k not in {i for i, _ in common}]
        right = [one for k, one in enumerate(second.operands) if k not in {j for _, j in common}]
        shared = [first.operands[i] for i, _ in common]
        of_right = _renamed(Product(tuple(right), right_rows), names)
        extra = [relation.operand(dtype) for relation in relations]
        # An index of the result keeps its name: if an operand names it otherwise, an identity matrix connects both
        # names.
        for index in result:
            name = names.get(index, index)
            if name is not index:
                if name in result:
                    return None
                extra.append(Relation(name, index, 1, 0).operand(dtype))
        if any(ours in result and theirs not in result for theirs, ours in names.items()):
            return None  # the products exchanged have it the other way round
        one, two = Product(tuple(left), left_rows), Product((*of_right.operands, *extra), of_right.rows)
        if (one.rows and not one.operands) or (two.rows and not two.operands):
            return None
        one, two = (each if each.operands else Product((_one(dtype),)) for each in (one, two))
        kept = dict.fromkeys([*result, *(index for each in shared for index in each.indices)])
        kept |= dict.fromkeys(index for row in shared_rows for index in row.targets)
        found = self._sum([one, two], list(kept))
        if found is None:
            return None
        operand, cost = found
        whole = any(one.other is not None and one.other.size == one.index.size for one in relations)
        self._equations[operand.term] = (
            *(DISTRIBUTE, COMMUTE),
            *((DEPTH,) if relations else ()),
            *((IDENTITY,) if whole or len(extra) > len(relations) else ()),
        )
        self._costs[operand.term] = 0.0 if self._known(one) and self._known(two) else cost
        return Product((*shared, operand), shared_rows)


def _with_joint_windows(one: Product, result: Sequence[Index]) -> list[Product]:
    """Returns the product with windows of windows as larger windows, if it has any: their weights are multiplied."""
    rows, extra = list(one.rows), []
    dtype = one.operands[0].term.access.dtype
    for second in one.rows:
        for k, first in enumerate(rows):
            if isinstance(first, Affine) and isinstance(second, Affine) and second.source in first.targets:
                joint = composed(first, second, result, dtype)
                if joint is not None and not any(second.source in own.indices for own in one.operands):
                    rows[k] = joint[0]
                    rows.remove(second)
                    extra.append(joint[1])
    return [Product((*one.operands, *extra), tuple(rows))] if extra else []


_Rows = tuple[RowOperator, ...]


def _common_rows(
    first: Product, second: Product, names: Mapping[Index, Index], result: Sequence[Index]
) -> tuple[_Rows, _Rows, _Rows, dict[Index, Index], list[Relation]] | None:
    """Returns the row operators of the common operands, those that are left of both products, names and relations.

    None if the common operands have row operators that do not agree.
    """
    names = dict(names)
    common = set(names.values())
    shared = tuple(row for row in first.rows if row.source in common)
    if any(index in common for row in shared for index in row.targets):
        return None  # a row operator between common operands
    by_source = {names[row.source]: row for row in second.rows if row.source in names}
    theirs = {ours: index for index, ours in names.items()}
    relations: list[Relation] = []
    for row in shared:
        other = by_source.pop(row.source, None)
        if other is None:  # the second has the source itself as an index
            index = theirs[row.source]
            other = Affine(index, ((index, 1),), 0, (0, index.size))
            if index in result:
                del names[index]
        agreed = agreement(row, renamed(other, names), result)
        if agreed is None:
            return None
        for index, name in agreed[0].items():
            if names.setdefault(index, name) is not name:
                return None
        relations += agreed[1]
    if by_source:
        return None
    left = tuple(row for row in first.rows if row not in shared)
    right = tuple(row for row in second.rows if row.source not in theirs.values())
    return shared, left, right, names, relations


def _renamed(one: Product, names: Mapping[Index, Index]) -> Product:
    operands = tuple(
        replace(own, axes=tuple(tuple(names.get(index, index) for index in axis) for axis in own.axes))
        for own in one.operands
    )
    return Product(operands, tuple(renamed(row, names) for row in one.rows))


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
