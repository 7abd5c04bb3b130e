"""Extracts the layers of a program as programs of their own, over inputs from the rest of the program."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, build, postorder, rebuild_all
from glenside.ir.types import AccessType, Tensor
from glenside.targets.mpc.analysis import secrets


@dataclass(frozen=True)
class Layer:
    """A program that equals all layers of these names, and the names of its tensors that both parties know."""

    names: Sequence[str]
    program: Program
    public: frozenset[str]


def own_layers(program: Program, public: Collection[str] = ()) -> list[Layer]:
    """Returns the layers, in network order; structurally equal ones are one.

    A layer reaches from its result down to tensors, results of other layers, and computations between layers: all that
    are neither products nor linear nor movement.
    """
    known = secrets(program, public)
    results = set(program.layers.values())
    found: dict[Term, tuple[list[str], frozenset[str]]] = {}
    for name, result in program.layers.items():
        if not isinstance(result.type, AccessType):
            continue
        leaves = _leaves(result, results)
        tensors = {leaf: _formal(number, leaf, known[leaf].secret) for number, leaf in enumerate(leaves)}
        term = _over(result, {leaf: build("access-tensor", tensor) for leaf, tensor in tensors.items()})
        names = frozenset(tensor.name for leaf, tensor in tensors.items() if not known[leaf].secret)
        found.setdefault(term, ([], names))[0].append(name)
    return [Layer(names, Program(term), of_layer) for term, (names, of_layer) in found.items()]


# The compute types that are products in variants of layers: of matrices, or of elements, which are then added.
_OF_MATRICES = frozenset({"dot-product"})
_OF_ELEMENTS = frozenset({"dot-product", "elementwise-mul", "reduce-sum"})


def _leaves(result: Term, results: Collection[Term]) -> list[Term]:
    """Returns the operands of a layer, in order of evaluation."""
    leaves, products = _reached(result, results, _OF_MATRICES)
    return leaves if products else _reached(result, results, _OF_ELEMENTS)[0]


def _reached(result: Term, results: Collection[Term], kinds: Collection[str]) -> tuple[list[Term], bool]:
    """Returns the leaves at computations of other kinds, and whether a product of matrices is above them."""
    inside: set[Term] = set()
    leaves: set[Term] = set()
    stack = [result]
    while stack:
        term = stack.pop()
        if term in inside or term in leaves:
            continue
        between = term.operator.name == "compute" and term.attributes[0] not in kinds
        if term.operator.name == "access-tensor" or (term is not result and (term in results or between)):
            leaves.add(term)
        else:
            inside.add(term)
            stack += term.children
    products = any(is_product(term) or term.operator.matrices is not None for term in inside)
    return [term for term in postorder(result) if term in leaves], products


def _formal(number: int, leaf: Term, secret: bool) -> Tensor:
    """Returns the tensor that replaces a leaf."""
    return Tensor(f"{'secret' if secret else 'public'}_{number}", leaf.access.dims, leaf.access.dtype)


def _over(result: Term, formals: Mapping[Term, Term]) -> Term:
    def put(term: Term, _: tuple[Term, ...]) -> Term | None:
        formal = formals.get(term)
        if formal is None or not term.access.split:
            return formal
        return build("access", formal, term.access.split)

    return rebuild_all([result], put)[0]
