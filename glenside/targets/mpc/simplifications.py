"""Models SPU's compiler, which replaces a compute of a compute by computes that send less.

The equations are those of XLA's simplifier: x / sqrt y is x * rsqrt y, x / exp y is x * exp(-y), (x / y) / z is x / (y
* z) and x / (y / z) is (x * z) / y, exp x * exp y is exp(x + y), log(exp x) is x, relu(relu x) is relu x, |x| is x if
no element can be below 0. A root is only changed if it has no other use.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction

from glenside.ir.dtypes import FLOATS
from glenside.ir.operator import Operator
from glenside.ir.operators import views
from glenside.ir.operators.products import access_product
from glenside.ir.term import Term
from glenside.targets.mpc.analysis import Operand

PRODUCT, SCALED = "elementwise-mul", "by a public one"
RECIPROCAL, SCALED_RECIPROCAL = "reciprocal", "reciprocal by a public one"
RECIPROCAL_ROOT, RECIPROCAL_POWER = "rsqrt", "exp(-x)"
_BELOW = {"sqrt": RECIPROCAL_ROOT, "exp": RECIPROCAL_POWER, "sigmoid": RECIPROCAL_POWER}
_SPLITS: set[Operator] = {views.access, views.access_shift_right}


def computed(uses: Mapping[Term, list[Term]], known: Mapping[Term, Operand]) -> dict[Term, frozenset[str]]:
    """Returns the computes that SPU runs instead of a term, for each term that it replaces.

    uses the terms of a program in order of evaluation, each with its users
    """
    own: dict[Term, str] = {}
    needed: dict[Term, set[str]] = defaultdict(set)
    for term in uses:
        if term.operator in _SPLITS or term.operator is access_product:
            continue
        operands = _operands(term)
        own[term], wanted = _rewritten(term, [(o, own[o]) for o in operands], uses, known)
        for operand, kind in zip(operands, wanted, strict=True):
            needed[operand].add(kind)
    found = {term: frozenset(needed[term] or {kind}) for term, kind in own.items()}
    return {term: kinds for term, kinds in found.items() if kinds != {_kind(term)}}


def _kind(term: Term) -> str:
    return str(term.attributes[0]) if term.operator.name == "compute" else ""


def _operands(term: Term) -> list[Term]:
    """Returns the operands of a term, through all splits."""
    found: list[Term] = []
    for child in term.children:
        while child.operator in _SPLITS:
            (child,) = child.children
        found += _operands(child) if child.operator is access_product else [child]
    return found


def _rewritten(
    term: Term, operands: list[tuple[Term, str]], uses: Mapping[Term, list[Term]], known: Mapping[Term, Operand]
) -> tuple[str, list[str]]:
    """Returns the replacement of a term and of its operands; "" sends nothing."""
    kind, kinds = _kind(term), [own for _, own in operands]
    if not kind or not known[term].secret or term.access.dtype not in FLOATS:
        return kind, kinds
    if kind == "log" and kinds == ["exp"]:
        return "", [""]
    if (kind == "relu" and kinds == [kind]) or (kind == "abs" and _is_not_negative(operands[0][0], known)):
        return "", kinds
    if len(operands) != 2 or not all(o.access.dims == term.access.dims for o, _ in operands):
        return kind, kinds
    (a, of_a), (b, of_b) = operands
    if kind == "elementwise-mul":
        return ("exp", ["", ""]) if of_a == of_b == "exp" else (kind, kinds)
    if kind != "elementwise-div" or not known[b].secret:
        return kind, kinds
    if of_a == of_b == "exp":
        return "exp", ["", ""]
    if of_b in _BELOW and (of_b != "sqrt" or len(uses[_pair_below(b, uses)]) == 1):
        return _product(known[a], known[b]), [of_a, _BELOW[of_b]]
    return _quotients((a, of_a), (b, of_b), known) or (kind, kinds)


def _is_not_negative(term: Term, known: Mapping[Term, Operand]) -> bool:
    """True if the compiler can prove that no element is below 0."""
    kind, operands = _kind(term), _operands(term)
    number = known[term].number
    if number is not None:
        return number >= 0
    if kind in ("relu", "abs", "maximum"):
        return kind != "maximum" or any(_is_not_negative(o, known) for o in operands)
    if kind == "minimum":
        return all(_is_not_negative(o, known) for o in operands)
    if kind.startswith("(clip ") and term.access.size == 1:  # in larger arrays the bounds are broadcast
        low, high = map(Fraction, kind.strip("()").split()[1:])
        return high >= 0 and (low >= 0 or _is_not_negative(operands[0], known))
    return kind == "elementwise-mul" and len(operands) == 2 and operands[0] is operands[1]


def _pair_below(term: Term, uses: Mapping[Term, list[Term]]) -> Term:
    """Returns the last of the splits of a term that are its only uses, or the term."""
    while len(uses[term]) == 1 and uses[term][0].operator in _SPLITS:
        (term,) = uses[term]
    return term


def _product(a: Operand, b: Operand) -> str:
    """Returns the kind of a product with a secret operand: "" if the other operand is 1."""
    if 1 in (a.number, b.number):
        return ""
    return PRODUCT if a.secret and b.secret else SCALED


def _quotients(a: tuple[Term, str], b: tuple[Term, str], known: Mapping[Term, Operand]) -> tuple[str, list[str]] | None:
    """Returns the replacement of a quotient whose operand is a quotient: one of them becomes a product.

    None if no operand is a quotient by a secret one.
    """
    kinds = [a[1], b[1]]
    parts = [[known[o] for o in _operands(x)] if kind == "elementwise-div" else [] for x, kind in (a, b)]
    if parts[0] and parts[0][1].secret:
        x, y = parts[0]
        z = known[b[0]]
        above, kinds[0] = x, _product(y, z)
        below = Operand(z.type, True)
        if parts[1]:
            kinds[1] = PRODUCT
            above = Operand(z.type, True)
    elif parts[1] and parts[1][1].secret:
        x, (y, z) = known[a[0]], parts[1]
        kinds[1] = _product(x, z)
        above, below = Operand(z.type, True), y
    else:
        return None
    if not below.secret:
        return SCALED, kinds
    if above.secret:
        return "elementwise-div", kinds
    return (RECIPROCAL if above.number == 1 else SCALED_RECIPROCAL), kinds
