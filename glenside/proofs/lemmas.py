"""Defines what relations say: invariants that the proofs of other clauses assume, and relations that say nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from glenside.egraph.pattern import Fact
from glenside.rewrites.declare import V
from glenside.rewrites.facts import dims, split
from glenside.rewrites.terms import dot, vec


@dataclass(frozen=True)
class Lemma:
    """An invariant of the rows of relations: `facts` of the columns of a row."""

    name: str
    statement: str
    facts: Callable[..., Sequence[Fact]]


def _matrices(root: V, a: V, b: V, g: V, m: V, k: V, o: V) -> Sequence[Fact]:
    of_a = (dims(a) == vec(g, m, k), split(a) == 2)
    return (root == dot(a, b), *of_a, dims(b) == vec(g, o, k), split(b) == 2)


MATRICES = Lemma(
    "matrices",
    "matrices(root, a, b, g, m, k, o) holds only where root = dot(a x b), a = (g, m)(k) and b = (g, o)(k)",
    _matrices,
)
DEMANDS = Lemma(
    "positive demands",
    "a demand for rows taken together, groups packed or crossed, or slices asks for a number of at least 1",
    lambda root, *numbers: (numbers[-1] >= 1,),
)
LEMMAS = {
    "matrices": MATRICES,
    "want-rows": DEMANDS,
    "want-pack": DEMANDS,
    "want-cross": DEMANDS,
    "want-slices": DEMANDS,
}
"""Relation -> the lemma about its rows."""

PLACES = {"source", "tiled", "constant", "varies", "given", "recipe", "searched"}
"""The relations that only say where a rule applies: an equation must hold wherever its terms are."""
