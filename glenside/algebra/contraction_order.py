"""Finds the cheapest order of pairwise contractions of operands, by dynamic programming over their subsets.

Contractions of constants cost nothing, since they are computed once; their results are read at run time, and these
bytes count. Row operators are applied to a subset of operands that has their sources. There are 2^n subsets of n
operands and groups of row operators, so only forms of few operands are ordered exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, prod

from glenside.algebra.indices import Index, Operand, arranged
from glenside.algebra.row_operators import Affine, RowOperator, Selected, applied
from glenside.builder.layout import split_at
from glenside.builder.pointwise import multiply
from glenside.ir.term import Term, build
from glenside.targets.base import ProductPrices

MAX_OPERANDS = 9
"""Maximum operands and groups of row operators of a form that is ordered: their sets are enumerated."""

MAX_TABLE = 1 << 20
"""Maximum elements of a table of products that is computed ahead and of which a run reads some rows, such as embeddings
times weights: its bytes cost memory, and no time that prices know."""


@dataclass(frozen=True, slots=True)
class Product:
    """The sum, over all indices that the result lacks, of the product of operands and row operators."""

    operands: tuple[Operand, ...]
    rows: tuple[RowOperator, ...] = ()

    @property
    def indices(self) -> frozenset[Index]:
        """All indices."""
        own = {index for one in self.operands for index in one.indices}
        return frozenset(own.union(*(row.targets for row in self.rows)))


@dataclass(frozen=True, slots=True)
class Leaf:
    """One operand, summed over the indices that nothing else has."""

    operand: Operand
    private: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Applied:
    """Row operators applied to a plan, summed over the indices that nothing else has."""

    plan: Plan
    rows: tuple[RowOperator, ...]
    private: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """The contraction of two plans.

    groups       indices of both plans and of the result
    left, right  indices of one plan only
    summed       indices of both plans that the result does not have
    weighted     True if a product unit does not compute it: each element is a weighted sum of a few chosen elements,
                 or a product of two constants
    """

    first: Plan
    second: Plan
    groups: tuple[Index, ...]
    left: tuple[Index, ...]
    right: tuple[Index, ...]
    summed: tuple[Index, ...]
    weighted: bool

    @property
    def is_product(self) -> bool:
        """True for what a product unit computes, outer products included."""
        return bool(self.summed or (self.left and self.right)) and not self.weighted


Plan = Leaf | Applied | Pair


@dataclass(frozen=True, slots=True)
class Ordered:
    """A plan with its cost, and the number of elements that are stored for its result."""

    plan: Plan
    cost: float
    stored: int


@dataclass
class _Order:
    product: Product
    result: frozenset[Index]
    constant: Callable[[Term], bool]
    prices: ProductPrices
    _sizes: dict[tuple[Index, ...], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.groups = _grouped(self.product)
        self.items = [frozenset(one.indices) for one in self.product.operands]
        self.items += (frozenset(i for row in group for i in (row.source, *row.targets)) for group in self.groups)
        selected = [row for row in self.product.rows if isinstance(row, Selected)]
        self.tables = {row.source for row in selected if not self.constant(row.indices)}
        self.chosen = {i for row in selected for i in row.targets}

    def _size(self, indices: Sequence[Index]) -> int:
        """Returns the number of elements of an array with these indices, at the sizes of the prices."""
        own = tuple(indices)
        if own not in self._sizes:
            self._sizes[own] = prod(map(self.prices.count, (index.size for index in own)))
        return self._sizes[own]

    def best(self) -> Ordered | None:
        operands, groups, items = self.product.operands, self.groups, self.items
        count, first_group = len(items), len(operands)
        if not operands or count > MAX_OPERANDS:
            return None
        everything = (1 << count) - 1
        below = [frozenset[Index]()] * (everything + 1)
        for subset in range(1, everything + 1):
            below[subset] = below[subset & (subset - 1)] | items[(subset & -subset).bit_length() - 1]
        kept = [self._kept(subset, self.result | below[everything ^ subset]) for subset in range(everything + 1)]
        constant = [*(self.constant(one.term) for one in operands), *map(self._is_constant, groups)]
        known = [all(constant[i] for i in range(count) if subset >> i & 1) for subset in range(everything + 1)]
        found: list[Ordered | None] = [None] * (everything + 1)
        for subset in range(1, everything + 1):
            if subset & (subset - 1) == 0:
                number = subset.bit_length() - 1
                if number < first_group:
                    found[subset] = self._leaf(operands[number], kept[subset], known[subset])
                continue
            least, best = inf, None
            low = subset & -subset
            half = (subset - 1) & subset
            is_table = (
                known[subset] and not self.tables.isdisjoint(kept[subset]) and self._size(kept[subset]) > MAX_TABLE
            )
            while half and not (known[subset] and best is not None):  # any order of constants
                rest = subset ^ half
                a, b = found[half], found[rest]
                group = rest.bit_length() - 1
                made: tuple[Plan, float, int] | None = None
                if a is not None and rest & (rest - 1) == 0 and group >= first_group:
                    made = self._applied(a, groups[group - first_group], kept[half], kept[subset], known[subset])
                elif a and b and not is_table and half & low and a.cost + b.cost < least:  # each pair once
                    turned = known[half] and not known[rest]  # constant operands stay in the array, and come second
                    one, other = (rest, half) if turned else (half, rest)
                    first, second = (b, a) if turned else (a, b)
                    pair = self._pair(first.plan, second.plan, kept[one], kept[other], kept[subset], known[subset])
                    cost = 0.0 if known[subset] else self._cost(pair, first.stored + second.stored)
                    made = pair, a.cost + b.cost + cost, self._size(kept[subset])
                if made is not None and made[1] < least:
                    best, least = Ordered(*made), made[1]
                half = (half - 1) & subset
            found[subset] = best
        return found[everything]

    def _is_constant(self, rows: Sequence[RowOperator]) -> bool:
        return all(isinstance(row, Affine) or self.constant(row.indices) for row in rows)

    def _kept(self, subset: int, needed: frozenset[Index]) -> tuple[Index, ...]:
        """Returns the indices of a set that are needed outside of it, in order."""
        own: dict[Index, None] = {}
        for number, one in enumerate(self.product.operands):
            if subset >> number & 1:
                own.update(dict.fromkeys(one.indices))
        for number, group in enumerate(self.groups, len(self.product.operands)):
            if subset >> number & 1:
                own.update(dict.fromkeys(index for row in group for index in row.targets))
        return tuple(index for index in own if index in needed)

    def _leaf(self, one: Operand, kept: Sequence[Index], known: bool) -> Ordered:
        private = tuple(index for index in one.indices if index not in kept)
        cost = self.prices.elementwise(self._size(one.indices), self._size(kept)) if private and not known else 0.0
        return Ordered(Leaf(one, private), cost, self._size(kept))

    def _applied(
        self, a: Ordered, rows: Sequence[RowOperator], of_a: Sequence[Index], kept: Sequence[Index], known: bool
    ) -> tuple[Plan, float, int] | None:
        """Returns row operators applied to a plan; None if it lacks a source, or has a target already."""
        sources, targets = {row.source for row in rows}, [index for row in rows for index in row.targets]
        if not sources <= {*of_a} or any(index in of_a for index in targets) or any(index in kept for index in sources):
            return None
        private = tuple(index for index in (*of_a, *targets) if index not in sources and index not in kept)
        size, cost = self._size(kept), a.cost
        if not known and (private or any(isinstance(row, Selected) for row in rows)):
            cost += self.prices.elementwise(size * self._size(private), size)
        views = not private and all(isinstance(row, Affine) for row in rows)
        return Applied(a.plan, tuple(rows), private), cost, min(a.stored, size) if views else size

    def _pair(
        self, a: Plan, b: Plan, of_a: Sequence[Index], of_b: Sequence[Index], kept: Sequence[Index], known: bool
    ) -> Pair:
        both = {*of_a} & {*of_b}
        summed = tuple(i for i in of_a if i in both and i not in kept)
        right = tuple(i for i in of_b if i not in both)
        return Pair(
            a,
            b,
            tuple(i for i in of_a if i in both and i in kept),
            tuple(i for i in of_a if i not in both),
            right,
            summed,
            (known and not summed) or (bool(summed) and not right and all(index in self.chosen for index in summed)),
        )

    def _cost(self, pair: Pair, read: int) -> float:
        groups, left, right, summed = map(self._size, (pair.groups, pair.left, pair.right, pair.summed))
        if pair.is_product:
            return self.prices.product(groups, left, summed, right, read)
        return self.prices.elementwise(groups * summed * (left + right), groups * left * right)


def _grouped(product: Product) -> list[tuple[RowOperator, ...]]:
    """Returns row operators that are applied together: those of the same operands, without those between them."""
    found: dict[object, list[RowOperator]] = {}
    for row in product.rows:
        if isinstance(row, Selected) or any(row.source in other.targets for other in product.rows):
            found[row] = [row]
        else:
            of = frozenset(i for i, one in enumerate(product.operands) if row.source in one.indices)
            found.setdefault(of, []).append(row)
    return [tuple(rows) for rows in found.values()]


def best_order(
    product: Product, result: Sequence[Index], constant: Callable[[Term], bool], prices: ProductPrices
) -> Ordered | None:
    """Returns the cheapest order of contractions; None for too many operands.

    constant  True for a term whose elements are known
    """
    return _Order(product, frozenset(result), constant, prices).best()


def emitted(plan: Plan, inside: Sequence[Index] = ()) -> Operand:
    """Returns the term that computes a plan, with one axis for each index that is left.

    inside  the indices that what reads it sums over
    """
    if isinstance(plan, Leaf):
        one = plan.operand
        kept = [index for index in one.indices if index not in plan.private]
        return _summed(Operand(arranged(one, one.indices), tuple((i,) for i in one.indices)), kept, plan.private)
    if isinstance(plan, Applied):
        one = applied(emitted(plan.plan), plan.rows, plan.private or inside)
        return _summed(one, [index for index in one.indices if index not in plan.private], plan.private)
    indices = (*plan.groups, *plan.left, *plan.right)
    axes = tuple((index,) for index in indices)
    a, b = emitted(plan.first, plan.summed), emitted(plan.second, plan.summed)
    if not plan.summed and not plan.is_product:
        return Operand(multiply(arranged(a, indices), arranged(b, indices)), axes)
    shared, left = len(plan.groups), _as_in(plan.left, a)
    summed = _as_in(plan.summed, a)
    if plan.weighted:
        everything = (*plan.groups, *left, *summed)
        found = Operand(multiply(arranged(a, everything), arranged(b, everything)), tuple((i,) for i in everything))
        return _summed(found, (*plan.groups, *left), summed)
    rows = split_at(arranged(a, [*plan.groups, *left, *summed]), shared + len(left))
    columns = split_at(arranged(b, [*plan.groups, *plan.right, *summed]), shared + len(plan.right))
    indices = (*plan.groups, *left, *plan.right)
    product = build("compute", "dot-product", build("access-product", rows, columns, shared))
    return Operand(product, tuple((index,) for index in indices))


def _as_in(indices: Sequence[Index], one: Operand) -> tuple[Index, ...]:
    """Returns indices in the order in which an array has them."""
    return tuple(sorted(indices, key=one.indices.index))


def _summed(one: Operand, kept: Sequence[Index], private: Sequence[Index]) -> Operand:
    if not private:
        return one
    term = split_at(arranged(one, [*kept, *private]), len(kept))
    return Operand(build("compute", "reduce-sum", term), tuple((index,) for index in kept))
