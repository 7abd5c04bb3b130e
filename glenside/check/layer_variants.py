"""Chooses variants of the layers of programs with open sizes: by a search at some sizes, and the same at all others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from glenside.egraph.saturation import INTERRUPTED, SATURATED
from glenside.egraph.search import SearchResult, search
from glenside.ir.errors import BadInput
from glenside.ir.open_integer import OpenInteger
from glenside.ir.program import Program
from glenside.ir.size_expression import Quotient
from glenside.ir.term import Term, postorder
from glenside.ir.types import AccessType
from glenside.passes.answer import CHOSEN, CostsInPlace, Problem, extract
from glenside.passes.distinct_layers import Layers, distinct_layers, reassembled
from glenside.rewrites import of_families
from glenside.targets.base import Target, Variant, Way

_WAY = Way()
_ROUNDS = 4
"""The most choices of variants that are tried: those with rounded sizes are left out."""


@dataclass
class LayerVariants:
    """The variants of the layers of one program with open sizes.

    better  layer -> its variants that are predicted to be faster than the layer as written at some sizes, the fastest
            first
    """

    target: Target
    better: dict[str, list[Variant]] = field(default_factory=dict)
    _known: dict[Term, tuple[Layers, dict[int, dict[str, Term]]]] = field(default_factory=dict)

    @staticmethod
    def at(program: Program, target: Target) -> LayerVariants:
        """Returns those that a search finds for a program of given sizes. Raises BadInput.

        Layers without windows have none: loops choose their blocks by themselves.
        """
        found = LayerVariants(target)
        windows = any(term.operator.name == "access-windows" for term in program.info.order)
        if not windows or not isinstance(target, CostsInPlace):
            return found
        problem = Problem.of(program, target, _WAY)
        answer = extract(problem, _saturated(target, problem.nodes), target, _WAY)
        for name, layer in answer.layers.items():
            ranked = sorted(layer.variants, key=target.rank)
            faster = ranked[: next(n for n, variant in enumerate(ranked) if not variant.recipe)]
            if answer.variants[CHOSEN][name].recipe and faster:
                found.better[name] = faster
        return found

    def of_all_sizes(self, written: Program, make: Callable[[Change], Program | None]) -> Program | None:
        """Returns the program with the fastest variants whose sizes need no rounding; None if there are none.

        make  returns the program of all sizes from a change of those of given sizes; None if there is none
        """
        for _ in range(_ROUNDS):
            recipes = {name: variants[0].recipe for name, variants in self.better.items()}
            found = make(partial(self._with, recipes=recipes)) if recipes else None
            rounds = set[str]() if found is None else _rounding(found, _quotients(*postorder(written.term)))
            if not rounds:
                return found
            self.better = {name: own[name in rounds :] for name, own in self.better.items()}
            self.better = {name: own for name, own in self.better.items() if own}
        return None

    def _with(self, program: Program, recipes: Mapping[str, str]) -> Program:
        """Returns a program of other sizes with the variants of recipes. Raises BadInput for a layer without them."""
        if program.term not in self._known:
            self._known[program.term] = self._terms_by_recipe(program)
        layers, variants = self._known[program.term]
        terms = [*layers.products]
        for name, recipe in recipes.items():
            place = layers.places[name][0]
            if recipe not in variants[place]:
                raise BadInput(f"{name} has no variant {recipe!r} at other sizes")
            terms[place] = variants[place][recipe]
        return reassembled(program, layers, terms, layers.body)

    def _terms_by_recipe(self, program: Program) -> tuple[Layers, dict[int, dict[str, Term]]]:
        """Returns the distinct layers of a program, and the terms of those that have faster variants, by recipe."""
        layers = distinct_layers(program)
        places = sorted({layers.places[name][0] for name in self.better})
        nodes = tuple(postorder(*(layers.products[place] for place in places)))
        searched = _saturated(self.target, nodes)
        wanted = {"", *(variant.recipe for variants in self.better.values() for variant in variants)}
        facts = {"recipe": tuple(fact for fact in searched.snapshot.facts.get("recipe", ()) if fact[1] in wanted)}
        searched = replace(searched, snapshot=replace(searched.snapshot, facts=facts))
        extractor = self.target.strategy(self.target, searched, _WAY)
        numbers = {term: number for number, term in enumerate(nodes)}
        found: dict[int, dict[str, Term]] = {}
        for place in places:
            product = layers.products[place]
            every = extractor.layer(searched.snapshot.program[numbers[product]], product).variants
            found[place] = {variant.recipe: variant.term for variant in every if variant.term is not None}
        return layers, found


Change: TypeAlias = Callable[[Program], Program]


def _saturated(target: Target, nodes: Sequence[Term]) -> SearchResult:
    """Returns the saturated e-graph of layers. Raises BadInput if it is not finished, and KeyboardInterrupt."""
    rules = of_families(target.families(_WAY, nodes))
    found = search(nodes, rules, target.rule_parameters(), reported=("recipe",))
    if found.stopped == INTERRUPTED:
        raise KeyboardInterrupt
    if found.stopped != SATURATED:
        raise BadInput(f"the search for variants of layers ended early: {found.stopped}")
    return found


def _rounding(program: Program, usual: frozenset[Quotient]) -> set[str]:
    """Returns the layers whose own terms have quotients of sizes, other than the usual ones.

    Loops over rounded numbers of tiles take long to analyze: their tiles are at other places for each size.
    """
    layers, rounding, done = {*program.layers.values()}, set[Term](), set[Term]()
    for term in postorder(program.term):
        if term in layers:
            own = [below for below in postorder(term) if below not in done]
            done.update(own)
            if _quotients(*own) - usual:
                rounding.add(term)
    return {name for name, term in program.layers.items() if term in rounding}


def _quotients(*terms: Term) -> frozenset[Quotient]:
    """Returns the quotients of sizes in the attributes of terms, and in their sizes."""
    found = set[Quotient]()
    for term in terms:
        sizes = term.access.dims if isinstance(term.type, AccessType) else ()
        for size in (*sizes, *_integers(term.attributes)):
            if isinstance(size, OpenInteger):
                found.update(size.expression.quotients())
    return frozenset(found)


def _integers(attributes: Iterable[Any]) -> Iterator[int]:
    for attribute in attributes:
        if isinstance(attribute, int):
            yield attribute
        elif isinstance(attribute, tuple):
            yield from _integers(attribute)
