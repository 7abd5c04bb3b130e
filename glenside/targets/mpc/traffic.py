"""What a whole program sends: the secrecy of its terms, forward from its tensors, and the traffic of each by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import prod

from glenside.ir.dtypes import FLOATS
from glenside.ir.operator import Operator
from glenside.ir.operators import views
from glenside.ir.operators.products import access_product
from glenside.ir.program import Program, constant_terms, is_product
from glenside.ir.term import Term, postorder
from glenside.ir.types import AccessType
from glenside.passes.constant_folding import fold
from glenside.targets.mpc.analysis import Operand, secrets
from glenside.targets.mpc.prices import node_traffic, product_truncation
from glenside.targets.mpc.semi2k import NOTHING, Semi2k, Traffic
from glenside.targets.mpc.simplifications import (
    PRODUCT,
    RECIPROCAL,
    RECIPROCAL_POWER,
    RECIPROCAL_ROOT,
    SCALED,
    SCALED_RECIPROCAL,
    computed,
)


def program_traffic(
    program: Program, public: Iterable[str] = (), prepared: bool = False, protocol: Semi2k | None = None
) -> dict[Term, Traffic | None]:
    """What one party sends for each term of the program, in order of evaluation; None where there is no formula.

    public    names of tensors that both parties know; numbers in the program are public too
    prepared  whether who owns the constants computes what is made of them alone before it is shared

    A product that no `truncate` cuts later is cut at once, and that is counted with it. The sum is what SPU sends for
    `export_jax(program)` (of `prepare(program)` when prepared), unless truncations are deferred, which it does not do.
    """
    protocol = protocol or Semi2k()
    known = secrets(program, public)
    constant, uses = constant_terms(program), _uses(program)
    deferred, merged, instead = _deferred(uses), _merged(uses, known), computed(uses, known)
    scaled = _scaled_before_repeated(uses, known)
    found: dict[Term, Traffic | None] = {}
    for term in postorder(program.term):
        if term in merged or (prepared and constant[term]):
            found[term] = NOTHING
            continue
        operands = [known[child] for child in term.children]
        sent = _batched(protocol, term, known) or node_traffic(
            protocol, term.operator.name, term.attributes, operands, term.type
        )
        if term in instead:
            sent = _instead(protocol, term, instead[term], sent)
        if term in scaled and term not in deferred:
            found[term] = protocol.truncation(scaled[term]) if scaled[term] else NOTHING
            continue
        if sent is not None and term not in deferred and isinstance(term.type, AccessType):
            sent += product_truncation(protocol, term.operator.name, term.attributes, operands, term.type)
        found[term] = sent
    return found


def prepare(program: Program, public: Iterable[str] = ()) -> Program:
    """The program that runs when who owns the constants has computed what is made of them: that is folded.

    What both parties know, numbers in the program above all, stays as it is. Raises BadInput as `fold` does.
    """
    return fold(program, {term for term, known in secrets(program, public).items() if not known.secret})


def counted(traffic: Mapping[Term, Traffic | None]) -> Traffic:
    """The sum over the terms that have a formula."""
    return sum((sent for sent in traffic.values() if sent is not None), NOTHING)


def total(traffic: Mapping[Term, Traffic | None]) -> Traffic | None:
    """The sum over all terms; None when some have no formula."""
    return None if None in traffic.values() else counted(traffic)


def _batched(protocol: Semi2k, term: Term, known: Mapping[Term, Operand]) -> Traffic | None:
    """A truncation of a product itself: SPU cuts each matmul of a batch by itself."""
    if term.operator.name != "truncate" or not is_product(term.children[0]):
        return None
    product = term.children[0]
    operands = [known[child] for child in product.children]
    return product_truncation(protocol, product.operator.name, product.attributes, operands, product.access)


def _instead(protocol: Semi2k, term: Term, kinds: Collection[str], sent: Traffic | None) -> Traffic | None:
    """What is sent for the computes that stand in the place of one that sends `sent`."""
    size = term.access.size
    cut, reciprocal = protocol.truncation(size), protocol.function("reciprocal", size)
    known = {
        "": NOTHING,
        PRODUCT: protocol.multiplication(size) + cut,
        SCALED: cut,
        RECIPROCAL: reciprocal,
        SCALED_RECIPROCAL: reciprocal and reciprocal + cut,
        "elementwise-div": protocol.function("quotient", size),
        "exp": protocol.function("exp", size),
        RECIPROCAL_POWER: protocol.function("exp", size),
        RECIPROCAL_ROOT: protocol.function("rsqrt", size),
    }
    parts = [known.get(kind, sent) for kind in kinds]
    return None if None in parts else sum((part for part in parts if part is not None), NOTHING)


def _uses(program: Program) -> dict[Term, list[Term]]:
    """The terms of the program in order of evaluation, each with those that it is an operand of."""
    uses: dict[Term, list[Term]] = {term: [] for term in postorder(program.term)}
    for term in uses:
        for child in term.children:
            uses[child].append(term)
    return uses


def _deferred(uses: Mapping[Term, list[Term]]) -> set[Term]:
    """The terms all uses of which lead to a `truncate` through what is linear."""
    found: set[Term] = set()
    for term in reversed([*uses]):
        if uses[term] and all(u.operator.name == "truncate" or (u in found and _linear(u)) for u in uses[term]):
            found.add(term)
    return found


def _merged(uses: Mapping[Term, list[Term]], known: Mapping[Term, Operand]) -> set[Term]:
    """Products by what is public that SPU's compiler puts into the next one: (x * p) * q is x * (p * q).

    The result has no other use, and only movement stands between them that the compiler puts before or after both.
    """
    found: set[Term] = set()
    for term in uses:
        factor = _factor(term, known)
        if factor is None:
            continue
        crossed: set[Operator] = set()
        after = _after(term, uses, crossed)
        next_factor = _factor(after, known) if after is not None and after.attributes[0] != "reduce-mean" else None
        if next_factor is None:
            continue
        alike = [factor if operator is views.access_flip else next_factor for operator in crossed - _KEEPING]
        if all(len(same.repeats) == same.access.rank for same in alike):
            found.add(term)
    return found


def _scaled_before_repeated(uses: Mapping[Term, list[Term]], known: Mapping[Term, Operand]) -> dict[Term, int]:
    """Products by one public number that SPU's compiler moves to the other operand of the next product, where that
    repeats itself, and how many elements it then scales: (x * c) * repeated(w) is x * repeated(w * c), and
    (x * c) * repeated(w * d) is x * repeated(w * cd).
    """
    found: dict[Term, int] = {}
    for term in uses:
        factor = _factor(term, known)
        if factor is None or factor.number is None or term.attributes[0] == "reduce-mean":
            continue
        after = _after(term, uses, set())
        other = None if after is None or after.attributes[0] != "elementwise-mul" else _beside(term, after)
        if other is None or not known[other].secret or term.access.size != other.access.size:
            continue
        distinct = prod(n for axis, n in enumerate(other.access.dims) if axis not in known[other].repeats)
        if distinct < other.access.size:
            found[term] = 0 if any(_is_scaled(part, known) for part in _moved_from(other)) else distinct
    return found


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


def _after(term: Term, uses: Mapping[Term, list[Term]], crossed: set[Operator]) -> Term | None:
    """The compute that alone uses a term, with the movement between them; through a pair, which is one of its own."""
    used, paired = uses[term], False
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
    if kind == "reduce-mean" and operand.access.item.product() > 1:
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


def _linear(term: Term) -> bool:
    """Whether it may stand between a product and the truncation that is deferred: a mean is a product itself."""
    is_mean = term.operator.name == "compute" and term.attributes[0] == "reduce-mean"
    return term.operator.moves or (term.operator.is_linear(*term.arguments()) and not is_mean)
