"""Splits a program into its distinct layers: each is searched once, and its answer is used in all its places.

The cone of a layer is its product, with the sum of its windows if it ends in one, and all movement below; its leaves
are computed or declared. Two layers are equal if their cones are equal up to the names of leaves. The rest of the
program, the body, reads each layer's result as a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace

from glenside.analysis.layers import added_up, ends_layer, from_product, product_of
from glenside.egraph.saturation import SATURATED
from glenside.egraph.search import Search
from glenside.ir.names import primed
from glenside.ir.program import Program
from glenside.ir.term import Term, build, make, postorder, rebuild_all, weave
from glenside.ir.types import Tensor


def until_added_up(program: Program, search: Search | None = None) -> tuple[Program, str]:
    """Extends layers to the sum of their windows, so that product and sum are rewritten together."""
    layers = added_up(program)
    return program if layers == program.layers else replace(program, layers=layers), SATURATED


def of_products(program: Program) -> Program:
    """Returns the program with the products of its layers as layers: undoes `until_added_up`."""
    return replace(program, layers={name: product_of(layer) for name, layer in program.layers.items()})


@dataclass(frozen=True)
class Layers:
    """A split program; `places[name]` is (index of the distinct product, arguments) of a layer."""

    products: tuple[Term, ...]
    formals: tuple[tuple[Term, ...], ...]
    places: Mapping[str, tuple[int, tuple[Term, ...]]]
    results: Mapping[Term, Term]
    """product -> the formal tensor in its place in the body"""
    body: tuple[Term, ...]
    """The result of the program and the arguments of all layers, over formal tensors in place of the products."""
    sources: tuple[Term, ...]
    """The terms of the body in the program itself."""


def distinct_layers(program: Program, kind: Callable[[Term], str] = lambda leaf: "") -> Layers:
    """Splits a program into distinct layers; layers with leaves of different `kind` are distinct."""
    taken = set(program.tensors)
    constant = program.info.constant
    numbers: dict[Term, int] = {}
    products: list[Term] = []
    formals: list[tuple[Term, ...]] = []
    places: dict[str, tuple[int, tuple[Term, ...]]] = {}
    results: dict[Term, Term] = {}
    for name, product in program.layers.items():
        alike, leaves = _formal_layer(product, lambda leaf, i: _formal(f"%{i}{kind(leaf)}", leaf, constant[leaf]))
        if alike not in numbers:
            # Tensors of the program keep their names, so that a picture of a layer uses the names of the program.
            own, own_leaves = _formal_layer(
                product,
                lambda leaf, i, name=name: (  # type: ignore[misc]
                    leaf
                    if leaf.operator.name == "access-tensor"
                    else _formal(_fresh(f"{name}.{i}{kind(leaf)}", taken), leaf, constant[leaf])
                ),
            )
            numbers[alike] = len(products)
            products.append(own)
            formals.append(tuple(own_leaves.values()))
        places[name] = (numbers[alike], tuple(leaves))
        results.setdefault(product, _formal(_fresh(f"{name}.result", taken), product, constant[product]))
    sources = tuple(dict.fromkeys([program.term, *(t for _, terms in places.values() for t in terms)]))
    return Layers(tuple(products), tuple(formals), places, results, _bodies(sources, results), sources)


def reassembled(program: Program, layers: Layers, found: Sequence[Term], body: Sequence[Term]) -> Program:
    """Returns the program with `found[i]` for the distinct product i, and `body` for the terms of the body."""
    stands = {formal: product for product, formal in layers.results.items()}
    body_of = dict(zip(layers.sources, body, strict=True))
    places = {program.layers[name]: place for name, place in layers.places.items()}
    done: dict[Term, Term] = {}
    filled: dict[Term, Term] = {}
    made = set[Term]()

    def result(formal: Term) -> Term | None:
        return done[stands[formal]] if formal in stands else None

    # Products come in network order in `postorder`, so those under a term are done before it.
    for product in (t for t in postorder(program.term, *places) if t in places):
        number, arguments = places[product]
        actual = {
            formal: _substituted(body_of[argument], result, filled, made)
            for formal, argument in zip(layers.formals[number], arguments, strict=True)
        }
        done[product] = _substituted(found[number], actual.get)
        made.add(done[product])
    term = _substituted(body_of[program.term], result, filled, made)
    optimized = {name: done[node] for name, node in program.layers.items()}
    return replace(program, term=term, layers=optimized, names={})


def _substituted(
    term: Term,
    value_of: Callable[[Term], Term | None],
    done: dict[Term, Term] | None = None,
    layers: Container[Term] = (),
) -> Term:
    """Substitutes values for formal tensors in a term.

    An `access` of an `access` is merged, except on `layers`: the check looks for these terms unchanged. `done` memoizes
    across calls with the same values.
    """

    def put(node: Term, children: tuple[Term, ...]) -> Term | None:
        value = value_of(node)
        if value is not None:
            return value if value.access.split == 0 else build("access", value, 0)
        viewed = node.operator.name == "access" and children[0].operator.name == "access"
        if viewed and children != node.children and children[0] not in layers:
            inner, split = children[0].children[0], node.attributes[0]
            return inner if inner.access.split == split else build("access", inner, split)
        return None

    return rebuild_all([term], put, done)[0]


def _formal_layer(layer: Term, formal: Callable[[Term, int], Term]) -> tuple[Term, dict[Term, Term]]:
    """Returns the cone with `formal(leaf, number)`, an access-tensor with the leaf's dims, for each leaf; and leaf ->
    formal.
    """
    leaves: dict[Term, Term] = {}
    done: dict[Term, Term] = {}
    own = from_product(layer)
    stack = [(layer, False)]
    while stack:
        term, ready = stack.pop()
        if term in done:
            continue
        if term.operator.name == "access-tensor" or (term not in own and ends_layer(term)):
            leaves[term] = formal(term, len(leaves))
            split = term.access.split
            done[term] = build("access", leaves[term], split) if split else leaves[term]
        elif ready:
            done[term] = make(term.operator, weave(term.operator, [done[c] for c in term.children], term.attributes))
        else:
            stack.append((term, True))
            stack += [(child, False) for child in reversed(term.children)]
    return done[layer], leaves


def _formal(name: str, leaf: Term, constant: bool) -> Term:
    return build("access-tensor", Tensor(name, leaf.access.dims, leaf.access.dtype, constant))


def _bodies(sources: Sequence[Term], results: Mapping[Term, Term]) -> tuple[Term, ...]:
    def stand_in(term: Term, _: tuple[Term, ...]) -> Term | None:
        if term not in results:
            return None
        split = term.access.split
        return build("access", results[term], split) if split else results[term]

    return tuple(rebuild_all(sources, stand_in))


def _fresh(name: str, taken: set[str]) -> str:
    taken.add(name := primed(name, taken))
    return name
