"""Outlining: during a search for layouts, parts of a program without a choice are single nodes.

A quantization is a dozen nodes, and the e-graph would hold each of them in every layout of its tensor. An elementwise
function of one tensor becomes one `opaque-pointwise`, whatever constants it has per channel; a spelled-out
normalization becomes one `opaque-items`; a term over constants alone becomes one constant. The result is inlined again.
The scale of a product is not outlined: it is folded into the product's weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from glenside.builder.layout import split_at
from glenside.ir.names import primed
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.rearrangement import canonical_axes
from glenside.ir.term import Term, build, constants_under, postorder, rebuild_all
from glenside.ir.types import AccessType, Dims, Tensor
from glenside.passes.element_functions import applied, function_of, operands_of, pair_of, reshape, steps
from glenside.passes.item_functions import Items, between, functions_of_items
from glenside.passes.scales import chains, with_scales_first


@dataclass(frozen=True)
class Outlined:
    """A program with outlined parts, and their definitions.

    layers      name -> node; includes layers inside an outlined constant, which are not in the program
    functions   key of an `opaque-pointwise` or `opaque-items` -> its function of the tensor `element`
    constants   name of an outlined constant -> its term
    values      values of the constants of the original program
    """

    program: Program
    layers: Mapping[str, Term]
    functions: Mapping[str, Term]
    constants: Mapping[str, Term]
    values: Mapping[str, Array]

    @classmethod
    def nothing(cls, program: Program) -> Outlined:
        """Returns a program in which nothing is outlined."""
        return cls(program, program.layers, {}, {}, program.constants)

    def inlined(self, program: Program, done: dict[Term, Term] | None = None) -> Program:
        """Inlines the outlined parts in a program derived from this one; `done` memoizes across calls."""

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

        return program.with_roots(rebuild_all(program.roots, put_back, done), constants=self.values)


def outlined(program: Program) -> Outlined:
    """Outlines terms over constants and functions of one tensor as one node each."""
    roots = with_scales_first(program)
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
            places = canonical_axes(dims, range(of.split, len(dims)))
            return box("opaque-items", function, of.base, term, *map(Dims, places))
        if term not in bases:
            return None
        function, parts, axes = function_of(term, bases[term], constant)
        if len(steps(function)) < 2 and pair_of(term) is None:  # already a single node
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
    found = program.with_roots(rebuilt)
    return Outlined(found, layers, {key: function for function, key in keys.items()}, constants, program.constants)


def _is_computed_whole(term: Term) -> bool:
    """True if a constant is computed from a tensor with at least as many elements: a broadcast is kept as it is."""
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
    """Partitions the elementwise terms of a program into functions of one tensor each.

    order    all terms but constants and the inside of functions of items, children first
    reads    term -> its elementwise operands without constants
    folded   scales of products, and the steps before them
    ends     terms with a reader outside their part: each is computed once and starts the next part
    bases    term -> the tensor that it is an elementwise function of
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
        """Returns term -> its base, for terms that are read from outside their part."""
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
        """Returns the terms of parts that are read by terms of another part or of none."""
        found: set[Term] = set()
        pairs = {pair_of(term) for term in self.reads}
        for reader in self.order:
            if reader not in pairs:  # a reader of a pair reads its operands
                operands = [c for child in reader.children for c in (child.children if child in pairs else (child,))]
                found |= {o for o in operands if o in self.bases and self.bases[o] is not self.bases.get(reader)}
        return found
