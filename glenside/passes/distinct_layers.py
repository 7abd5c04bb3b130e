"""The distinct layers of a program: each is searched once, and its answer serves every place where it occurs.

The cone of a layer is its product, with the sum of its windows where that is its end, and all movement under them, down
to what is computed or declared: those are its leaves. Two layers are the same when their cones are, whatever their
leaves are called. What is left of the program, the body, reads each layer's result as if it were a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace

from glenside.analysis.layers import added_up, ends_layer, from_product, product_of
from glenside.egraph.saturation import SATURATED
from glenside.ir.names import primed
from glenside.ir.program import Program, constant_terms
from glenside.ir.term import Term, build, make, postorder, rebuild_all, weave
from glenside.ir.types import Tensor
from glenside.passes.network import Search


def until_added_up(program: Program, search: Search | None = None) -> tuple[Program, str]:
    """The program whose layers end where their windows are added up, so that the forms of both are searched as one."""
    layers = added_up(program)
    return program if layers == program.layers else replace(program, layers=layers), SATURATED


def of_products(program: Program) -> Program:
    """A program of such layers with their products as layers again."""
    return replace(program, layers={name: product_of(layer) for name, layer in program.layers.items()})


@dataclass(frozen=True)
class Layers:
    """`places[name]` is the cone of a layer, with the number of its distinct product and its own arguments."""

    products: tuple[Term, ...]
    formals: tuple[tuple[Term, ...], ...]
    places: Mapping[str, tuple[int, tuple[Term, ...]]]
    results: Mapping[Term, Term]
    """product -> the formal tensor that stands for it in the body"""
    body: tuple[Term, ...]
    """The result of the program and the arguments of all layers, over formal tensors in place of the products."""
    sources: tuple[Term, ...]
    """The same terms in the program itself."""


def distinct_layers(program: Program, kind: Callable[[Term], str] = lambda leaf: "") -> Layers:
    """Take a program apart. Leaves of another kind, which is a part of their formal names, make another layer."""
    taken = set(program.tensors)
    constant = constant_terms(program)
    numbers: dict[Term, int] = {}
    products: list[Term] = []
    formals: list[tuple[Term, ...]] = []
    places: dict[str, tuple[int, tuple[Term, ...]]] = {}
    results: dict[Term, Term] = {}
    for name, product in program.layers.items():
        alike, leaves = _formal_layer(product, lambda leaf, i: _formal(f"%{i}{kind(leaf)}", leaf, constant[leaf]))
        if alike not in numbers:
            # Tensors of the program keep their names, so that a picture of one layer reads as the program does.
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
    """The program with `found[i]` for the distinct product i, and `body` for the terms of the body."""
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
    """The term with values for formal tensors; a split of a value takes the place of the formal's, but for that of
    `layers`, which are there as they are: whoever compares programs looks for them.

    `done` is what earlier calls with the same values have made.
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
    """The cone with `formal(leaf, number)` for each leaf, an access-tensor over the leaf's dims, and all of those."""
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
