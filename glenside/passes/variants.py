"""Extraction strategies: how the variants of a layer are extracted from an e-graph."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from glenside.egraph.search import SearchResult
from glenside.extract.pareto import Entry, Step, pareto
from glenside.ir.term import Term
from glenside.passes.extraction import Choice, Derivable, PricedGraph, cheapest, derivable
from glenside.targets.base import EmitsInstructions, Extracted, Target, Variant, Way

_FORMS = 3_000
"""Maximum e-nodes of a layer that are solved exactly: transposed convolutions have many phases but are solved fast."""


class Cheapest:
    """Extracts one variant of each layer: its cheapest term, by prices that add up over e-nodes, with a lower bound."""

    def __init__(self, target: Target, searched: SearchResult, way: Way) -> None:
        self.target, self.searched = target, searched
        self.priced = PricedGraph(searched.snapshot, target.prices)
        deadline = time.monotonic() + way.extract_seconds if way.method == "exact" else None
        self.choose = partial(self.priced.choose, method=way.method, deadline=deadline, exact_size=_FORMS)

    def layer(self, root: int, term: Term) -> Extracted:
        answer = self.choose([root])
        (cone,) = self.priced.cones(answer.nodes, [root])
        chosen = self.searched.snapshot.terms(answer.nodes, [root])[root]
        variant = self.target.variant(term, cone, chosen, self.searched)
        bound = None if answer.bound is None else int(getattr(answer.bound, self.target.prices.objectives[0]))
        return Extracted([variant], answer.nodes, bound, cone, answer.cost)

    def between(self, roots: Sequence[int]) -> Choice:
        """Returns the cheapest terms of the operators between layers."""
        return self.choose(roots)


class EveryMapping(Cheapest):
    """Extracts the Pareto front of each layer's mappings, in the measures of the target's front.

    The target's best variant comes first. Mappings that the target cannot run are left out.
    """

    def layer(self, root: int, term: Term) -> Extracted:
        snapshot, priced = self.searched.snapshot, self.priced
        needed = sorted(snapshot.reachable(root))
        # Sorted by content, so that ties do not depend on the order of the search.
        calls = sorted((c for c in needed if c in priced.mappings), key=priced.mappings.__getitem__)
        known = [(call, priced.cone_of(call)) for call in calls]
        if priced.constant[root] or not known:
            return super().layer(root, term)
        left = {call: self.target.variant(term, cone, term, self.searched) for call, cone in known}
        plain = Derivable(snapshot, lambda n: not (priced.is_product(n) or priced.is_instruction(n)), needed)
        made, kept = dict[int, Extracted | None](), list[int]()
        while left:
            kept = undominated(left, self.target.front or ())
            made |= {call: self._made(root, term, call, plain) for call in kept if call not in made}
            if all(made[call] is not None for call in kept):
                break
            left = {call: variant for call, variant in left.items() if made.get(call, True) is not None}
        found = sorted((one for c in kept if (one := made[c])), key=lambda one: self.target.rank(one.variants[0]))
        if not left:
            return super().layer(root, term)
        objective = self.target.prices.objectives[0]
        possible = [c for c in needed if made.get(c, True) is not None]
        least = min(int(getattr(priced.cost(n), objective)) for n in self._instructions(possible))
        return replace(found[0], variants=[one.variants[0] for one in found], bound=least)

    def _instructions(self, needed: Collection[int]) -> Iterator[int]:
        """Yields the instructions that a term may contain; a fully mapped term has at least one."""
        return (n for c in needed for n in self.searched.snapshot.classes[c] if self.priced.is_instruction(n))

    def _made(self, root: int, term: Term, call: int, plain: Derivable) -> Extracted | None:
        """Returns the cheapest term with only this instruction; None if there is none or the target cannot run it."""
        snapshot, priced = self.searched.snapshot, self.priced
        own = (n for n in snapshot.usable_of(call) if priced.is_product(n) or priced.is_instruction(n))
        members = plain.beside(own)
        if root not in members or call not in members:
            return None
        chosen = priced.choose([root], method="dag", members=members)
        (cone,) = priced.cones(chosen.nodes, [root])
        mapped = snapshot.terms(chosen.nodes, [root])[root]
        if isinstance(self.target, EmitsInstructions) and not self.target.runs(mapped):
            return None
        variant = self.target.variant(term, cone, mapped, self.searched)
        return Extracted([variant], chosen.nodes, None, cone, chosen.cost)


def undominated(known: Mapping[int, Variant], names: Sequence[str]) -> list[int]:
    """Returns the keys of the Pareto front in these measures, in the order given; of equal variants the first."""

    def amounts(variant: Variant) -> list[float]:
        return [float("inf") if (n := variant.measures[name]) is None else n for name in names]

    taken = [amounts(variant) for variant in known.values()]

    def beaten(i: int) -> bool:
        return any(
            all(a <= b for a, b in zip(taken[j], taken[i], strict=True)) and (taken[j] != taken[i] or j < i)
            for j in range(len(taken))
            if j != i
        )

    return [key for i, key in enumerate(known) if not beaten(i)]


class PricedByRecipe(Protocol):
    """Prices of the e-nodes of one e-graph, for a machine whose variants differ in their products."""

    def possible(self, n: int) -> bool:
        """True if the machine can compute the e-node."""

    def is_product(self, n: int) -> bool:
        """True if the e-node is a product: each recipe has products of its own."""

    def cost(self, n: int) -> tuple[int, ...]:
        """Returns the cost of one e-node, in the order of comparison."""

    def variant(self, recipe: str, root: int, nodes: Mapping[int, int]) -> Variant:
        """Returns the variant of a choice of e-nodes."""


class ByRecipe:
    """Extracts the cheapest term for each recipe of the rules, the empty recipe first."""

    def __init__(self, target: Any, searched: SearchResult, way: Way) -> None:
        self.snapshot = searched.snapshot
        self.pricing: PricedByRecipe = target.pricing(self.snapshot)

    def layer(self, root: int, term: Term) -> Extracted:
        needed = self.snapshot.reachable(root)
        products: dict[str, set[int]] = defaultdict(set)
        for eclass, recipe in self.snapshot.facts.get("recipe", ()):
            if eclass in needed:
                products[recipe].add(eclass)
        variants = (self._variant(root, recipe, products[recipe], needed) for recipe in sorted(products, key=_length))
        return Extracted([variant for variant in variants if variant is not None])

    def _variant(self, root: int, recipe: str, products: Collection[int], needed: Collection[int]) -> Variant | None:
        """Returns the cheapest term whose products are exactly `products`; None without one."""
        owner = self.snapshot.owner

        def allowed(n: int) -> bool:
            if owner[n] not in needed or not self.pricing.possible(n):
                return False
            return owner[n] in products or not self.pricing.is_product(n)

        members = derivable(self.snapshot, allowed)
        if root not in members:
            return None
        nodes, _ = cheapest(self.snapshot, [root], self.pricing.cost, members=members, method="dag")
        return self.pricing.variant(recipe, root, nodes)


class PricedInSteps(Protocol):
    """The time and memory of the e-nodes of one e-graph, over entries of their children."""

    members: Mapping[int, Sequence[int]]
    """class -> the e-nodes that it may choose"""

    def step(self, n: int, parts: Sequence[Entry]) -> Step | None:
        """Returns the cost of the e-node after its children; None if the machine cannot compute it."""

    def variant(self, term: Term, recipes: Sequence[str]) -> Variant:
        """Returns the variant of a term."""

    def as_written(self, term: Term) -> Variant:
        """Returns the variant of the layer as written."""


class Front:
    """Extracts the layer as written, then the Pareto front of time and memory."""

    def __init__(self, target: Any, searched: SearchResult, way: Way) -> None:
        self.target, self.snapshot = target, searched.snapshot
        self.pricing: PricedInSteps = target.pricing(self.snapshot)
        recipes = self.snapshot.facts.get("recipe", ())
        self.recipes: dict[int, str] = dict(sorted(recipes, key=lambda fact: _length(fact[1]), reverse=True))
        """class -> the recipe of its product, the shortest if there are several"""

    def layer(self, root: int, term: Term) -> Extracted:
        pricing = self.pricing
        plain = pricing.as_written(term)
        members = [pricing.members.get(c, ()) for c in range(len(self.snapshot.classes))]
        numbers = [n for nodes in members for n in nodes]
        place = {n: i for i, n in enumerate(numbers)}
        entries = pareto(
            [[place[n] for n in nodes] for nodes in members],
            [self.snapshot.nodes[n].children for n in numbers],
            root,
            lambda n, parts: pricing.step(numbers[n], parts),
        )
        others = [pricing.variant(e.value.term, self._recipes_of(e, numbers)) for e in entries]
        return Extracted([plain, *(v for v in self._undominated([plain, *others]) if v is not plain)])

    def _recipes_of(self, entry: Entry, numbers: Sequence[int]) -> tuple[str, ...]:
        """Returns the recipes of the products of an entry."""
        nodes, owner = self.snapshot.nodes, self.snapshot.owner
        used = [numbers[e.node] for e in (*entry.used, entry)]
        products = [owner[n] for n in used if nodes[n].operator in ("tiled-product", "compute")]
        return tuple(dict.fromkeys(self.recipes[c] for c in products if c in self.recipes))

    def _undominated(self, variants: Sequence[Variant]) -> list[Variant]:
        """Returns the Pareto front of the variants, in increasing order of the first measure."""
        _, second = self.target.front
        front: list[Variant] = []
        for variant in sorted(variants, key=lambda v: [v.measures[m] for m in self.target.objectives]):
            if not front or variant.measures[second] < front[-1].measures[second]:  # type: ignore[operator]
                front.append(variant)
        return front


def _length(recipe: str) -> tuple[int, str]:
    return recipe.count(":"), recipe
