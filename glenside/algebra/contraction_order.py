"""Finds the cheapest order of pairwise contractions of operands, by dynamic programming over their subsets.

Contractions of constants cost nothing, since they are computed once; their results are read at run time, and these
bytes count. There are 2^n subsets of n operands, so only forms of few operands are ordered exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from glenside.algebra.normal_form import Index, Operand, size_of
from glenside.builder.layout import broadcast, rearrange, split_at
from glenside.builder.pointwise import multiply
from glenside.ir.term import Term, build
from glenside.targets.base import ProductPrices

MAX_OPERANDS = 9
"""Maximum operands of a form that is ordered: their sets are enumerated."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One operand, summed over the indices that nothing else has."""

    operand: Operand
    private: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """The contraction of two plans.

    groups       indices of both plans and of the result
    left, right  indices of one plan only
    summed       indices of both plans that the result does not have
    """

    first: Plan
    second: Plan
    groups: tuple[Index, ...]
    left: tuple[Index, ...]
    right: tuple[Index, ...]
    summed: tuple[Index, ...]


Plan = Leaf | Pair


@dataclass(frozen=True, slots=True)
class Ordered:
    """A plan with its cost."""

    plan: Plan
    cost: float


def best_order(
    operands: Sequence[Operand], result: Sequence[Index], constant: Sequence[bool], prices: ProductPrices
) -> Ordered | None:
    """Returns the cheapest order of contractions; None for too many operands.

    constant  for each operand, True if its elements are known
    """
    count = len(operands)
    if not 0 < count <= MAX_OPERANDS:
        return None
    everything = (1 << count) - 1
    has = [frozenset(one.indices) for one in operands]
    wanted = frozenset(result)
    below = [frozenset[Index]()] * (everything + 1)
    for subset in range(1, everything + 1):
        low = (subset & -subset).bit_length() - 1
        below[subset] = below[subset & (subset - 1)] | has[low]
    kept = [_kept(operands, subset, wanted | below[everything ^ subset]) for subset in range(everything + 1)]
    known = [all(constant[i] for i in range(count) if subset >> i & 1) for subset in range(everything + 1)]
    found: list[Ordered | None] = [None] * (everything + 1)
    for subset in range(1, everything + 1):
        if subset & (subset - 1) == 0:
            one = operands[subset.bit_length() - 1]
            private = tuple(index for index in one.indices if index not in kept[subset])
            cost = prices.elementwise(size_of(one.indices), size_of(kept[subset])) if private else 0.0
            found[subset] = Ordered(Leaf(one, private), 0.0 if known[subset] else cost)
            continue
        best, least = None, inf
        low = subset & -subset
        half = (subset - 1) & subset
        while half:
            if half & low:  # each pair once
                a, b = found[half], found[subset ^ half]
                assert a is not None
                assert b is not None
                if a.cost + b.cost < least:
                    pair = _pair(a.plan, b.plan, kept[half], kept[subset ^ half], frozenset(kept[subset]))
                    cost = a.cost + b.cost + (0.0 if known[subset] else _cost(pair, prices))
                    if cost < least:
                        first = known[half] and not known[subset ^ half]
                        best = _turned(pair) if first else pair  # constant operands stay in the array, and come second
                        least = cost
            half = (half - 1) & subset
        found[subset] = None if best is None else Ordered(best, least)
        if best is None:
            return None
    return found[everything]


def _kept(operands: Sequence[Operand], subset: int, needed: frozenset[Index]) -> tuple[Index, ...]:
    """Returns the indices of a set of operands that are needed outside of it, in order."""
    own = (index for i, one in enumerate(operands) if subset >> i & 1 for index in one.indices)
    return tuple(index for index in dict.fromkeys(own) if index in needed)


def _pair(a: Plan, b: Plan, of_a: Sequence[Index], of_b: Sequence[Index], kept: frozenset[Index]) -> Pair:
    both = {*of_a} & {*of_b}
    return Pair(
        a,
        b,
        tuple(i for i in of_a if i in both and i in kept),
        tuple(i for i in of_a if i not in both),
        tuple(i for i in of_b if i not in both),
        tuple(i for i in of_a if i in both and i not in kept),
    )


def _turned(pair: Pair) -> Pair:
    return Pair(pair.second, pair.first, pair.groups, pair.right, pair.left, pair.summed)


def _cost(pair: Pair, prices: ProductPrices) -> float:
    groups, left, right, summed = map(size_of, (pair.groups, pair.left, pair.right, pair.summed))
    if pair.summed:
        return prices.product(groups, left, summed, right)
    return prices.elementwise(groups * (left + right), groups * left * right)


def emitted(plan: Plan) -> Operand:
    """Returns the term that computes a plan, with one axis for each index that is left."""
    if isinstance(plan, Leaf):
        one = plan.operand
        kept = [index for index in one.indices if index not in plan.private]
        if not plan.private:
            return Operand(arranged(one, kept), tuple((index,) for index in kept))
        term = split_at(arranged(one, [*kept, *plan.private]), len(kept))
        return Operand(build("compute", "reduce-sum", term), tuple((index,) for index in kept))
    a, b = emitted(plan.first), emitted(plan.second)
    indices = (*plan.groups, *plan.left, *plan.right)
    axes = tuple((index,) for index in indices)
    if not plan.summed:
        return Operand(multiply(arranged(a, indices), arranged(b, indices)), axes)
    shared = len(plan.groups)
    left = split_at(arranged(a, [*plan.groups, *plan.left, *plan.summed]), shared + len(plan.left))
    right = split_at(arranged(b, [*plan.groups, *plan.right, *plan.summed]), shared + len(plan.right))
    return Operand(build("compute", "dot-product", build("access-product", left, right, shared)), axes)


def arranged(one: Operand, indices: Sequence[Index]) -> Term:
    """Returns an array with one axis for each of these indices, from an operand that may lack some."""
    have = list(one.indices)
    order = [have.index(index) for index in indices if index in have]
    dims = [index.size if index in have else 1 for index in indices]
    moved = rearrange(one.term, [index.size for index in have], order, dims)
    return broadcast(moved, [index.size for index in indices])
