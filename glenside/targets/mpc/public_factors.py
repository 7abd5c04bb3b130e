"""Products by what both parties know, and where SPU's compiler puts them: into the next one, or to what is repeated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from glenside.ir.dtypes import FLOATS
from glenside.ir.operator import Operator
from glenside.ir.operators import views
from glenside.ir.operators.products import access_product
from glenside.ir.term import Term
from glenside.targets.mpc.analysis import Operand


def merged(uses: Mapping[Term, list[Term]], known: Mapping[Term, Operand]) -> set[Term]:
    """Products by what is public that SPU's compiler puts into the next one: (x * p) * q is x * (p * q).

    The result has no other use, and only movement stands between them that the compiler puts before or after both.
    """
    found: set[Term] = set()
    for term in uses:
        factor = _factor(term, known)
        if factor is None:
            continue
        crossed: set[Operator] = set()
        after = _after(uses[term], uses, crossed)
        next_factor = _factor(after, known) if after is not None and after.attributes[0] != "reduce-mean" else None
        if next_factor is None:
            continue
        alike = [factor if operator is views.access_flip else next_factor for operator in crossed - _KEEPING]
        if all(len(same.repeats) == same.access.rank for same in alike):
            found.add(term)
    return found


@dataclass(frozen=True)
class Scale:
    """What becomes of a product by one public number: `moved` are the elements that SPU's compiler scales instead, for
    each use that it moves it from; `own` says whether the product itself is left, for another use.
    """

    moved: tuple[int, ...]
    own: bool


def scales_before_repeated(uses: Mapping[Term, list[Term]], known: Mapping[Term, Operand]) -> dict[Term, Scale]:
    """Products by one public number that SPU's compiler moves to the other operand of the next product, where that
    repeats itself: (x * c) * repeated(w) is x * repeated(w * c), and (x * c) * repeated(w * d) is x * repeated(w * cd).

    A mean is such a product, of a sum. Not where x * c is repeated itself before that product.
    """
    found: dict[Term, Scale] = {}
    for term in uses:
        factor = _factor(term, known)
        if factor is None or (factor.number is None and term.attributes[0] != "reduce-mean"):
            continue
        users = [*_users(term, uses)]
        instead = [_scaled_instead(term, user, uses, known) for user in users]
        moved = [elements for elements in instead if elements is not None]
        if moved:
            found[term] = Scale(tuple(moved), len(moved) < len(users))
    return found


def _users(term: Term, uses: Mapping[Term, list[Term]]) -> Iterator[Term]:
    """What uses a term, whatever its split is there."""
    for user in uses[term]:
        if user.operator is views.access:
            yield from _users(user, uses)
        else:
            yield user


def _scaled_instead(
    term: Term, user: Term, uses: Mapping[Term, list[Term]], known: Mapping[Term, Operand]
) -> int | None:
    """The elements of the other operand of the next product that are scaled instead of a term; 0 where they are scaled
    already. None where the term is.
    """
    after = _after([user], uses, set())
    other = None if after is None or after.attributes[0] != "elementwise-mul" else _beside(term, after)
    if after is None or other is None or not known[other].secret:
        return None
    elements = _distinct(other, known)
    if not elements < _distinct(term, known) == _distinct(after, known):
        return None
    return 0 if any(_is_scaled(part, known) for part in _moved_from(other)) else elements


def _distinct(term: Term, known: Mapping[Term, Operand]) -> int:
    """The elements of a term that do not only repeat others."""
    return prod(n for axis, n in enumerate(term.access.dims) if axis not in known[term].repeats)


def _beside(term: Term, product: Term) -> Term | None:
    """The other operand of a product of two of which one is a term that was moved."""
    pair = product.children[0]
    while pair.operator in _KEEPING and pair.operator is not access_product:
        (pair,) = pair.children
    if pair.operator is not access_product:
        return None
    a, b = pair.children
    of_a, of_b = term in _moved_from(a), term in _moved_from(b)
    return None if of_a == of_b else b if of_a else a


def _moved_from(term: Term) -> list[Term]:
    """The term, and what it is only moved from."""
    found = [term]
    while found[-1].operator in _CROSSED and len(found[-1].children) == 1:
        found += found[-1].children
    return found


def _is_scaled(term: Term, known: Mapping[Term, Operand]) -> bool:
    factor = _factor(term, known)
    return factor is not None and factor.number is not None


# Movement that the compiler puts before or after a product by what is public, as was measured; all but the splits only
# where that is the same everywhere: the first product for a flip, else the second.
_KEEPING = {views.access, views.access_shift_right, access_product}
_CROSSED = _KEEPING | {
    *(views.access_transpose, views.access_reshape, views.access_rearrange, views.access_flatten),
    *(views.access_insert_axis, views.access_squeeze, views.access_broadcast, views.access_flip),
}


def _after(used: list[Term], uses: Mapping[Term, list[Term]], crossed: set[Operator]) -> Term | None:
    """The compute that alone uses what `used` use, with the movement between them; through a pair of its own."""
    paired = False
    while len(used) == 1:
        (user,) = used
        if user.operator.name == "compute":
            return user if paired else None
        if user.operator is access_product:
            paired = True
        elif paired or user.operator not in _CROSSED:
            return None
        crossed.add(user.operator)
        used = uses[user]
    return None


def _factor(term: Term, known: Mapping[Term, Operand]) -> Operand | None:
    """The public operand of a product with a secret one, which SPU truncates; a mean has one too."""
    if term.operator.name != "compute" or not known[term].secret or term.access.dtype not in FLOATS:
        return None
    kind, operand = str(term.attributes[0]), known[term.children[0]]
    if kind == "reduce-mean" and operand.access.item.product() > 1 and not operand.item_repeats:
        return Operand(operand.type, False, repeats=frozenset(range(operand.access.rank)))
    if kind not in ("elementwise-mul", "elementwise-div") or operand.shared is None:
        return None
    a, b = operand.parts
    if kind == "elementwise-div":
        return b if a.secret and not b.secret and b.known and b.number != 1 else None
    if a.secret == b.secret:
        return None
    public = b if a.secret else a
    return None if public.number == 1 else public
