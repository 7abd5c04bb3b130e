"""Chooses the terms to materialize: results, operands of several nests, operands read repeatedly, and non-formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from glenside.codegen.lowering.fill_rules import category_of, filler, is_unrolled
from glenside.codegen.lowering.inline_gathers import InlineGathers
from glenside.codegen.lowering.inline_reductions import join_of
from glenside.codegen.lowering.recurrences import stored_operands
from glenside.ir.dtypes import INTEGERS, RECORDS
from glenside.ir.operator import Category
from glenside.ir.term import Term, constants_under
from glenside.ir.types import AccessType
from glenside.passes.element_functions import is_one_number

LEAVES = frozenset({"access-tensor", "access-literal", "full", "eye", "iota"})
"""Leaves whose elements are formulas of their indices."""
_MAX_FORMULA_STEPS = 100
"""Maximum operations of one formula: in larger ones, subterms are materialized."""
_GATHERS = frozenset({"access-gather", "access-gather-nd"})
"""Operators that read their first operand at computed indices."""
_NONE_INLINE = InlineGathers()
_READ_ONCE = frozenset({"access-gather", "access-overlap-add", "linear-map", "access-scatter-nd", "scan"})


def is_inline(term: Term) -> bool:
    """True if an element of a term is a formula of elements of its operands."""
    if term.operator.name in LEAVES or term.operator.name in ("cast", "bitcast"):
        return True
    if term.operator.name == "compute":
        category = category_of(term)
        return category is Category.POINTWISE or (category is Category.FOLD and is_unrolled(term))
    return term.operator.moves and term.operator.index_map is not None


def stored_terms(
    order: Sequence[Term],
    results: Iterable[Term],
    host: Callable[[Term, bool], Iterable[Term]] = lambda *_: (),
    inline: InlineGathers = _NONE_INLINE,
    scaled: Set[Term] = frozenset(),
) -> set[Term]:
    """Returns the terms of `order` (children first) to materialize; those of `scaled` only if they are results.

    `host` is called for each term, from the results down, with True if the term is stored or read more than once. It
    returns further terms to store.
    """
    stored = set(results)
    found = _Reads(order, stored, inline)
    for term in reversed(order):
        stored.update(host(term, found.often[term] or term in stored))
        if term.operator.name not in LEAVES and term not in scaled and found.requires(term):
            stored.add(term)
        found.read(term)
        stored |= addressed_by(term, inline)
    while (cut := _too_large(order, stored)) is not None:
        stored.add(cut)
    return stored


def _too_large(order: Sequence[Term], stored: set[Term]) -> Term | None:
    """Adds terms to `stored` so that no formula is too large.

    If a formula that is too large contains narrow terms, returns the largest of these instead, to be stored.
    """
    steps: dict[Term, int] = {}
    narrow: dict[Term, Term] = {}
    for term in order:
        if term.operator.name in LEAVES or term in stored:
            steps[term] = 1
            continue
        steps[term] = 1 + sum(steps[child] * _occurrences(term, child) for child in term.children)
        within = [narrow[child] for child in term.children if child in narrow]
        if steps[term] > _MAX_FORMULA_STEPS and within:
            return max(within, key=steps.__getitem__)
        if steps[term] > _MAX_FORMULA_STEPS:
            cut = _largest_part(term, steps)
            stored.add(cut)
            steps[term] = 1 if cut is term else steps[term] - steps[cut] * _occurrences(term, cut) + 1
            steps[cut] = 1
            continue
        if is_narrowing(term) and steps[term] > _MAX_FORMULA_STEPS // 8:
            narrow[term] = term
        elif within:
            narrow[term] = max(within, key=steps.__getitem__)
    return None


def _largest_part(term: Term, steps: Mapping[Term, int]) -> Term:
    """Returns the part to store of a term that is too large: itself, or of an `access-product` the largest operand.

    A stored `access-product` would have to select the operand by its index.
    """
    while term.operator.name == "access-product":
        term = max(term.children, key=steps.__getitem__)
    return term


def addressed_by(term: Term, inline: InlineGathers = _NONE_INLINE) -> set[Term]:
    """Returns the term that a term reads at computed indices, which is stored in row-major order."""
    if term in inline.sources:
        source, *_ = inline.sources[term]
        return {source} if source.operator.name != "access-tensor" else set()
    if term.operator.name == "scan":
        return {child for child in stored_operands(term) if child.operator.name != "access-tensor"}
    if term.operator.name in _GATHERS or is_sorting(term):
        return {child for child in term.children[:1] if child.operator.name != "access-tensor"}
    return set()


class _Reads:
    """The readers of each term, collected from the results down.

    nests  the stored terms whose nests read it
    often  True if a nest reads an element of it for more than one of its own elements
    whole  True if all readers read it through formulas that skip none of its elements
    """

    def __init__(self, order: Sequence[Term], stored: set[Term], inline: InlineGathers) -> None:
        self.stored, self.inline = stored, inline
        self.constant = constants_under(*order)
        self.nests: dict[Term, set[Term]] = {term: set() for term in order}
        self.often: dict[Term, bool] = dict.fromkeys(order, False)
        self.whole: dict[Term, bool] = dict.fromkeys(order, True)

    def requires(self, term: Term) -> bool:
        """True if a term must be stored because of its readers."""
        if term in self.inline.within or (
            self.constant[term] and is_inline(term)
        ):  # what is not folded is read in place
            return False
        if join_of(term) is not None or is_narrowing(term):
            nests = self.nests[term]
            once = len(nests) == 1 and all(nest.access.size == term.access.size for nest in nests)
            return self.often[term] or not self.whole[term] or not once
        if not is_inline(term):
            return True
        several = self.often[term] or len(self.nests[term]) > 1
        return several and term.operator.name == "compute" and not _is_shift(term)

    def read(self, term: Term) -> None:
        """Records the reads of a term: by its own nest if it is stored, else by the nests that read it."""
        for child in term.children:
            if child not in self.nests:
                continue
            own = term in self.stored
            self.nests[child] |= {term} if own else self.nests[term]
            self.often[child] |= _rereads(term, child) or (not own and self.often[term])
            self.whole[child] &= is_inline(term) and not _skips(term) and (own or self.whole[term])


def is_narrowing(term: Term) -> bool:
    """True if a term casts to fewer bits: an operand that is read more than once is stored in the narrow dtype."""
    return _bits(term) < _bits(term.children[0]) if term.operator.name == "cast" else False


def is_widening(term: Term) -> bool:
    """True if a term casts integers to more bits: the narrow operand takes less memory."""
    if term.operator.name != "cast" or term.access.dtype not in INTEGERS:
        return False
    return term.children[0].access.dtype in INTEGERS and _bits(term) > _bits(term.children[0])


def _bits(term: Term) -> int:
    return RECORDS[term.access.dtype].bits


def _is_shift(term: Term) -> bool:
    """True if a term adds one number to integers, or subtracts it: cheap enough to recompute for each reader."""
    if term.access.dtype not in INTEGERS or term.attributes[0] not in ("elementwise-add", "subtract"):
        return False
    (pair,) = term.children
    return pair.operator.name == "access-product" and is_one_number(pair.children[1])


def is_sorting(term: Term) -> bool:
    """True if a term sorts the items of its operand: both are stored contiguously, item by item."""
    return filler(term) is not None and "argsort" in str(term.attributes[:1])


def _rereads(term: Term, child: Term) -> bool:
    """True if a term reads an element of a child for more than one of its elements."""
    if term.operator.name == "compute":
        return category_of(term) in (Category.CONTRACTION, Category.NORMALIZATION)
    if term.operator.moves and isinstance(term.type, AccessType):
        return term.access.size > sum(c.access.size for c in term.children)
    return term.operator.name not in ("cast", "bitcast", *_READ_ONCE)


def _skips(term: Term) -> bool:
    """True if a term may skip elements of its operands."""
    return term.operator.moves and term.access.size != sum(child.access.size for child in term.children)


def _occurrences(term: Term, child: Term) -> int:
    """Returns how often the formula of a term contains the formula of a child."""
    if term.operator.name != "compute" or category_of(term) is not Category.FOLD:
        return 1
    return 1 if child.operator.name == "access-product" else child.access.item[0]
