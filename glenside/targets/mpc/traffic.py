"""The traffic of a whole program: propagates secrecy forward from its tensors, and prices each term."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from glenside.ir.program import Program, is_product
from glenside.ir.term import Term
from glenside.ir.types import AccessType
from glenside.passes.constant_folding import fold
from glenside.targets.mpc.analysis import Operand, secrets
from glenside.targets.mpc.prices import node_traffic, product_truncation
from glenside.targets.mpc.public_factors import merged, scales_before_repeated
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
    """Returns the traffic of one party for each term of the program, in order of evaluation; None without a formula.

    public    names of tensors that both parties know; numbers in the program are public too
    prepared  True: the owner of the constants folds terms over them before sharing

    A product without a later `truncate` is truncated at once, and that counts with it. The sum is the traffic of SPU
    for `export_jax(program)` (if prepared: of `prepare(program)`), unless truncations are deferred, which SPU does not
    do.
    """
    protocol = protocol or Semi2k()
    known = secrets(program, public)
    constant, uses = program.info.constant, program.info.users
    deferred, put_into_next, instead = _deferred(uses), merged(uses, known), computed(uses, known)
    scales = scales_before_repeated(uses, known)
    found: dict[Term, Traffic | None] = {}
    for term in program.info.order:
        if term in put_into_next or (prepared and constant[term]):
            found[term] = NOTHING
            continue
        operands = [known[child] for child in term.children]
        sent = _batched(protocol, term, known) or node_traffic(
            protocol, term.operator.name, term.attributes, operands, term.type
        )
        if term in instead:
            sent = _instead(protocol, term, instead[term], sent)
        if term in scales and term not in deferred:
            scale = scales[term]
            sent = sum((protocol.truncation(n) for n in scale.moved if n), sent if scale.own and sent else NOTHING)
        elif sent is not None and term not in deferred and isinstance(term.type, AccessType):
            sent += product_truncation(protocol, term.operator.name, term.attributes, operands, term.type)
        found[term] = sent
    return found


def prepare(program: Program, public: Iterable[str] = ()) -> Program:
    """Folds terms over constants, as the owner of the constants does before sharing.

    Public terms, such as numbers in the program, are not folded. Raises BadInput as `fold` does.
    """
    return fold(program, {term for term, known in secrets(program, public).items() if not known.secret})


def counted(traffic: Mapping[Term, Traffic | None]) -> Traffic:
    """Returns the sum over the terms that have a formula."""
    return sum((sent for sent in traffic.values() if sent is not None), NOTHING)


def total(traffic: Mapping[Term, Traffic | None]) -> Traffic | None:
    """Returns the sum over all terms; None if some have no formula."""
    return None if None in traffic.values() else counted(traffic)


def _batched(protocol: Semi2k, term: Term, known: Mapping[Term, Operand]) -> Traffic | None:
    """Returns the traffic of a product's truncation, one matmul of a batch at a time; None for other terms."""
    if term.operator.name != "truncate" or not is_product(term.children[0]):
        return None
    product = term.children[0]
    operands = [known[child] for child in product.children]
    return product_truncation(protocol, product.operator.name, product.attributes, operands, product.access)


def _instead(protocol: Semi2k, term: Term, kinds: Collection[str], sent: Traffic | None) -> Traffic | None:
    """Returns the traffic of the computes that replace a term; `sent`: the traffic of the term itself."""
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


def _deferred(uses: Mapping[Term, list[Term]]) -> set[Term]:
    """Returns the terms all of whose uses lead to a `truncate` through linear operators."""
    found: set[Term] = set()
    for term in reversed([*uses]):
        if uses[term] and all(u.operator.name == "truncate" or (u in found and _linear(u)) for u in uses[term]):
            found.add(term)
    return found


def _linear(term: Term) -> bool:
    """True if the term may be between a product and its deferred truncation; a mean is a product itself."""
    is_mean = term.operator.name == "compute" and term.attributes[0] == "reduce-mean"
    return term.operator.moves or (term.operator.is_linear(*term.arguments()) and not is_mean)
