"""Extracts an answer from a saturated e-graph: variants of each layer, the best of each, and their program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from glenside.analysis.layers import product_sizes
from glenside.egraph.saturation import INTERRUPTED, TIME_LIMIT
from glenside.egraph.search import SearchResult
from glenside.egraph.snapshot import Snapshot
from glenside.ir.bounds import MOST_MACS, whole
from glenside.ir.errors import GlensideError
from glenside.ir.interrupts import answered
from glenside.ir.program import Program
from glenside.ir.term import Term, postorder
from glenside.passes.distinct_layers import Layers, distinct_layers, reassembled
from glenside.passes.extraction import PricedGraph, no_dearer
from glenside.passes.network import cheapest_network, layers_as_written, network_of
from glenside.passes.outlining import Outlined, outlined
from glenside.passes.variants import Cheapest
from glenside.targets.base import (
    Amounts,
    Cone,
    Cost,
    Extracted,
    Extractor,
    Prepares,
    Scope,
    Target,
    TracksMemory,
    Variant,
    Way,
)

CHOSEN = "chosen"


class Unfinished(GlensideError):
    """The search stopped before the e-graph held an answer."""


class TimeIsUp(Exception):
    """The time limit of a refinement is over; raised by `Way.on_step`."""


@dataclass(frozen=True)
class Problem:
    """The input of one e-graph: `nodes`, children first; `roots` are the distinct layers among them.

    For the scope PROGRAM `layers` is None and the roots are the result and the layers. For the scope NETWORK the root
    is the result, and parts without a choice of layout are outlined.
    """

    program: Program
    scope: Scope
    layers: Layers | None
    roots: tuple[Term, ...]
    nodes: tuple[Term, ...]
    outlined: Outlined | None = None

    @classmethod
    def of(cls, program: Program, target: Target, way: Way) -> Problem:
        """Builds the problem of a program for a target. Raises BadInput for a layer with too many multiply-adds."""
        for name, layer in program.layers.items():
            whole(f"the number of multiply-adds of {name}", product_sizes(layer).macs, most=MOST_MACS)
        scope = target.scope(way)
        if scope is Scope.NETWORK:
            found = outlined(program) if target.outlines else Outlined.nothing(program)
            term = found.program.term
            # A product of constants is inside an outlined constant, and still a layer.
            inside = {*postorder(term)}
            apart = [layer for layer in found.layers.values() if layer not in inside]
            return cls(program, scope, None, (term,), tuple(postorder(*apart, term)), found)
        if scope is Scope.PROGRAM:
            roots = program.roots
            return cls(program, scope, None, roots, tuple(postorder(*roots)))
        if isinstance(target, Prepares):
            layers = distinct_layers(program, target.leaf_kind(program))
            roots = tuple(map(target.root, layers.products))
        else:
            layers = distinct_layers(program)
            roots = layers.products
        between = layers.body if scope is Scope.LAYERS_AND_BETWEEN else ()
        return cls(program, scope, layers, roots, tuple(postorder(*between[1:], *roots, *between[:1])))

    def classes(self, snapshot: Snapshot, terms: Sequence[Term]) -> list[int]:
        """Returns the classes of terms of the problem."""
        index = {term: i for i, term in enumerate(self.nodes)}
        return [snapshot.program[index[term]] for term in terms]

    @property
    def distinct(self) -> int:
        """The number of distinct layers."""
        return len(set(self.program.layers.values()) if self.layers is None else self.layers.products)


@dataclass(frozen=True)
class Answer:
    """The chosen program and all its candidates.

    prepared   the program whose layers were searched
    layers     layer -> its extracted variants; two names of one product share them
    variants   "chosen" or a baseline -> layer -> its variant
    programs   "chosen" or a baseline -> the program of these variants, if all are terms
    choice     class -> e-node of the e-graph
    cost       cost of the whole program, if prices add up over e-nodes
    in_own_order  the chosen program with its layers in the original layouts, if these differ
    roots      layer -> its e-class; "" -> the e-class of the result, if it has one
    stands_for class of the formal result of a separately searched layer -> the class of the layer
    stopped    why the refinement stopped early, or ""
    """

    prepared: Program
    egraph: Snapshot
    layers: Mapping[str, Extracted]
    variants: Mapping[str, Mapping[str, Variant]]
    programs: Mapping[str, Program]
    choice: Mapping[int, int] = field(default_factory=dict)
    cost: Cost | None = None
    in_own_order: Program | None = None
    roots: Mapping[str, int] = field(default_factory=dict)
    stands_for: Mapping[int, int] = field(default_factory=dict)
    stopped: str = ""

    @property
    def program(self) -> Program:
        return self.programs[CHOSEN]

    @property
    def fronts(self) -> Mapping[str, Sequence[Variant]]:
        """Layer -> its variants."""
        return {name: of_layer.variants for name, of_layer in self.layers.items()}

    @property
    def compared(self) -> Program:
        """The chosen program, with layers that can be compared with the original's."""
        return self.in_own_order or self.program


@dataclass(frozen=True)
class Placed:
    """The places of the distinct layers in a program."""

    original: Program
    layers: Layers
    body: Sequence[Term]

    @property
    def numbers(self) -> dict[str, int]:
        """Layer -> index of its distinct layer."""
        return {name: place[0] for name, place in self.layers.places.items()}

    def program(self, variants: Sequence[Variant]) -> Program:
        """Returns the program with a variant for each distinct layer."""
        terms = [v.term for v in variants if v.term is not None]
        return reassembled(self.original, self.layers, terms, self.body)


Refinement: TypeAlias = Callable[[Sequence[Extracted], Placed], Sequence[Extracted]]
"""(variants of distinct layers, their places in the program) -> the same variants, with their cost in these places."""


class CostsInPlace(ABC):
    """A capability of targets: the cost of a variant depends on its neighbours in the program."""

    @abstractmethod
    def in_place(self, found: Sequence[Extracted], placed: Placed, way: Way) -> Sequence[Extracted]:
        """Returns the variants of distinct layers with their cost in place."""

    @abstractmethod
    def refinements(self, way: Way) -> Sequence[Refinement]:
        """Returns the slow refinements of costs in place, in order; an interrupt keeps the answer before it."""


def extract(
    problem: Problem,
    searched: SearchResult,
    target: Target,
    way: Way,
    on_draft: Callable[[Answer], None] = lambda _: None,
) -> Answer:
    """Extracts the best answer of the e-graph.

    on_draft  callback for each answer that will still be refined, so that it can be saved
    """
    if problem.layers is not None:
        return _of_layers(problem, problem.layers, searched, target, way, on_draft)
    if problem.scope is Scope.PROGRAM:
        return _of_program(problem, searched, target, way)
    return _of_network(problem, searched, target)


def _of_layers(
    problem: Problem,
    layers: Layers,
    searched: SearchResult,
    target: Target,
    way: Way,
    on_draft: Callable[[Answer], None],
) -> Answer:
    """Extracts each distinct layer separately, and puts it in all its places."""
    program, snapshot = problem.program, searched.snapshot
    extractor: Extractor = target.strategy(target, searched, way)
    roots = problem.classes(snapshot, problem.roots)
    found = [extractor.layer(c, term) for c, term in zip(roots, problem.roots, strict=True)]
    choice: dict[int, int] = {}
    for of_layer in found:
        choice.update((c, n) for c, n in of_layer.choice.items() if c not in choice)
    body: Sequence[Term] = layers.body
    cost = None
    if problem.scope is Scope.LAYERS_AND_BETWEEN:
        assert isinstance(extractor, Cheapest), "what is between layers has prices that add up"
        classes = problem.classes(snapshot, layers.body)
        between = no_dearer(extractor.priced, extractor.between(classes), problem.nodes, classes)
        choice.update((c, n) for c, n in between.nodes.items() if c not in choice)
        terms = snapshot.terms(between.nodes, classes)
        body, cost = [terms[c] for c in classes], between.cost
        for number in {program.layers[name]: place[0] for name, place in layers.places.items()}.values():
            cost = cost.plus(found[number].cost)
    placed = Placed(program, layers, body)
    refinements: Sequence[Refinement] = ()
    if isinstance(target, CostsInPlace):
        found, refinements = [*target.in_place(found, placed, way)], target.refinements(way)

    def made(found: Sequence[Extracted]) -> Answer:
        return _chosen(problem, placed, searched, target, found, choice, cost)

    return _refined(made, found, placed, refinements, on_draft)


def _refined(
    made: Callable[[Sequence[Extracted]], Answer],
    found: Sequence[Extracted],
    placed: Placed,
    refinements: Sequence[Refinement],
    on_draft: Callable[[Answer], None],
) -> Answer:
    """Returns the answer after the refinements; after a time limit or Ctrl-C, the last draft."""
    answer = draft = made(found)
    try:
        for refine in refinements:
            on_draft(answer)
            draft = answer
            found = refine(found, placed)
            answer = made(found)
    except KeyboardInterrupt:
        answered()
        return replace(draft, stopped=INTERRUPTED)
    except TimeIsUp:
        return replace(draft, stopped=TIME_LIMIT)
    return answer


def _chosen(
    problem: Problem,
    placed: Placed,
    searched: SearchResult,
    target: Target,
    found: Sequence[Extracted],
    choice: Mapping[int, int],
    cost: Cost | None,
) -> Answer:
    """Returns the answer with the best variant of each layer, and the baselines."""
    program, layers = placed.original, placed.layers
    best = _best(program, target, layers, found)
    named = [
        {**target.baselines(term, of_layer.variants), CHOSEN: variant}
        for term, of_layer, variant in zip(layers.products, found, best, strict=True)
    ]
    programs, choices = {}, list(named[0]) if named else [CHOSEN]
    for which in choices:
        built = [variants[which].term for variants in named]
        made = [term for term in built if term is not None]
        if len(made) == len(built):
            programs[which] = reassembled(program, layers, made, placed.body)
    numbers = placed.numbers
    of_names = {name: found[n] for name, n in numbers.items()}
    variants = {which: {name: named[n][which] for name, n in numbers.items()} for which in choices}
    if cost is not None:
        _count_once(program, target, searched, of_names, variants.get(CHOSEN, {}))
    classes = problem.classes(searched.snapshot, problem.roots)
    roots = {name: classes[n] for name, n in numbers.items()}
    if problem.scope is Scope.LAYERS_AND_BETWEEN:
        roots[""] = problem.classes(searched.snapshot, layers.body[:1])[0]
    put = {*problem.nodes}
    inside = {formal: roots[name] for name, p in program.layers.items() if (formal := layers.results[p]) in put}
    stand = dict(zip(problem.classes(searched.snapshot, [*inside]), inside.values(), strict=True))
    return Answer(program, searched.snapshot, of_names, variants, programs, choice, cost, roots=roots, stands_for=stand)


def _count_once(
    program: Program,
    target: Target,
    searched: SearchResult,
    extracted: dict[str, Extracted],
    chosen: dict[str, Variant],
) -> None:
    """Sets the cost of a repeated product to that of a shared one: the first name pays."""
    seen: set[Term] = set()
    for name, product in program.layers.items():
        if product in seen:
            cone = Cone(constant=(known := extracted[name].cone) is not None and known.constant)
            chosen[name] = target.variant(product, cone, product, searched)
            extracted[name] = Extracted([chosen[name]], cone=cone)
        seen.add(product)


def _best(program: Program, target: Target, layers: Layers, found: Sequence[Extracted]) -> list[Variant]:
    """Returns the best variant of each layer within the budget.

    While the whole program exceeds the budget, the layer with the largest peak takes its next smaller variant. Stops
    if the program fits or no layer has a smaller variant.
    """
    if not all(extracted.variants for extracted in found):
        raise Unfinished("the search stopped before every layer had a variant")
    best = [target.best(extracted.variants) for extracted in found]
    budget = target.budget
    if budget is None or budget.spares_baseline:
        return best
    held: dict[int, int] = {}
    while True:
        whole = target.whole(reassembled(program, layers, [v.term for v in best if v.term is not None], layers.body))
        if whole is None or budget.excess(whole) <= 0:
            return best
        if not held:
            beside = target.held(program) if isinstance(target, TracksMemory) else {}
            for name, (number, _) in layers.places.items():
                held[number] = max(held.get(number, 0), beside.get(name, 0))
        size = budget.measure
        smaller: dict[int, Variant] = {}
        for number, (of_layer, variant) in enumerate(zip(found, best, strict=True)):
            less = [v for v in of_layer.variants if _amount(v.measures, size) < _amount(variant.measures, size)]
            if less:
                smaller[number] = min(less, key=lambda v: [_amount(v.measures, m) for m in target.objectives])
        if not smaller:
            return best
        pressing = max(smaller, key=lambda n: _amount(best[n].measures, size) + held[n])
        best[pressing] = smaller[pressing]


def _amount(amounts: Amounts, measure: str) -> float:
    amount = amounts[measure]
    return float("inf") if amount is None else amount


def _of_program(problem: Problem, searched: SearchResult, target: Target, way: Way) -> Answer:
    """Extracts the whole program at once: e-nodes shared by layers are chosen and counted once."""
    snapshot, program = searched.snapshot, problem.program
    priced = PricedGraph(snapshot, target.prices)
    root, *roots = problem.classes(snapshot, problem.roots)
    found_answer = priced.choose([root, *roots], boundaries=frozenset(roots), method=way.method)
    answer = no_dearer(priced, found_answer, problem.nodes, [root, *roots])
    terms = snapshot.terms(answer.nodes, [root, *roots])
    layers = {name: terms[c] for name, c in zip(program.layers, roots, strict=True)}
    optimized = replace(program, term=terms[root], layers=layers, names={})
    found = priced.cones(answer.nodes, roots)
    extracted = {
        name: Extracted([target.variant(product, cone, terms[c], searched)], cone=cone)
        for (name, product), cone, c in zip(program.layers.items(), found, roots, strict=True)
    }
    programs, places = {CHOSEN: optimized}, {**dict(zip(program.layers, roots, strict=True)), "": root}
    named = _named(program, target, extracted)
    return Answer(program, snapshot, extracted, named, programs, answer.nodes, answer.cost, roots=places)


def _of_network(problem: Problem, searched: SearchResult, target: Target) -> Answer:
    """Extracts the network as one term; returns the program itself if it costs less as a whole."""
    snapshot, program, found = searched.snapshot, problem.program, problem.outlined
    assert found is not None, "a network that is searched as one is outlined"
    priced = PricedGraph(snapshot, target.prices)
    (root,) = problem.classes(snapshot, problem.roots)
    choice, cost = cheapest_network(priced, problem.nodes, root, "dag")
    classes = problem.classes(snapshot, list(found.layers.values()))
    made = network_of(found.program, snapshot, choice, len(problem.nodes))
    done: dict[Term, Term] = {}
    network = min((found.inlined(made, done), program), key=lambda p: _ordered(target, p))
    compared = program
    if network is not program:
        layers = layers_as_written(found.layers, snapshot, choice, classes)
        compared = found.inlined(replace(made, layers=layers), done)
    extracted = {}
    for (name, product), eclass in zip(program.layers.items(), classes, strict=True):
        instruction_cost = priced.instruction_costs.get(eclass)
        cone = Cone([] if instruction_cost is None else [instruction_cost])
        variant = target.variant(product, cone, network.layers.get(name, product), searched)
        bound = None if instruction_cost is None or target.objectives[0] != "cycles" else instruction_cost.cycles
        extracted[name] = Extracted([variant], bound=bound, cone=cone)
    variants = _named(program, target, extracted)
    programs = {**dict.fromkeys(variants or ["as written"], program), CHOSEN: network}
    places = {**dict(zip(program.layers, classes, strict=True)), "": root}
    return Answer(program, snapshot, extracted, variants, programs, choice, cost, compared, places)


def _ordered(target: Target, program: Program) -> list[float]:
    whole = target.whole(program)
    assert whole is not None, f"{target.name} is searched as a network, so its method `whole` must tell measures"
    return [_amount(whole, measure) for measure in target.objectives if measure in whole]


def _named(program: Program, target: Target, extracted: Mapping[str, Extracted]) -> dict[str, dict[str, Variant]]:
    """Returns the variants by name: the chosen one, of layers that have a single variant, and the baselines."""
    variants: dict[str, dict[str, Variant]] = {}
    for name, product in program.layers.items():
        known = extracted[name].variants
        for which, variant in {**target.baselines(product, known), CHOSEN: known[0]}.items():
            variants.setdefault(which, {})[name] = variant
    return variants
