"""What a whole program sends: the secrecy of its terms, forward from its tensors, and the traffic of each by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from glenside.ir.program import Program, constant_terms, is_product
from glenside.ir.rational import exact, exact_numbers
from glenside.ir.term import Term, postorder
from glenside.ir.types import AccessType, Type
from glenside.secure.prices import node_traffic, product_truncation
from glenside.secure.registry import Operand, secrecy
from glenside.secure.semi2k import NOTHING, Semi2k, Traffic

# What may stand between a product and the truncation that is deferred: it is linear, with whole coefficients at most.
_LINEAR = frozenset("linear-map access-overlap-add access-pad access-dilate".split())
_LINEAR_COMPUTES = frozenset("elementwise-add subtract negative reduce-sum".split())


def program_traffic(
    program: Program,
    public: Iterable[str] = (),
    prepared: bool = False,
    protocol: Semi2k | None = None,
) -> dict[Term, Traffic | None]:
    """What one party sends for each term of the program, in order of evaluation; None where there is no formula.

    public    names of tensors that both parties know; numbers in the program are public too
    prepared  whether who owns the constants computes what is made of them alone before it is shared

    A product that no `truncate` cuts later is cut at once, and that is counted with it. The sum is what SPU sends for
    `export_jax(program)` (of `fold(program)` when prepared), unless truncations are deferred, which it does not do.
    """
    protocol = protocol or Semi2k()
    known = secrets(program, public)
    constant, deferred = constant_terms(program), _deferred(program)
    found: dict[Term, Traffic | None] = {}
    for term in postorder(program.term):
        if prepared and constant[term]:
            found[term] = NOTHING
            continue
        operands = [known[child] for child in term.children]
        sent = _batched(protocol, term, known) or node_traffic(
            protocol, term.operator.name, term.attributes, operands, term.type
        )
        if sent is not None and term not in deferred and isinstance(term.type, AccessType):
            sent += product_truncation(protocol, term.operator.name, term.attributes, operands, term.type)
        found[term] = sent
    return found


def total(traffic: Mapping[Term, Traffic | None]) -> Traffic | None:
    """The sum over all terms; None when some have no formula."""
    result = NOTHING
    for sent in traffic.values():
        if sent is None:
            return None
        result += sent
    return result


def secrets(program: Program, public: Iterable[str] = ()) -> dict[Term, Operand]:
    """What is known of each term of the program and its layers: whether it is secret, and what stands in its items."""
    names, known = frozenset(public), dict[Term, Operand]()
    for term in postorder(program.term, *program.layers.values()):
        operands = [known[child] for child in term.children]
        secret = secrecy(term.operator.name, term.attributes, [o.secret for o in operands], names)
        known[term] = _operand(term, secret, operands)
    return known


def _operand(term: Term, secret: bool, operands: list[Operand]) -> Operand:
    name, type = term.operator.name, term.type
    known = name not in ("access-tensor", "opaque") and all(o.known for o in operands)
    found = Operand(type, secret, known=known, ones=_ones(term, operands))
    if name == "access-product":
        return replace(found, parts=tuple(operands), shared=int(str(term.attributes[0])))
    if name == "access-concatenate" and term.attributes[0] == term.access.split:
        return replace(found, parts=tuple(part for o in operands for part in _along(o)))
    if name == "truncate" or (name == "access" and _split(operands[0].type) == _split(type)):
        return replace(found, parts=operands[0].parts, shared=operands[0].shared)
    return found


def _along(operand: Operand) -> tuple[Operand, ...]:
    """What a concatenation puts side by side of one operand: its own parts, or as many of it as it has elements."""
    if operand.parts and operand.shared is None:
        return operand.parts
    return (replace(operand, parts=(), shared=None),) * operand.access.item[0]


def _split(type: Type) -> int:
    return type.split if isinstance(type, AccessType) else -1


def _ones(term: Term, operands: list[Operand]) -> bool:
    """Whether a term is 1 everywhere: numbers that are, and what only moves elements of such."""
    name = term.operator.name
    if name in ("access-literal", "full"):
        return exact(str(term.attributes[-2])) == 1
    if name == "numbers":
        return set(exact_numbers(str(term.attributes[1])) or ()) == {1}
    return bool(operands) and term.operator.movement and name != "access-dilate" and all(o.ones for o in operands)


def _batched(protocol: Semi2k, term: Term, known: Mapping[Term, Operand]) -> Traffic | None:
    """A truncation of a product itself: SPU cuts each matmul of a batch by itself."""
    if term.operator.name != "truncate" or not is_product(term.children[0]):
        return None
    product = term.children[0]
    operands = [known[child] for child in product.children]
    return product_truncation(protocol, product.operator.name, product.attributes, operands, product.access)


def _deferred(program: Program) -> set[Term]:
    """The terms all uses of which lead to a `truncate` through what is linear."""
    terms = [*postorder(program.term)]
    uses: dict[Term, list[Term]] = {term: [] for term in terms}
    for term in terms:
        for child in term.children:
            uses[child].append(term)
    found: set[Term] = set()
    for term in reversed(terms):
        if uses[term] and all(u.operator.name == "truncate" or (u in found and _linear(u)) for u in uses[term]):
            found.add(term)
    return found


def _linear(term: Term) -> bool:
    if term.operator.name == "compute":
        return str(term.attributes[0]) in _LINEAR_COMPUTES
    return term.operator.movement or term.operator.name in _LINEAR
