"""The search for cheaper algebra in a whole program, one region at a time.

A region is a term of floats with the terms below it that nothing else reads, as far as they are sums and products. Its
normal form is computed in the cheapest way that is found, if that is cheaper by a margin than the way it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from glenside.algebra.factoring import Factoring
from glenside.algebra.normal_form import NormalForm, normal_form
from glenside.builder.layout import split_at
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, build, postorder, rebuild, rebuild_all
from glenside.ir.types import Tensor
from glenside.targets.base import ProductPrices

MARGIN = 0.03
"""Minimum share of a region's cost that another form must save: predicted ratios of two forms are off by 3 % in the
median.
"""


@dataclass(frozen=True)
class Candidate:
    """Another form of a region, and the costs of both forms; `taken` if it is part of the answer.

    region     the name of its last product, or its operator
    products   the names of its products as they are written
    equations  the equations that its form takes
    """

    region: str
    products: tuple[str, ...]
    equations: tuple[str, ...]
    given: float
    cost: float
    taken: bool

    def __str__(self) -> str:
        of = f" ({', '.join(self.products)})" if len(self.products) > 1 else ""
        what = "" if self.taken else ", which is not enough to be taken"
        return f"{self.region}{of}: {self.given:,.0f} -> {self.cost:,.0f}{what}; {'; '.join(self.equations)}"


@dataclass(frozen=True)
class Algebra:
    """The program with its cheapest regions, and all candidates in network order."""

    program: Program
    candidates: tuple[Candidate, ...]


def cheapest_algebra(
    program: Program,
    prices: ProductPrices,
    predicted: Callable[[Program], float | None] = lambda _: None,
    margin: float = MARGIN,
) -> Algebra:
    """Returns an equal program, as reals, whose sums and products cost less.

    prices     costs of single steps, by which forms are found
    predicted  the cost of a program, by which they are accepted; None if only prices are known
    margin     minimum share of the cost of a region that its form spares
    """
    constant = dict(program.info.constant)

    def is_constant(term: Term) -> bool:
        if term not in constant:
            for each in postorder(term, without=constant):
                declared = any(isinstance(a, Tensor) and a.constant for a in each.attributes)
                constant[each] = each.operator.is_constant((constant[c] for c in each.children), declared)
        return constant[term]

    uses = _uses(program)
    factoring = Factoring(is_constant, prices)
    costs = _Costs(predicted, is_constant)
    names = {term: name for name, term in program.layers.items()}
    done: set[Term] = set()
    forms: dict[Term, Term] = {}
    named: dict[str, Term] = {}
    candidates: list[Candidate] = []
    for term in reversed(program.info.order):
        if term in done or term.operator.name != "compute" or is_constant(term):
            continue
        form = normal_form(term, lambda each: uses[each] == 1 or is_constant(each))
        found = None if form is None else factoring.best(form)
        if form is None or found is None:
            continue
        done.update(form.inner)
        given, cost = _given(form, is_constant, prices), found.cost
        if cost >= (1 - margin) * given or term in postorder(found.term):  # as it is written, in other words
            continue
        given, cost = costs.of(form, found.term) or (given, cost)
        taken = cost < (1 - margin) * given
        inner = [names[each] for each in reversed(form.inner) if each in names]
        region = names.get(term) or (inner[-1] if inner else str(term.attributes[0]))
        candidates.append(Candidate(region, tuple(inner), found.equations, given, cost, taken))
        if taken:
            forms[term] = found.term
            made = [each for each in postorder(found.term, without={*_leaves(form)}) if is_product(each)]
            made = [each for each in made if not is_constant(each)]
            named |= zip(_names(inner, region, len(made)), made, strict=True)
    candidates.reverse()
    if not forms:
        return Algebra(program, tuple(candidates))
    return Algebra(_rewritten(program, forms, named), tuple(candidates))


def _names(inner: Sequence[str], region: str, count: int) -> list[str]:
    """Returns names of `count` new products: numbered ones, then the last of the region's own."""
    extra = [f"{region}-{number}" for number in range(1, count - len(inner) + 1)]
    return [*extra, *inner[max(len(inner) - count, 0) :]]


@dataclass
class _Costs:
    """Predicted cost of each region by itself; equal regions are priced once."""

    predicted: Callable[[Program], float | None]
    constant: Callable[[Term], bool]
    known: dict[str, float | None] = field(default_factory=dict)

    def of(self, form: NormalForm, other: Term) -> tuple[float, float] | None:
        """Returns the predicted costs of a region as it is written and in another form; None if they are not known."""
        leaves = _leaves(form)
        both = [self._cost(root, leaves) for root in (form.term, other)]
        return None if None in both else (both[0] or 0.0, both[1] or 0.0)

    def _cost(self, root: Term, leaves: Sequence[Term]) -> float | None:
        inputs: dict[Term, Term] = {}
        for number, leaf in enumerate(leaves):
            if not leaf.children:
                continue
            own = leaf.access
            tensor = Tensor(f"operand-{number}", own.dims, own.dtype, self.constant(leaf))
            inputs[leaf] = split_at(build("access-tensor", tensor), own.split)
        alone = Program(rebuild(root, lambda term, _: inputs.get(term)))
        text = str(alone)
        if text not in self.known:
            self.known[text] = self.predicted(alone)
        return self.known[text]


def _leaves(form: NormalForm) -> list[Term]:
    """Returns the operands of a region that occur in it as it is written."""
    written = set(postorder(form.term))
    found: dict[Term, None] = {}
    stack = [one.term for monomial in form.monomials for one in monomial.operands]
    while stack:
        term = stack.pop()
        if term in written:
            found[term] = None
        else:
            stack += term.children
    return list(found)


def _uses(program: Program) -> Mapping[Term, int]:
    """Returns for each term how many computations and results read its elements, through any movement."""
    users = program.info.users
    uses: dict[Term, int] = {}
    for term in reversed(program.info.order):
        own = users[term]
        uses[term] = int(term is program.term) + sum(
            1 if user.operator.name in ("compute", "construct-tuple") else uses[user] for user in own
        )
    return uses


def _given(form: NormalForm, constant: Callable[[Term], bool], prices: ProductPrices) -> float:
    """Returns the cost of a region as it is written."""
    total = 0.0
    for term in form.inner:
        if constant(term):
            continue
        (x,) = term.children
        if is_product(term):
            a, b = x.children
            (shared,) = x.attributes
            assert isinstance(shared, int)
            groups = a.access.shape.take(shared).product()
            rows, columns = a.access.shape.drop(shared).product(), b.access.shape.drop(shared).product()
            total += prices.product(groups, rows, a.access.item.product(), columns)
        else:
            total += prices.elementwise(x.access.size, term.access.size)
    return total


def _rewritten(program: Program, forms: Mapping[Term, Term], named: Mapping[str, Term]) -> Program:
    """Returns the program with other forms of regions; operands of a form may have other forms themselves."""
    done: dict[Term, Term] = {}

    def changed(term: Term) -> Term:
        stack = [term]
        while stack:
            top = stack[-1]
            if top in done:
                stack.pop()
                continue
            form = forms.get(top)
            wanted: Sequence[Term] = top.children if form is None else (form,)
            missing = [each for each in wanted if each not in done]
            if missing:
                stack += missing
                continue
            stack.pop()
            if form is not None:
                done[top] = done[form]
            else:
                rebuild_all([top], lambda *_: None, done)
        return done[term]

    new = changed(program.term)
    both = {**{name: term for name, term in program.layers.items() if name not in named}, **named}
    layers = {name: done[term] for name, term in both.items() if term in done and is_product(done[term])}
    kept = {name: done[term] for name, term in program.names.items() if term in done}
    return replace(program, term=new, layers=layers, names=kept)
