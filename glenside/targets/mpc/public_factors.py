"""Finds products by public values that SPU's compiler moves: into the next product, or to a repeated operand."""

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
    """Returns the products by public values that SPU's compiler merges into the next product: (x * p) * q is x * (p *
    q).

    The result has no other use, and between the products there is only movement that the compiler moves before or after
    both.
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
    """The effect on a product by one public number. `moved` has one entry for each use from which the product is moved:
    the number of elements that are scaled instead. `own` is True if the product itself remains for another use.
    """

    moved: tuple[int, ...]
    own: bool


def scales_before_repeated(uses: Mapping[Term, list[Term]], known: Mapping[Term, Operand]) -> dict[Term, Scale]:
    """Returns the products by one public number that SPU's compiler moves to the other operand of the next product, if
    that operand repeats its elements: (x * c) * repeated(w) is x * repeated(w * c), and (x * c) * repeated(w * d) is x
    * repeated(w * cd).

    A mean is such a product, of a sum. Not if x * c itself is repeated before the next product.
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
    """Yields the terms that use a term, through all splits."""
    for user in uses[term]:
        if user.operator is views.access:
            yield from _users(user, uses)
        else:
            yield user


def _scaled_instead(
    term: Term, user: Term, uses: Mapping[Term, list[Term]], known: Mapping[Term, Operand]
) -> int | None:
    """Returns how many elements of the other operand of the next product are scaled instead of the term; 0 if that
    operand is already scaled; None if the term itself is scaled.
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
    """Returns the number of elements of a term without repetitions."""
    return prod(n for axis, n in enumerate(term.access.dims) if axis not in known[term].repeats)


def _beside(term: Term, product: Term) -> Term | None:
    """Returns the other operand of a product if exactly one operand is the term or movement of it; else None."""
    pair = product.children[0]
    while pair.operator in _KEEPING and pair.operator is not access_product:
        (pair,) = pair.children
    if pair.operator is not access_product:
        return None
    a, b = pair.children
    of_a, of_b = term in _moved_from(a), term in _moved_from(b)
    return None if of_a == of_b else b if of_a else a


def _moved_from(term: Term) -> list[Term]:
    """Returns the term, its operand if the term is movement, and so on down to a term that computes."""
    found = [term]
    while found[-1].operator in _CROSSED and len(found[-1].children) == 1:
        found += found[-1].children
    return found


def _is_scaled(term: Term, known: Mapping[Term, Operand]) -> bool:
    factor = _factor(term, known)
    return factor is not None and factor.number is not None


# Movement that the compiler moves before or after a product by a public value, as measured. Except for splits this
# requires that the public value is one number: of the first product for a flip, else of the second.
_KEEPING = {views.access, views.access_shift_right, access_product}
_CROSSED = _KEEPING | {
    *(views.access_transpose, views.access_reshape, views.access_rearrange, views.access_flatten),
    *(views.access_insert_axis, views.access_squeeze, views.access_broadcast, views.access_flip),
}


def _after(used: list[Term], uses: Mapping[Term, list[Term]], crossed: set[Operator]) -> Term | None:
    """Returns the only compute that uses the given terms, through movement and one pair; None if there is none."""
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
    """Returns the public operand of a product with a secret one, which SPU truncates; a mean has one, too."""
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
