"""Regions of a program and their cheapest forms, with terms that other regions read too kept or computed otherwise.

A term that several regions read is an operand of each. A region that *opens* it is computed from what is below it
instead: x W is read by (x W) V, but x (W V) does without it. That pays if it costs less by itself, or if all regions
that read the term do without it, so that it is not computed at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from glenside.algebra.factoring import Computed, Factoring
from glenside.algebra.merging import SharedProduct, is_contraction, stored
from glenside.algebra.monomials import NormalForm
from glenside.algebra.normal_form import MOVEMENT, normal_form
from glenside.builder.layout import split_at
from glenside.ir.errors import TypeMismatch
from glenside.ir.open_integer import OpenInteger
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, build, postorder, rebuild_all
from glenside.ir.types import Tensor
from glenside.targets.base import ProductPrices

MAX_OPENED = 4
"""Maximum terms that a region opens, and that it tries to open at a time."""
MAX_READERS = 64
"""Maximum readers of a term that is opened: more are the steps of a recurrence, each of which reads a part of it."""


@dataclass(frozen=True)
class Form:
    """A way to compute a region, with what it reads and its cost by prices.

    opened     terms that others read, and that it does without
    equations  the names of the rules that it takes
    """

    term: Term
    operands: tuple[Term, ...]
    cost: float
    opened: frozenset[Term] = frozenset()
    equations: tuple[str, ...] = ()


@dataclass
class Region:
    """A term of a program with the terms below it that nothing else reads.

    term   its last computation; `root` is that with movement that leaves fewer elements
    inner  its computations
    given  the form as it is written, and `form` the one that is chosen
    """

    root: Term
    term: Term
    inner: tuple[Term, ...]
    given: Form
    form: Form


@dataclass
class Regions:
    """Finds regions and their forms; equal ones once."""

    program: Program
    constant: Callable[[Term], bool]
    prices: ProductPrices
    _known: dict[str, tuple[tuple[Term, ...], Computed | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.uses = _uses(self.program)
        self.owner: dict[Term, Region] = {}
        self._chosen: dict[Term, Region] = {}
        self._opened_by: dict[Term, list[Region]] = {}
        self._factoring = Factoring(self.constant, self.prices)

    @property
    def chosen(self) -> list[Region]:
        """The regions whose forms were chosen."""
        return list(self._chosen.values())

    def choose(self, region: Region, form: Form) -> None:
        """Sets the form by which a region is computed."""
        region.form = form
        self._chosen[region.term] = region
        for each in form.opened:
            self._opened_by.setdefault(each, []).append(region)

    def region(self, term: Term) -> Region | None:
        """Returns the region whose last computation is a term; None if it has no products."""
        if term in self.owner or term.operator.name != "compute" or self.constant(term):
            return None
        root = _chosen(self.program, term)
        form = self._normal_form(root, term, frozenset())
        if form is None or not any(map(is_product, form.inner)):
            return None
        given = Form(root, form.leaves, _given(form, self.constant, self.prices))
        region = Region(root, term, form.inner, given, given)
        self.owner.update(dict.fromkeys(form.inner, region))
        return region

    def forms(self, region: Region) -> list[Form]:
        """Returns the cheapest form of a region by prices, and those that open terms which others read, if cheaper."""
        kept = self.form(region, frozenset())
        best, found = kept, [] if kept is None else [kept]
        while len((best or region.given).opened) < MAX_OPENED:
            start = best or region.given
            shared = self._shared(start)
            tried = [frozenset([each]) for each in shared] + ([frozenset(shared)] if len(shared) > 1 else [])
            opened = [self.form(region, start.opened | more) for more in tried]
            better = min((one for one in opened if one is not None), key=lambda one: one.cost, default=None)
            if better is None or better.cost >= min(start.cost, region.given.cost):
                break
            best = better
            found.append(better)
        return sorted(found, key=lambda one: one.cost)

    def _best(self, form: NormalForm) -> Computed | None:
        """Returns the cheapest form; None if it cannot be written for all open sizes, as windows with remainders."""
        try:
            return self._factoring.best(form)
        except TypeMismatch:
            if not any(isinstance(size, OpenInteger) for leaf in form.leaves for size in leaf.access.dims):
                raise
            return None

    def form(self, region: Region, opened: frozenset[Term]) -> Form | None:
        """Returns the cheapest form of a region that does without these terms; None if there is no other one."""
        form = self._normal_form(region.root, region.term, opened)
        if form is None or not opened <= {*form.inner}:
            return None
        text = str(alone(form.term, form.leaves, self.constant))
        if text not in self._known:
            self._known[text] = form.leaves, self._best(form)
        leaves, found = self._known[text]
        if found is None:
            return None
        (term,) = rebuild_all([found.term], lambda *_: None, dict(zip(leaves, form.leaves, strict=True)))
        if region.term in postorder(term, without={*form.leaves}):
            return None  # written as it was
        return Form(term, form.leaves, found.cost, opened, found.equations)

    def _normal_form(self, root: Term, term: Term, opened: frozenset[Term]) -> NormalForm | None:
        return normal_form(root, lambda each: self.uses[each] == 1 or self.constant(each) or each in opened, term)

    def _shared(self, form: Form) -> list[Term]:
        """Returns the operands of a form that are computed from others, and that others read too."""
        known = [each for each in form.operands if each.operator.name == "compute" and not self.constant(each)]
        return [each for each in known if 1 < self.uses.get(each, 1) <= MAX_READERS][:MAX_OPENED]

    def without(self, shared: Region) -> tuple[list[Region], list[Form]] | None:
        """Returns the regions that still read a term that is shared, and their forms that do without it.

        None if one of them has none, or if something else reads it.
        """
        owners = [self.owner.get(reader) for reader in self._readers(shared.term)]
        found: dict[Term, Region] = {}
        for owner in owners:
            if owner is None:
                return None
            both = [owner, *self._opened_by.get(owner.term, [])]
            found |= {one.term: one for one in both if one.term in self._chosen and shared.term not in one.form.opened}
        readers = list(found.values())
        forms = [self.form(region, region.form.opened | {shared.term}) for region in readers]
        complete = [form for form in forms if form is not None]
        return (readers, complete) if len(complete) == len(readers) else None

    def _readers(self, term: Term) -> Iterator[Term]:
        """Yields what reads the elements of a term, through movement."""
        if term is self.program.term:
            yield term
        for user in self.program.info.users[term]:
            if user.operator.name in ("compute", "construct-tuple"):
                yield user
            else:
                yield from self._readers(user)


def joint(regions: list[Region], forms: list[Form], shared: Region) -> tuple[Form, Form]:
    """Returns several regions together with a term that all of them read, and together without it."""
    given = [region.form for region in regions]
    operands = [each for one in given for each in one.operands if each is not shared.term]
    before = Form(
        _tuple(given),
        tuple(dict.fromkeys((*operands, *shared.given.operands))),
        shared.form.cost + sum(one.cost for one in given),
    )
    names = dict.fromkeys(name for one in forms for name in one.equations)
    operands = [each for one in forms for each in one.operands]
    after = Form(
        _tuple(forms),
        tuple(dict.fromkeys(operands)),
        sum(one.cost for one in forms),
        frozenset([shared.term]),
        tuple(names),
    )
    return before, after


def _tuple(forms: list[Form]) -> Term:
    return forms[0].term if len(forms) == 1 else build("construct-tuple", *(one.term for one in forms))


def alone(root: Term, leaves: tuple[Term, ...], constant: Callable[[Term], bool]) -> Program:
    """Returns a term as a program of its own, whose inputs and constants are the leaves, named by number."""
    inputs: dict[Term, Term] = {}
    for number, leaf in enumerate(leaves):
        own = leaf.access
        tensor = Tensor(f"operand-{number}", own.dims, own.dtype, constant(leaf))
        inputs[leaf] = split_at(build("access-tensor", tensor), own.split)
    (own_root,) = rebuild_all([root], lambda *_: None, inputs)
    return Program(own_root)


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
