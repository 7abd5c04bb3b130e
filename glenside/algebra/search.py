"""The search for cheaper algebra in a whole program: region by region, then across regions.

A region is a term of floats with the terms below it that nothing else reads, as far as they are sums and products. Its
normal form is computed in the cheapest way that is found, if that is cheaper by a margin than the way it is written.
Then products of different regions that share an operand are merged, where that is cheaper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from glenside.algebra.merging import SharedProduct, is_contraction, mergings
from glenside.algebra.regions import Form, Region, Regions, alone, joint
from glenside.algebra.selections import selection
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
    admitted   False if it exceeds a limit of the target, such as a bound of errors
    equations  the names of the rules that its form takes: `glenside rules NAME` shows a rule and its proof
    """

    region: str
    products: tuple[str, ...]
    equations: tuple[str, ...]
    given: float
    cost: float
    taken: bool
    admitted: bool = True

    def __str__(self) -> str:
        of = f" ({', '.join(self.products)})" if len(self.products) > 2 else ""
        refused = ", which is not enough to be taken" if self.admitted else ", which exceeds a limit of the target"
        what = "" if self.taken else refused
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
    admits: Callable[[Program, Program], bool] = lambda *_: True,
    margin: float = MARGIN,
) -> Algebra:
    """Returns an equal program, as reals, whose sums and products cost less.

    prices     costs of single steps, by which forms are found
    predicted  the cost of a program, by which they are accepted; None if only prices are known
    admits     True if a form respects the limits of a target, as far as the given one does
    margin     minimum share of the cost of a region that its form saves
    """
    search = partial(_Search, prices=prices, predicted=predicted, admits=admits, margin=margin)
    moved = search(program).selected()
    regions = search(moved.program).in_regions()
    merged = search(regions.program).merged()
    return Algebra(merged.program, (*moved.candidates, *regions.candidates, *merged.candidates))


@dataclass
class _Search:
    """Collects cheaper forms of terms of a program.

    forms  a term -> a cheaper term
    named  the names of new products
    """

    program: Program
    prices: ProductPrices
    predicted: Callable[[Program], float | None]
    admits: Callable[[Program, Program], bool]
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

    def selected(self) -> Algebra:
        """Returns the program with products with matrices that only select elements as movement."""
        for term in filter(is_contraction, self.program.info.order):
            found = None if self.is_constant(term) else selection(term, self.is_constant)
            if found is not None:
                one, names = SharedProduct.of(term), self._layers([term]) or ("products",)
                cost = self.prices.product(*one.sizes, one.a.access.size + one.b.access.size)
                moved = self.prices.elementwise(0, term.access.size)
                given = Form(term, (found.operand,), cost)
                if self._accepts(given, Form(found.term, (found.operand,), moved, equations=found.equations), names):
                    self.forms[term] = found.term
        return self._result()

    def in_regions(self) -> Algebra:
        """Returns the program with the cheapest form of each region."""
        regions = Regions(self.program, self.is_constant, self.prices)
        for term in reversed(self.program.info.order):
            region = regions.region(term)
            if region is not None:
                found = regions.forms(region)
                if not self._is_left_out(region, found, regions):
                    names = self._names_of(region)
                    better = (one for one in found if self._accepts(region.given, one, names))
                    regions.choose(region, next(better, region.given))
        for region in regions.chosen:
            if region.form is not region.given:
                self.forms[region.root] = region.form.term
                terms = postorder(region.form.term, without={*region.form.operands})
                made = [each for each in terms if is_product(each)]
                label = _label(self._names_of(region))
                self._name(label, [each for each in made if not self.is_constant(each)])
                self._name(f"{label}-weights", [each for each in made if self.is_constant(each)])
        self.candidates.reverse()
        return self._result()

    def _is_left_out(self, region: Region, forms: Sequence[Form], regions: Regions) -> bool:
        """True if all regions that read this one do without it, or cost less together if they do; then they do."""
        if regions.uses[region.term] == 1 or (found := regions.without(region)) is None:
            return False
        readers, others = found
        if readers:
            kept = replace(region, form=min((region.given, *forms), key=lambda one: one.cost))
            names = tuple(dict.fromkeys(name for one in (*readers, region) for name in self._names_of(one)))
            if not self._accepts(*joint(readers, others, kept), names):
                return False
        for reader, other in zip(readers, others, strict=True):
            regions.choose(reader, other)
        return True

    def _names_of(self, region: Region) -> tuple[str, ...]:
        """Returns the names of the products of a region as they are written, or its operator."""
        products = filter(is_product, region.inner)
        return self._layers(products) or (str(region.term.attributes[0]),)

    def merged(self) -> Algebra:
        """Returns the program with products that share an operand merged."""
        for one in mergings(self.program, self.is_constant, self.prices):
            names = self._layers(one.products) or ("products",)
            given = Form(build("construct-tuple", *one.products), one.operands, one.given)
            other = Form(build("construct-tuple", *one.slices), one.operands, one.cost, equations=one.equations)
            if self._accepts(given, other, names):
                self.forms |= zip(one.products, one.slices, strict=True)
                self._name(_label(names), [one.product])
        return self._result()

    def _accepts(self, given: Form, other: Form, names: tuple[str, ...]) -> bool:
        """Notes another form if it is cheaper by prices; True if it is by predicted costs, too."""
        if other.cost >= (1 - self.margin) * given.cost:
            return False
        before, after = self._costs.of(given, other)
        cheaper = after < (1 - self.margin) * before
        admitted = not cheaper or self.admits(self._costs.program(given), self._costs.program(other))
        taken = cheaper and admitted
        self.candidates.append(Candidate(_label(names), names, other.equations, before, after, taken, admitted))
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

    def of(self, given: Form, other: Form) -> tuple[float, float]:
        """Returns the predicted costs of two forms, or those by prices."""
        both = self._cost(given), self._cost(other)
        return (given.cost, other.cost) if both[0] is None or both[1] is None else (both[0], both[1])

    def program(self, form: Form) -> Program:
        """Returns a form as a program of its own."""
        return alone(form.term, form.operands, self.constant)

    def _cost(self, form: Form) -> float | None:
        program = self.program(form)
        text = str(program)
        if text not in self.known:
            self.known[text] = self.predicted(program)
        return self.known[text]


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
