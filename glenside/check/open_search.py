"""Searches for cheaper sums and products between the layers of a program with open sizes.

The search of fixed sizes runs on a program whose sizes are open integers, so its forms have expressions of the open
sizes in place of numbers. Costs alone are those of given sizes. A form is compared exactly with what it replaces at
several sizes, and the program with all its forms with the program as it is written.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import prod

from glenside.algebra.merging import SharedProduct, is_contraction, stored
from glenside.algebra.search import cheapest_algebra
from glenside.check.exact import check
from glenside.check.layer_variants import Change, LayerVariants
from glenside.check.verdicts import NOT_CHECKED
from glenside.codegen.open_sizes.open_terms import program_at, program_of_all_sizes
from glenside.codegen.open_sizes.samples import sample_sizes, sizes_of, verified_sizes
from glenside.codegen.open_sizes.template import NotUniform
from glenside.egraph.saturation import INTERRUPTED
from glenside.ir.errors import GlensideError
from glenside.ir.open_integer import value_at
from glenside.ir.open_program import OpenProgram, sizes_in_words
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term
from glenside.passes.scalar_simplification import with_simpler_elements
from glenside.targets.base import PricesAlgebra, ProductPrices, Target

_SECONDS, _LEAST_CHECKED, _MOST_CHECKED = 2.0, 2, 6
"""The time limit of the check of a form at several sizes, in seconds, and the least and the most sizes."""
_PATIENCE, _PATIENCE_OF_PROGRAM = 10.0, 4.0
"""The time limits of all checks of a form, and of a whole program, in seconds: what is not compared then is unknown."""
_MOST_SEARCHED, _MOST_POINTS, _POINTS = 4, 16, 6
"""The most sizes that are searched, and those at which costs are compared, in all and of each open size."""
_WORTH = 0.05
"""Minimum share of the predicted cost at some sizes that a further form saves."""
_MOST_FORMS = 3


@dataclass(frozen=True)
class _PricesAt:
    """The prices of a target for products whose sizes are open integers, at given sizes."""

    own: ProductPrices
    sizes: Mapping[str, int]

    @property
    def times_elements(self) -> bool:
        return self.own.times_elements

    def count(self, size: int) -> int:
        return value_at(size, self.sizes)

    def product(self, groups: int, rows: int, depth: int, columns: int, read: int) -> float:
        return self.own.product(*map(self.count, (groups, rows, depth, columns, read)))

    def elementwise(self, read: int, written: int) -> float:
        return self.own.elementwise(self.count(read), self.count(written))


@dataclass(frozen=True)
class OpenForm:
    """A form of a program with open sizes.

    program  the form, with open integers; None for the program as it is written, which is then built at each size
    written  the program as it is written, before the passes of processors, with open integers
    found    the sizes at which it was found
    pairs    what it computes otherwise: as it is written, and in this form
    taken    the candidates that were taken, in words
    """

    program: Program | None = None
    written: Program | None = None
    found: Mapping[str, int] = field(default_factory=dict)
    pairs: tuple[tuple[Program, Program], ...] = ()
    taken: tuple[str, ...] = ()

    @property
    def term(self) -> Term:
        """The term of the form, which has been searched for."""
        assert self.program is not None
        return self.program.term

    def of(self, written: Program, sizes: Mapping[str, int]) -> Program:
        """Returns this form of the program of given sizes. Raises TypeMismatch."""
        if self.program is None:
            return written
        own = program_at(self.program, sizes)
        return replace(written, term=own.term, layers=own.layers, labels={}, names={}, origins={}, nodes={})

    def is_for(self, own: Program, sizes: Mapping[str, int]) -> bool:
        """True if this is a form of a program of given sizes, before the passes of processors: it is that of all sizes.

        A program may be another one at some sizes, such as 1.
        """
        if self.program is None or self.written is None:
            return False
        return program_at(self.written, sizes).term is own.term

    def __str__(self) -> str:
        """Says at which sizes it was found, and what it changes."""
        return f"Found at {sizes_in_words(self.found)}: {'; '.join(self.taken)}" if self.found else "As it is written"


@dataclass(frozen=True)
class Choice:
    """Forms of a program, and the cheapest of them at given sizes.

    points  the sizes at which costs were compared, of each open size
    best    the number of the cheapest form for the numbers of these points
    """

    forms: Sequence[OpenForm]
    points: Mapping[str, Sequence[int]] = field(default_factory=dict)
    best: Mapping[tuple[int, ...], int] = field(default_factory=dict)

    def at(self, sizes: Mapping[str, int]) -> int:
        """Returns the number of the form for given sizes: the cheapest one at the nearest points, by ratio."""
        return self.best[tuple(_nearest(own, sizes[name]) for name, own in self.points.items())] if self.best else 0


def _nearest(points: Sequence[int], size: int) -> int:
    """Returns the number of the point whose ratio to a size is nearest to 1."""
    above = bisect_left(points, size)
    if above in (0, len(points)):
        return min(above, len(points) - 1)
    return above if points[above - 1] * points[above] < size * size else above - 1


@dataclass
class OpenSearch:
    """The search for forms of one program.

    prepare  the passes of processors
    remarks  why there are no other forms
    """

    program: OpenProgram
    target: PricesAlgebra
    prepare: Callable[[Program], Program] = lambda own: own
    remarks: list[str] = field(default_factory=list)
    _known: dict[tuple[str, tuple[int, ...]], float | None] = field(default_factory=dict)
    _equal: dict[tuple[str, str], bool] = field(default_factory=dict)
    _written: dict[tuple[int, ...], Program] = field(default_factory=dict)
    _prepared: dict[tuple[int, ...], Program] = field(default_factory=dict)

    def choice(self) -> Choice:
        """Returns the forms that pay at some sizes, or the program as it is written alone."""
        prices = self.target.product_prices()
        try:
            of_all = None if prices is None else self._of_all_sizes()
            written = self._written_of_all_sizes if of_all else None
        except (NotUniform, GlensideError) as error:
            self.remarks.append(f"not searched: {error}")
            return Choice([OpenForm()])
        if prices is None or of_all is None:
            return Choice([OpenForm()])
        forms = {of_all.term: OpenForm(of_all if self._is_of_all_sizes(of_all) else None, written)}
        points = list(_points(self.program, _MOST_SEARCHED))
        ends = (points[0], points[-1]) if len(self.program.ranges) == 1 else points
        found = [self._form(of_all, prices, sizes) for sizes in ends]
        if len({form.term for form in found}) > 1:  # else the form of both ends is that between them
            found += [self._form(of_all, prices, sizes) for sizes in points if sizes not in ends]
        for form in found:
            forms.setdefault(form.term, form)
        return self._with_variants(self._chosen(of_all, prices, list(forms.values())), of_all)

    def _with_variants(self, choice: Choice, of_all: Program) -> Choice:
        """Returns the choice with the variants of layers that are predicted to be faster, if it has one form."""
        (form, *others), target = choice.forms, self.target
        if others or not isinstance(target, Target):
            return choice
        (sizes,), before = _points(self.program, 1), of_all if form.program is None else form.program

        def of_all_sizes(change: Change) -> Program | None:
            return self._of_all_sizes(lambda own, sizes: change(form.of(own, sizes)))

        try:
            variants = LayerVariants.at(form.of(self._at(sizes), sizes), target)
            found = variants.of_all_sizes(before, of_all_sizes)
        except (NotUniform, GlensideError) as error:
            self.remarks.append(f"layers are as written: {error}")
            return choice
        if found is None:
            return choice
        labels = Counter(own[0].label for own in variants.better.values())
        taken = tuple(f"{label} in {count} of {len(found.layers)} layers" for label, count in labels.items())
        other = replace(form, program=found, found=sizes, pairs=((before, found),), taken=(*form.taken, *taken))
        return self._faster(form, other, before) if self._has_equal_layers(other) else choice

    def _faster(self, form: OpenForm, other: OpenForm, before: Program) -> Choice:
        """Returns the choice of two forms, each at those of some sizes at which it is predicted to be faster."""
        points = list(_points(self.program, _MOST_SEARCHED))

        def share(sizes: Mapping[str, int]) -> float:
            return self._saved(other, sizes) / (self._predicted(before, sizes) or 1.0)

        ends = [share(points[0]), share(points[-1])]
        if min(ends) > -_WORTH:
            return Choice([other if max(ends) >= _WORTH else form])
        saved = [*map(share, points)]
        if max(saved) < _WORTH:
            return Choice([form])
        axes = {name: sorted({sizes[name] for sizes in points}) for name in self.program.ranges}
        numbers = [tuple(axes[name].index(size) for name, size in sizes.items()) for sizes in points]
        return Choice([other, form], axes, {n: int(own <= 0) for n, own in zip(numbers, saved, strict=True)})

    def _has_equal_layers(self, form: OpenForm) -> bool:
        """True if all layers of a form are equal to those of the program at several sizes."""

        def both(sizes: Mapping[str, int]) -> tuple[Program, Program]:
            own = self._at(sizes)
            return own, form.of(own, sizes)

        said = _difference(map(both, self._checked), _PATIENCE, layers=True)
        self.remarks += [f"layers are as written: {said}"] if said else []
        return not said

    def _of_all_sizes(
        self, change: Callable[[Program, Mapping[str, int]], Program] = lambda own, sizes: own
    ) -> Program | None:
        """Returns the program, changed at each size, with open integers as sizes; None if it has no products.

        Raises NotUniform, and others for a change that is no program at some size.
        """
        failed: NotUniform | GlensideError | None = None
        for samples in sample_sizes(self.program):
            try:
                programs = [change(self._at(sizes), sizes) for sizes in samples.sizes]
                if not any(map(is_product, programs[0].info.order)) or programs[0].gradient_of is not None:
                    return None
                return program_of_all_sizes(programs, samples.sizes, samples.representative, sizes_of(self.program))
            except (NotUniform, GlensideError) as error:
                failed = error
        assert failed is not None, "there are samples"
        raise failed

    @cached_property
    def _written_of_all_sizes(self) -> Program | None:
        """The program before the passes, with open integers as sizes. Raises NotUniform."""
        return self._of_all_sizes(lambda _, sizes: self._written_at(sizes))

    def _is_of_all_sizes(self, of_all: Program) -> bool:
        """True if a program of all sizes is that of sizes beside those it was made from."""
        sizes = *self._checked[:_LEAST_CHECKED], self.program.greatest
        return all(program_at(of_all, own).term is self._at(own).term for own in sizes)

    def _written_at(self, sizes: Mapping[str, int]) -> Program:
        """Returns the program of given sizes before the passes, which is kept."""
        key = tuple(sizes.values())
        if key not in self._written:
            self._written[key] = self.program.at(sizes)
        return self._written[key]

    def _at(self, sizes: Mapping[str, int]) -> Program:
        """Returns the program of given sizes after the passes, which is kept."""
        key = tuple(sizes.values())
        if key not in self._prepared:
            self._prepared[key] = self.prepare(self._written_at(sizes))
        return self._prepared[key]

    def _form(self, of_all: Program, prices: ProductPrices, sizes: Mapping[str, int]) -> OpenForm:
        """Returns the cheapest form at given sizes."""
        pairs: list[tuple[Program, Program]] = []

        def admits(given: Program, other: Program) -> bool:
            equal = self._are_equal(given, other)
            pairs.extend([(given, other)] if equal else [])
            return equal

        own = _PricesAt(prices, sizes)
        simpler, of_elements = with_simpler_elements(of_all, own)
        found = cheapest_algebra(simpler, own, lambda one: self._predicted(one, sizes), admits)
        taken = tuple(str(one) for one in (*of_elements, *found.candidates) if one.taken)
        return OpenForm(found.program, self._written_of_all_sizes, sizes, tuple(pairs), taken)

    def _predicted(self, program: Program, sizes: Mapping[str, int]) -> float | None:
        key = str(program), tuple(sizes.values())
        if key not in self._known:
            self._known[key] = self.target.predicted(program_at(program, sizes))
        return self._known[key]

    def _are_equal(self, given: Program, other: Program) -> bool:
        """True if a form is equal to what it replaces at several sizes, and exceeds no limit of the target there."""
        key = str(given), str(other)
        if key not in self._equal:

            def both(sizes: Mapping[str, int]) -> tuple[Program, Program]:
                return program_at(given, sizes), program_at(other, sizes)

            try:
                admitted = all(self.target.admits(*both(sizes)) for sizes in self._checked)
                self._equal[key] = admitted and not _difference(map(both, self._checked), _PATIENCE)
            except GlensideError:  # it is no program at some sizes
                self._equal[key] = False
        return self._equal[key]

    @cached_property
    def _checked(self) -> list[dict[str, int]]:
        """The sizes at which forms are compared, the smallest first."""
        return sorted(
            verified_sizes(self.program, _MOST_CHECKED), key=lambda sizes: prod(1 + n for n in sizes.values())
        )

    def _is_equal(self, form: OpenForm) -> bool:
        """True if the program in this form is equal to the program at several sizes.

        A remark says so if it is too large to be compared: then its forms are compared alone.
        """
        if not form.pairs:
            return True

        def both(sizes: Mapping[str, int]) -> tuple[Program, Program]:
            own = self._at(sizes)
            return own, form.of(own, sizes)

        try:
            said = _difference(map(both, self._checked[:_LEAST_CHECKED]), _PATIENCE_OF_PROGRAM)
        except GlensideError as error:
            said = str(error)
        unknown = said.startswith(NOT_CHECKED)
        what = "compared part by part" if unknown else "left out"
        self.remarks += [f"the form found at {sizes_in_words(form.found)} is {what}: {said}"] if said else []
        return unknown or not said

    def _chosen(self, of_all: Program, prices: ProductPrices, forms: Sequence[OpenForm]) -> Choice:
        """Returns the form that saves most, and those that save enough beside it at some sizes."""
        if len(forms) == 1:
            return Choice(forms)
        points = list(_points(self.program, _MOST_POINTS))
        whole = [_cost(of_all, _PricesAt(prices, sizes)) for sizes in points]
        saved = [[self._saved(form, sizes) / most for sizes, most in zip(points, whole, strict=True)] for form in forms]
        chosen = [max(range(len(forms)), key=lambda n: sum(saved[n]))]
        while len(chosen) < _MOST_FORMS:
            least = [max(saved[n][i] for n in chosen) for i in range(len(points))]
            gain, more = max((max(a - b for a, b in zip(saved[n], least, strict=True)), n) for n in range(len(forms)))
            if gain < _WORTH:
                break
            chosen.append(more)
        axes = {name: sorted({sizes[name] for sizes in points}) for name in self.program.ranges}
        numbers = [tuple(axes[name].index(size) for name, size in sizes.items()) for sizes in points]
        costs = zip(*(saved[n] for n in chosen), strict=True)
        best = {number: own.index(max(own)) for number, own in zip(numbers, costs, strict=True)}
        wrong = [forms[n] for n in chosen if not self._is_equal(forms[n])]
        if wrong:
            return self._chosen(of_all, prices, [form for form in forms if form not in wrong])
        return Choice([forms[n] for n in chosen], axes, best)

    def _saved(self, form: OpenForm, sizes: Mapping[str, int]) -> float:
        """Returns the predicted cost that a form saves at given sizes."""
        costs = [[self._predicted(one, sizes) or 0.0 for one in pair] for pair in form.pairs]
        return sum(given - other for given, other in costs)


def _points(program: OpenProgram, most: int) -> Iterator[dict[str, int]]:
    """Yields at most that many sizes that have elements, the same distance apart by ratio."""
    each = max(1, min(_POINTS, int(most ** (1 / len(program.ranges)) + 1e-9)))
    axes = []
    for low, high, step in program.ranges.values():
        least = low if low or not high else low + step
        ratio = (high / max(1, least)) ** (1 / max(1, each - 1))
        sizes = [least * ratio**n for n in range(each)] if each > 1 else [(max(1, least) * high) ** 0.5]
        axes.append(sorted({low + step * round((size - low) / step) for size in sizes}))
    yield from (dict(zip(program.ranges, sizes, strict=True)) for sizes in product(*axes))


def _cost(program: Program, prices: ProductPrices) -> float:
    """Returns the cost of the products of a program by prices."""
    products = [SharedProduct.of(t) for t in program.info.order if is_contraction(t) and not program.info.constant[t]]
    return 1.0 + sum(prices.product(*one.sizes, stored(one.a) + stored(one.b)) for one in products)


def _difference(pairs: Iterable[tuple[Program, Program]], patience: float, layers: bool = False) -> str:
    """Returns how two programs differ at one of several sizes, or "", at as many as time allows.

    patience  seconds after which a check is given up, which is no equality
    layers    compare layers by themselves, too, which is faster for programs that differ in layers alone

    Raises KeyboardInterrupt, after which a check alone would return what it has.
    """
    began = time.monotonic()
    for count, (one, other) in enumerate(pairs):
        if count >= _LEAST_CHECKED and time.monotonic() - began > _SECONDS:
            break
        report = check(one, other, layers=layers, deadline=began + patience)
        if report.stopped == INTERRUPTED:
            raise KeyboardInterrupt
        if not report.ok:
            return report.result
    return ""
