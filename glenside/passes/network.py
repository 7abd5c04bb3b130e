"""Passes by equality saturation: a whole network in one e-graph, and the cheapest equal network out of it.

One is batch-norm folding: the scales of products are folded into their weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from glenside.builder.layout import rearrange, split_at
from glenside.egraph.rule import Parameters
from glenside.egraph.saturation import INTERRUPTED, SATURATED, Progress, declared
from glenside.egraph.search import Search, search
from glenside.egraph.snapshot import Snapshot
from glenside.ir.operator import Category, Keeps
from glenside.ir.operators import compute_of
from glenside.ir.program import Program, is_product
from glenside.ir.rearrangement import Rearrangement
from glenside.ir.term import Term, build, postorder, rebuild_all, tensors
from glenside.ir.types import AccessType, Dims, Tensor
from glenside.passes.extraction import PricedGraph, cheapest_tree, no_dearer
from glenside.rewrites import of_families
from glenside.rewrites.layout import folding
from glenside.targets.base import Cost, Prices, free


@dataclass(frozen=True)
class Rewritten:
    """The cheapest network found, its cost and its e-graph."""

    program: Program
    cost: Cost
    egraph: Snapshot
    progress: Progress

    @property
    def stopped(self) -> str:
        return self.progress.stopped or INTERRUPTED


def uninterrupted(program: Program, stopped: str) -> Program:
    """Returns the program of a pass. Raises KeyboardInterrupt if its search was interrupted."""
    if stopped == INTERRUPTED:
        raise KeyboardInterrupt
    return program


def rewritten(
    program: Program,
    families: Sequence[str],
    parameters: Parameters,
    prices: Prices,
    run: Search | None = None,
    *,
    method: str = "dag",
) -> Rewritten:
    """Finds the cheapest equal network, with all nodes in one e-graph under these rule families.

    A stopped search returns the best network so far, at most as dear as the program. Products keep the names of their
    layers.
    """
    run = run or Search()
    nodes = program.info.order
    answer = search(
        nodes,
        of_families(families),
        parameters,
        run.limits,
        worker=run.worker(),
        on_progress=run.on_progress,
        meanwhile=run.meanwhile,
    )
    run.on_end(answer.progress)
    snapshot = answer.snapshot
    choice, cost = cheapest_network(PricedGraph(snapshot, prices), nodes, snapshot.program[len(nodes) - 1], method)
    return Rewritten(network_of(program, snapshot, choice, len(nodes)), cost, snapshot, answer.progress)


def cheapest_network(
    priced: PricedGraph, nodes: Sequence[Term], root: int, method: str
) -> tuple[Mapping[int, int], Cost]:
    """Returns the choice of e-nodes for a whole network of terms, children first, and its cost.

    If two forms of a tensor cost the same, a mix of both costs more than either. So the extraction runs twice, once
    with a penalty on the program's own forms, so that all of it may use the other form.
    """
    if priced.prices.recursive:
        return cheapest_tree(priced, root), Cost()
    find = partial(priced.choose, [root], method=method)
    both = find(), find(avoided=_own_forms(priced.snapshot))
    best = min(both, key=lambda choice: choice.cost.ordered(priced.prices.objectives))
    best = no_dearer(priced, best, nodes, [root])
    return best.nodes, best.cost


def layers_as_written(
    names: Iterable[str], snapshot: Snapshot, choice: Mapping[int, int], classes: Sequence[int]
) -> dict[str, Term]:
    """Returns layer -> its result in the program's layout, computed from the layout that the choice stores.

    Leaves out layers that are no longer computed because their scale was folded into their weights.
    """
    readers: dict[int, list[int]] = {}
    for number, node in enumerate(snapshot.nodes):
        if _moves(snapshot, number):
            readers.setdefault(node.children[0], []).append(number)
    paths = {
        name: path
        for name, eclass in zip(names, classes, strict=True)
        if (path := _path(snapshot, readers, choice, eclass)) is not None
    }
    terms = snapshot.terms(choice, [reached for reached, _ in paths.values()])
    return dict(zip(paths, _plain([_along(snapshot, terms[end], path) for end, path in paths.values()]), strict=True))


def _path(
    snapshot: Snapshot, readers: Mapping[int, Sequence[int]], choice: Mapping[int, int], eclass: int
) -> tuple[int, list[tuple[int, int]]] | None:
    """Returns the nearest class that the choice computes, by rearrangements or their inverses; None without one.

    And the path back from it: (e-node, class reached). `readers`: class -> its rearrangements.
    """
    came: dict[int, tuple[int, int]] = {eclass: (eclass, 0)}  # class -> (previous class, e-node between)
    for reached in (order := [eclass]):
        if reached in choice:
            break
        below = [(n, snapshot.nodes[n].children[0]) for n in snapshot.classes[reached] if _moves(snapshot, n)]
        for number, beside in (*below, *((n, snapshot.owner[n]) for n in readers.get(reached, ()))):
            if beside not in came:
                came[beside] = reached, number
                order.append(beside)
    else:
        return None
    path: list[tuple[int, int]] = []
    at = reached
    while at != eclass:
        at, number = came[at]
        path.append((number, at))
    return reached, path


def _along(snapshot: Snapshot, term: Term, path: Sequence[tuple[int, int]]) -> Term:
    """Returns a term rearranged along a path."""
    for number, eclass in path:
        node, own = snapshot.nodes[number], snapshot.types[eclass]
        if snapshot.owner[number] == eclass:
            term = snapshot.term_of(node, [term])
        else:
            assert own is not None, "what is rearranged has a type"
            back = Rearrangement(node.attributes[0], node.attributes[1]).inverse()
            term = split_at(rearrange(term, back.parts, back.order, own.dims), own.split)
    return term


def _moves(snapshot: Snapshot, number: int) -> bool:
    return snapshot.nodes[number].operator == "access-rearrange"


def network_of(program: Program, snapshot: Snapshot, choice: Mapping[int, int], count: int) -> Program:
    """Returns the program of a choice for the last of `count` program nodes, with the layers of the original."""
    root = snapshot.program[count - 1]
    term = plain(snapshot.terms(choice, [root])[root])
    return replace(program, term=term, layers=named(program, term), names={})


_COMPUTED = ("compute", "opaque-pointwise", "opaque-items")


def _own_forms(snapshot: Snapshot) -> frozenset[int]:
    """Returns the e-nodes that compute a tensor in the program's layout, if the e-graph has another layout too."""

    def has(eclass: int, operator: str) -> bool:
        return any(snapshot.nodes[n].operator == operator for n in snapshot.classes[eclass])

    own = {c for c in snapshot.program if has(c, "access-rearrange") and any(has(c, name) for name in _COMPUTED)}
    pairs = [
        (snapshot.owner[n], node.children[0])
        for n, node in enumerate(snapshot.nodes)
        if node.operator == "access-rearrange" and len(node.attributes[1]) == 1
    ]
    still = {x for pair in pairs if own & {*pair} for x in pair}
    computed = (n for c in own | still for n in snapshot.classes[c] if snapshot.nodes[n].operator in _COMPUTED)
    return frozenset(n for n in computed if snapshot.nodes[n].attributes[0] != "dot-product")


def plain(term: Term) -> Term:
    """Returns the term with each rearrangement written as reshapes and transposes; reshapes of reshapes are merged."""
    return _plain([term])[0]


def _plain(terms: Sequence[Term]) -> list[Term]:
    """Applies `plain` to several terms, which may share parts."""

    def spelled(node: Term, children: tuple[Term, ...]) -> Term | None:
        if node.operator.name == "access-reshape" and children[0].operator is node.operator:
            return build("access-reshape", children[0].children[0], node.attributes)
        if node.operator.name != "access-rearrange":
            return None
        parts, order, shape, item = (a for a in node.attributes if isinstance(a, Dims))
        moved = rearrange(children[0], parts, order, (*shape, *item))
        if moved.operator.name == "access-reshape" and moved.children[0].operator is moved.operator:
            moved = build("access-reshape", moved.children[0].children[0], moved.attributes)
        return build("access", moved, len(shape)) if len(shape) else moved

    return rebuild_all(terms, spelled)


def named(program: Program, term: Term) -> dict[str, Term]:
    """Returns layer name -> its product in another form of the program.

    A product is identified by the constants in its second operand: folding may add constants but removes none. Layers
    with the same constants, or none, are matched in order.
    """
    names = {product: name for name, product in reversed(list(program.layers.items()))}
    before = [product for product in program.info.order if product in names]
    after = [product for product in postorder(term) if is_product(product) or product.operator.name == "product-unit"]
    if len(before) != len(after):
        return {}
    left: dict[frozenset[str], list[Term]] = {}
    for product in before:
        left.setdefault(_weights(product), []).append(product)
    found: dict[str, Term] = {}
    for product in after:
        own = _weights(product)
        known = max((w for w, products in left.items() if products and w <= own), key=len, default=None)
        if known is None:
            return {}
        found[names[left[known].pop(0)]] = product
    return {name: found[name] for name in program.layers if name in found}


def _weights(product: Term) -> frozenset[str]:
    operand = (product.children[0] if is_product(product) else product).children[-1]
    leaves = [leaf.attributes[0] for leaf in tensors(operand)]
    if not all(isinstance(t, Tensor) and t.constant for t in leaves):
        return frozenset()
    return frozenset(t.name for t in leaves if isinstance(t, Tensor))


def has_scales_of_products(program: Program) -> bool:
    """True if a product with constant weights is scaled by a constant, so that `fold_batch_norms` can fold it."""
    constant = program.info.constant
    scaled: dict[Term, bool] = {}
    for term in program.info.order:
        pair = term.children[0] if term.operator.name == "compute" else term
        operands = [c for c in pair.children if not constant[c]]
        record = compute_of(term)[0] if term.operator.name == "compute" else None
        scales = record is not None and Keeps.FACTOR in record.keeps
        adds = record is not None and record.category is Category.FOLD and record.linear
        if is_product(term):
            scaled[term] = len(operands) == 1
        elif term.operator.index_map is not None or scales or adds:
            scaled[term] = len(operands) == 1 and scaled.get(operands[0], False)
        if scales and scaled[term]:
            return True
    return False


def folding_ahead() -> str:
    """Returns the declarations of the search of `fold_batch_norms`."""
    return declared(of_families(folding.TOGETHER), {})[0]


_PRICES = Prices(fallback=free)
"""Prices for any machine: products cost nothing, because their mapping is searched next."""


def fold_batch_norms(program: Program, search: Search | None = None) -> tuple[Program, str]:
    """Folds the scales of products into their weights; returns the program and why the search ended.

    Returns the program itself if nothing can be folded, or folding does not reduce multiplications or operations.
    """
    if not has_scales_of_products(program):
        return program, SATURATED
    found = rewritten(program, folding.TOGETHER, {}, _PRICES, search)
    constant = program.info.constant
    cost = Cost()
    for term in program.info.order:
        if isinstance(term.type, AccessType) and all(isinstance(c.type, AccessType) for c in term.children):
            operands = [c.access for c in term.children]
            cost = cost.plus(_PRICES.cost(term.operator.name, term.attributes, operands, term.type, constant[term]))
    better = (found.cost.unmapped, found.cost.scalar) < (cost.unmapped, cost.scalar)
    whole = len(found.program.layers) == len(program.layers)
    return found.program if better and whole else program, found.stopped
