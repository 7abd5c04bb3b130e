"""Outlining: where a search for layouts finds nothing to choose, a part of a program is one node while it lasts.

A quantization is a dozen nodes, and the e-graph would know each of them in every layout that its tensor has. What is
computed of one tensor element by element becomes one `opaque-pointwise`, whatever constants it takes for each channel;
a normalization that is spelled out one `opaque-items`; and what is computed of constants alone one constant. What is
found has them back. The scale of a product stays: it is folded into the product's weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from glenside.builder.layout import split_at
from glenside.ir.names import primed
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.rearrangement import places_along
from glenside.ir.term import Term, build, constants_under, postorder, rebuild_all
from glenside.ir.types import AccessType, Dims, Tensor
from glenside.passes.element_functions import applied, function_of, operands_of, pair_of, reshape, steps
from glenside.passes.item_functions import Items, between, functions_of_items
from glenside.passes.scales import chains, with_scales_first


@dataclass(frozen=True)
class Outlined:
    """A program with parts of it outlined, and what they stand for.

    layers      name -> node: of layers of the program too that are inside of a constant, and so not in this one
    functions   key of an `opaque-pointwise` or `opaque-items` -> what it computes of the tensor `element`
    constants   name of a constant -> the term that it is
    values      of the constants of the program that it was
    """

    program: Program
    layers: Mapping[str, Term]
    functions: Mapping[str, Term]
    constants: Mapping[str, Term]
    values: Mapping[str, Array]

    def inlined(self, program: Program, done: dict[Term, Term] | None = None) -> Program:
        """A program that was made of this one, with every part put back; `done` holds the terms of earlier calls."""

        def put_back(term: Term, children: tuple[Term, ...]) -> Term | None:
            if term.operator.name in ("opaque-pointwise", "opaque-items"):
                key, _, parts, axes = term.attributes
                function = self.functions.get(str(key))
                assert isinstance(parts, Dims)
                assert isinstance(axes, Dims)
                return None if function is None else applied(function, children[0], parts, axes)
            if term.operator.name == "access-reshape" and children[0].operator is term.operator:
                return split_at(reshape(children[0], term.access.dims), term.access.split)
            tensor = term.attributes[0] if term.operator.name == "access-tensor" else None
            return self.constants.get(tensor.name) if isinstance(tensor, Tensor) else None

        return _with_roots(program, rebuild_all(_roots(program), put_back, done), self.values)


def outlined(program: Program) -> Outlined:
    """The program with what is computed of constants, or of the elements of one tensor, as one node each."""
    roots = _roots(program)
    roots = with_scales_first(roots, constants_under(*roots))
    constant = constants_under(*roots)
    order = [term for term in postorder(*roots) if not constant[term]]
    items = functions_of_items(order, roots, constant)
    bases = _Parts(order, roots, items, constant).outer()
    boxes = {str(term.attributes[0]) for term in constant if term.operator.opaque}
    keys: dict[Term, str] = {}
    constants: dict[str, Term] = {}
    done: dict[Term, Term] = {}

    def changed(term: Term, _: tuple[Term, ...]) -> Term | None:
        if constant[term]:
            return outlined_constant(term) if _is_computed_whole(term) else None
        if term in items:
            function, of = items[term]
            dims = of.base.access.dims
            places = places_along(dims, range(of.split, len(dims)))
            return box("opaque-items", function, of.base, term, *map(Dims, places))
        if term not in bases:
            return None
        function, parts, axes = function_of(term, bases[term], constant)
        if len(steps(function)) < 2 and pair_of(term) is None:  # a node as it is
            return None
        return box("opaque-pointwise", function, bases[term], term, parts, axes)

    def box(operator: str, function: Term, base: Term, term: Term, parts: Dims, axes: Dims) -> Term:
        key = keys.setdefault(function, primed(f"{'-'.join(steps(function))} {len(keys) + 1}", boxes))
        return build(operator, key, done[base], term.access.dtype, parts, axes)

    def outlined_constant(term: Term) -> Term:
        name = primed(f"constant {len(constants) + 1}", program.tensors)
        constants[name] = split_at(term, 0)
        leaf = build("access-tensor", Tensor(name, term.access.dims, term.access.dtype, constant=True))
        return split_at(leaf, term.access.split)

    rebuilt = rebuild_all(roots, changed, done)
    layers = dict(zip(program.layers, rebuilt[1:], strict=True))
    found = _with_roots(program, rebuilt, program.constants)
    return Outlined(found, layers, {key: function for function, key in keys.items()}, constants, program.constants)


def _roots(program: Program) -> list[Term]:
    return [program.term, *program.layers.values()]


def _with_roots(program: Program, roots: Sequence[Term], values: Mapping[str, Array]) -> Program:
    layers = dict(zip(program.layers, roots[1:], strict=True))
    return replace(program, term=roots[0], layers=layers, constants=values, names={})


def _is_computed_whole(term: Term) -> bool:
    """Whether a constant is computed of one with as many elements: what is repeated is known as what it repeats."""
    if not isinstance(term.type, AccessType) or term.operator.moves or not term.children:
        return False
    parts = [term]
    while parts:
        part = parts.pop()
        if isinstance(part.type, AccessType) and part.access.size >= term.access.size:
            if part.operator.name == "access-tensor":
                return True
            parts += part.children
    return False


class _Parts:
    """What of a program is computed element by element, of which tensor.

    order    all but constants and what lies inside of functions of items, children first
    reads    term -> what it reads at its place, constants aside
    folded   scales of products, and what comes before them
    ends     terms that others read than those of their own part: each is computed once, and starts the next part
    bases    term -> the tensor of whose elements it is computed
    """

    def __init__(
        self,
        order: Sequence[Term],
        roots: Sequence[Term],
        items: Mapping[Term, tuple[Term, Items]],
        constant: Mapping[Term, bool],
    ) -> None:
        inner = set().union(*(between(term, of.base, constant) for term, (_, of) in items.items()))
        self.constant = constant
        self.order = [term for term in order if term not in inner]
        self.reads = {
            term: [o for o in operands if not constant[o]]
            for term in self.order
            if term not in items and (operands := operands_of(term)) is not None
        }
        scaled = {term: found for term, found in chains(self.order, constant).items() if found[-1].scales}
        self.folded = {part for term, found in scaled.items() for part in (term, *(step.x for step in found[1:]))}
        self.ends = {*roots, *(of.base for _, of in items.values())}
        self.bases = self._bases()
        while more := self._read_outside() - self.ends:
            self.ends |= more
            self.bases = self._bases()

    def outer(self) -> dict[Term, Term]:
        """What is read from outside of its part -> the tensor of whose elements it is computed."""
        return {term: base for term, base in self.bases.items() if term in self.ends}

    def _bases(self) -> dict[Term, Term]:
        bases: dict[Term, Term] = {}
        for term, operands in self.reads.items():
            if term in self.folded:
                continue
            of = {o if o in self.ends else bases.get(o, o) for o in operands}
            if len(of) == 1:
                bases[term] = of.pop()
        return bases

    def _read_outside(self) -> set[Term]:
        """What terms of no part, or of another one, read of a part."""
        found: set[Term] = set()
        pairs = {pair_of(term) for term in self.reads}
        for reader in self.order:
            if reader not in pairs:  # what reads a pair reads its operands
                operands = [c for child in reader.children for c in (child.children if child in pairs else (child,))]
                found |= {o for o in operands if o in self.bases and self.bases[o] is not self.bases.get(reader)}
        return found
