"""The search for cheaper algebra in a whole program: region by region, then across regions.

A region is a term of floats with the terms below it that nothing else reads, as far as they are sums and products. Its
normal form is computed in the cheapest way that is found, if that is cheaper by a margin than the way it is written.
Then products of different regions that share an operand are merged, where that is cheaper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from glenside.algebra.factoring import Factoring
from glenside.algebra.merging import SharedProduct, is_contraction, mergings, stored
from glenside.algebra.monomials import NormalForm
from glenside.algebra.normal_form import MOVEMENT, normal_form
from glenside.builder.layout import split_at
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, build, postorder, rebuild_all
from glenside.ir.types import Tensor
from glenside.targets.base import ProductPrices

MARGIN = 0.03
"""Minimum share of a region's cost that another form must save: predicted ratios of two forms are off by 3 % in the
median.
"""


@dataclass(frozen=True)
class Candidate:
    """Another form of a region, and the costs of both forms; `taken` if it is part of the answer.

    region     the name of what is computed instead
    products   the names of its products as they are written, or its operator
    equations  the names of the rules that its form takes: `glenside rules NAME` shows a rule and its proof
    """

    region: str
    products: tuple[str, ...]
    equations: tuple[str, ...]
    given: float
    cost: float
    taken: bool

    def __str__(self) -> str:
        of = f" ({', '.join(self.products)})" if len(self.products) > 2 else ""
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
    margin     minimum share of the cost of a region that its form saves
    """
    regions = _Search(program, prices, predicted, margin).in_regions()
    merged = _Search(regions.program, prices, predicted, margin).merged()
    return Algebra(merged.program, (*regions.candidates, *merged.candidates))


@dataclass
class _Search:
    """Collects cheaper forms of terms of a program.

    forms  a term -> a cheaper term
    named  the names of new products
    """

    program: Program
    prices: ProductPrices
    predicted: Callable[[Program], float | None]
    margin: float
    forms: dict[Term, Term] = field(default_factory=dict)
    named: dict[str, Term] = field(default_factory=dict)
    candidates: list[Candidate] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._constant = dict(self.program.info.constant)
        self._names = {term: name for name, term in self.program.layers.items()}
        self._costs = _Costs(self.predicted, self.is_constant)

    def is_constant(self, term: Term) -> bool:
        """True if the elements of a term are known."""
        known = self._constant
        if term not in known:
            for each in postorder(term, without=known):
                declared = any(isinstance(a, Tensor) and a.constant for a in each.attributes)
                known[each] = each.operator.is_constant((known[c] for c in each.children), declared)
        return known[term]

    def in_regions(self) -> Algebra:
        """Returns the program with the cheapest form of each region."""
        uses = _uses(self.program)
        factoring = Factoring(self.is_constant, self.prices)
        done: set[Term] = set()
        refused: dict[str, list[Candidate]] = {}
        for term in reversed(self.program.info.order):
            if term in done or term.operator.name != "compute" or self.is_constant(term):
                continue
            root = _chosen(self.program, term)
            form = normal_form(root, lambda each: uses[each] == 1 or self.is_constant(each), term)
            if form is None or not any(map(is_product, form.inner)):
                continue
            done.update(form.inner)
            names = self._layers(each for each in form.inner if is_product(each)) or (str(term.attributes[0]),)
            text = str(self._costs.alone(root, form.leaves))
            if text in refused:  # an equal region
                self.candidates += (replace(one, region=_label(names), products=names) for one in refused[text])
                continue
            found = factoring.best(form)
            terms = () if found is None else tuple(postorder(found.term, without={*form.leaves}))
            before = len(self.candidates)
            given = _given(form, self.is_constant, self.prices)
            if (
                found is None
                or term in terms
                or not self._accepts(  # a term in terms is written as it was
                    root, found.term, form.leaves, (given, found.cost), names, found.equations
                )
            ):
                refused[text] = self.candidates[before:]
            else:
                self.forms[root] = found.term
                made = [each for each in terms if is_product(each)]
                self._name(_label(names), [each for each in made if not self.is_constant(each)])
                self._name(f"{_label(names)}-weights", [each for each in made if self.is_constant(each)])
        self.candidates.reverse()
        return self._result()

    def merged(self) -> Algebra:
        """Returns the program with products that share an operand merged."""
        for one in mergings(self.program, self.is_constant, self.prices):
            names = self._layers(one.products) or ("products",)
            both = build("construct-tuple", *one.products), build("construct-tuple", *one.slices)
            if self._accepts(*both, one.operands, (one.given, one.cost), names, one.equations):
                self.forms |= zip(one.products, one.slices, strict=True)
                self._name(_label(names), [one.product])
        return self._result()

    def _accepts(
        self,
        given: Term,
        other: Term,
        operands: Sequence[Term],
        prices: tuple[float, float],
        names: tuple[str, ...],
        equations: tuple[str, ...],
    ) -> bool:
        """Notes another form of a term if it is cheaper by prices; True if it is by predicted costs, too."""
        if prices[1] >= (1 - self.margin) * prices[0]:
            return False
        before, after = self._costs.of(given, other, operands) or prices
        taken = after < (1 - self.margin) * before
        self.candidates.append(Candidate(_label(names), names, equations, before, after, taken))
        return taken

    def _layers(self, products: Iterable[Term]) -> tuple[str, ...]:
        """Returns the names of products, in network order."""
        known = {self._names[term] for term in products if term in self._names}
        return tuple(name for name in self.program.layers if name in known)

    def _name(self, label: str, made: Sequence[Term]) -> None:
        while label in {*self.named, *self.program.layers}:
            label += "'"
        self.named |= {label if len(made) == 1 else f"{label}-{n}": each for n, each in enumerate(made, 1)}

    def _result(self) -> Algebra:
        program = _rewritten(self.program, self.forms, self.named) if self.forms else self.program
        return Algebra(program, tuple(self.candidates))


def _chosen(program: Program, term: Term) -> Term:
    """Returns the last term above, through movement that nothing else reads, that has fewer elements; or the term."""
    found = term
    while term is not program.term and len(users := program.info.users[term]) == 1:
        (term,) = users
        if term.operator.name not in MOVEMENT:
            break
        if term.access.size < found.access.size:
            found = term
    return found


def _label(products: Sequence[str]) -> str:
    """Returns a name for what is computed in place of these products; no layer of the given program has it."""
    if len(products) == 1:
        return f"{products[0]}-rewritten"
    first, last = products[0].partition("+")[0], products[-1].rpartition("+")[2]  # of what is already such a name
    merged = "-merged" if "+" in products[0] + products[-1] else ""
    return f"{first}+{last}{merged}" if len(products) == 2 else f"{first}+..+{last}{merged}"


@dataclass
class _Costs:
    """Predicted cost of each region by itself; equal regions are priced once."""

    predicted: Callable[[Program], float | None]
    constant: Callable[[Term], bool]
    known: dict[str, float | None] = field(default_factory=dict)

    def of(self, given: Term, other: Term, operands: Sequence[Term]) -> tuple[float, float] | None:
        """Returns the predicted costs of a term and of another form of it; None if they are not known."""
        both = [self._cost(root, operands) for root in (given, other)]
        return None if None in both else (both[0] or 0.0, both[1] or 0.0)

    def alone(self, root: Term, leaves: Sequence[Term]) -> Program:
        """Returns a term as a program of its own, whose inputs and constants are the leaves, named by number."""
        inputs: dict[Term, Term] = {}
        for number, leaf in enumerate(leaves):
            own = leaf.access
            tensor = Tensor(f"operand-{number}", own.dims, own.dtype, self.constant(leaf))
            inputs[leaf] = split_at(build("access-tensor", tensor), own.split)
        (own_root,) = rebuild_all([root], lambda *_: None, inputs)
        return Program(own_root)

    def _cost(self, root: Term, leaves: Sequence[Term]) -> float | None:
        alone = self.alone(root, leaves)
        text = str(alone)
        if text not in self.known:
            self.known[text] = self.predicted(alone)
        return self.known[text]


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
        if is_contraction(term):
            own = SharedProduct.of(term)
            total += prices.product(*own.sizes, stored(own.a) + stored(own.b))
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
