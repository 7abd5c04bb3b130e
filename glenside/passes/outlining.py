"""Outlining: where a search for layouts finds nothing to choose, a part of a program is one node while it lasts.

A quantization is a dozen nodes, and the e-graph would know each of them in every layout that its tensor has. What is
computed of one tensor element by element becomes one `opaque-pointwise`, and what is computed of constants alone one
constant; what is found has them back. A scale or a shift of a product stays: it is folded into the product's weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

from glenside.builder.layout import broadcast, reshape, split_at
from glenside.ir.operand import Array
from glenside.ir.operator import Category
from glenside.ir.operators.compute import name_of, parse_compute
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, build, constants_under, postorder, rebuild_all, tensors
from glenside.ir.types import AccessType, Dims, Tensor

_FOLDED = ("elementwise-add", "subtract", "elementwise-mul", "elementwise-div")
_OF_EITHER = ("elementwise-add", "elementwise-mul")
"""Pairs of a tensor and a constant that fold into the product which the tensor is, and those in either order."""
_ELEMENT = "element"
_SPREADS = ("access-broadcast", "access-reshape", "access", "cast")
"""Of one number at every place, these are one number at every place."""


@dataclass(frozen=True)
class Outlined:
    """A program with parts of it outlined, and what they stand for.

    functions   key of an `opaque-pointwise` -> what it computes of the tensor `element`, ()()
    constants   name of a constant -> the term that it is
    values      of the constants that all of these are made of
    """

    program: Program
    functions: Mapping[str, Term]
    constants: Mapping[str, Term]
    values: Mapping[str, Array]

    def inlined(self, program: Program) -> Program:
        """A program that was made of this one, with every part put back."""

        def put_back(term: Term, children: tuple[Term, ...]) -> Term | None:
            if term.operator.name == "opaque-pointwise":
                function = self.functions.get(str(term.attributes[0]))
                return None if function is None else _applied(function, children[0])
            tensor = term.attributes[0] if term.operator.name == "access-tensor" else None
            return self.constants.get(tensor.name) if isinstance(tensor, Tensor) else None

        return replace(_with_roots(program, rebuild_all(_roots(program), put_back)), constants=self.values)


def outlined(program: Program) -> Outlined:
    """The program with what is computed of constants, or of the elements of one tensor, as one node each."""
    roots = _roots(program)
    constant = constants_under(*roots)
    bases = _Parts(roots, constant).outer()
    boxes = {str(term.attributes[0]) for term in constant if term.operator.opaque}
    keys: dict[Term, str] = {}
    constants: dict[str, Term] = {}
    done: dict[Term, Term] = {}

    def changed(term: Term, _: tuple[Term, ...]) -> Term | None:
        if constant[term]:
            return outlined_constant(term) if _is_computed_whole(term) else None
        if term not in bases:
            return None
        function = _function(term, bases[term], constant)
        steps = _steps(function)
        if len(steps) < 2:
            return None
        key = keys.setdefault(function, _unused(f"{'-'.join(steps)} {len(keys) + 1}", boxes))
        return build("opaque-pointwise", key, done[bases[term]], term.access.dtype)

    def outlined_constant(term: Term) -> Term:
        name = _unused(f"constant {len(constants) + 1}", program.tensors)
        constants[name] = split_at(term, 0)
        leaf = build("access-tensor", Tensor(name, term.access.dims, term.access.dtype, constant=True))
        return split_at(leaf, term.access.split)

    found = _with_roots(program, rebuild_all(roots, changed, done))
    return Outlined(found, {key: function for function, key in keys.items()}, constants, program.constants)


def _unused(name: str, names: Container[str]) -> str:
    while name in names:
        name += "'"
    return name


def _roots(program: Program) -> list[Term]:
    return [program.term, *program.layers.values()]


def _with_roots(program: Program, roots: Sequence[Term]) -> Program:
    return replace(program, term=roots[0], layers=dict(zip(program.layers, roots[1:], strict=True)), names={})


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


def _pair(term: Term) -> Term | None:
    """The operands of a function of two tensors, element by element."""
    if term.operator.name != "compute" or parse_compute(str(term.attributes[0]))[0].category is not Category.FOLD:
        return None
    pair = term.children[0]
    whole = pair.operator.name == "access-product" and all(
        isinstance(c.type, AccessType) and c.access.split == 0 and c.access.dims == term.access.dims
        for c in pair.children
    )
    return pair if whole else None


def _operands(term: Term) -> Sequence[Term] | None:
    """What a function of each element reads at its place; None for anything else."""
    if not isinstance(term.type, AccessType) or term.access.split:
        return None
    if (pair := _pair(term)) is not None:
        return pair.children
    pointwise = term.operator.name == "compute" and parse_compute(str(term.attributes[0]))[0].category
    return term.children if pointwise is Category.POINTWISE or term.operator.name == "cast" else None


def _is_one_number(term: Term) -> bool:
    """Whether all elements of a constant are one number, whatever that is."""
    while isinstance(term.type, AccessType):
        if term.access.size == 1 or term.operator.name == "full":
            return True
        if term.operator.name not in _SPREADS:
            return False
        term = term.children[0]
    return False


def _is_of_product(term: Term) -> bool:
    """Whether its elements are those of a product, in whatever order."""
    while term.operator.moves and len(term.children) == 1:
        term = term.children[0]
    return is_product(term)


class _Parts:
    """What of a program is computed element by element, of which tensor.

    order    all but constants, children first
    reads    term -> what it reads at its place, numbers aside
    ends     terms that others read than those of their own part: each is computed once, and starts the next part
    bases    term -> the tensor of whose elements it is computed
    """

    def __init__(self, roots: Sequence[Term], constant: Mapping[Term, bool]) -> None:
        self.constant = constant
        self.order = [term for term in postorder(*roots) if not constant[term]]
        self.reads = {
            term: [o for o in operands if not (constant[o] and _is_one_number(o))]
            for term in self.order
            if (operands := _operands(term)) is not None
        }
        self.readers = Counter(child for term in self.order for child in term.children)
        self.ends = set(roots)
        self.bases = self._bases()
        while more := self._read_outside() - self.ends:
            self.ends |= more
            self.bases = self._bases()

    def outer(self) -> dict[Term, Term]:
        """What is read from outside of its part -> the tensor of whose elements it is computed."""
        return {term: base for term, base in self.bases.items() if term in self.ends}

    def _bases(self) -> dict[Term, Term]:
        bases: dict[Term, Term] = {}
        folded: set[Term] = set()
        for term, operands in self.reads.items():
            if self._is_folded(term, folded):
                folded.add(term)
                continue
            of = {o if o in self.ends else bases.get(o, o) for o in operands}
            if len(of) == 1:
                bases[term] = of.pop()
        return bases

    def _is_folded(self, term: Term, folded: set[Term]) -> bool:
        """Whether it is a scale or a shift of a product that nothing else reads."""
        pair = _pair(term)
        if pair is None or term.attributes[0] not in _FOLDED:
            return False
        first, second = (self.constant[c] for c in pair.children)
        x = pair.children[1 if first else 0]
        in_order = first != second and (second or term.attributes[0] in _OF_EITHER)
        return in_order and self.readers[x] == 1 and (x in folded or _is_of_product(x))

    def _read_outside(self) -> set[Term]:
        """What terms of no part, or of another one, read of a part."""
        found: set[Term] = set()
        pairs = {_pair(term) for term in self.reads}
        for reader in self.order:
            if reader not in pairs:  # what reads a pair reads its operands
                operands = [c for child in reader.children for c in (child.children if child in pairs else (child,))]
                found |= {o for o in operands if o in self.bases and self.bases[o] is not self.bases.get(reader)}
        return found


def _function(term: Term, base: Term, constant: Mapping[Term, bool]) -> Term:
    """What a term computes of each element of its base, as a term over the tensor `element`."""
    element = build("access-tensor", Tensor(_ELEMENT, Dims(), base.access.dtype))

    def of_element(part: Term, _: tuple[Term, ...]) -> Term | None:
        return _number(part) if constant[part] and _is_one_number(part) else None

    return rebuild_all([term], of_element, {base: element})[0]


def _number(term: Term) -> Term:
    """The one number that all elements of a constant are, ()()."""
    if term.operator.name == "full":
        return build("full", (), *term.attributes[1:])
    if term.access.size == 1:
        return reshape(term, ())
    inner = _number(term.children[0])
    return build("cast", inner, term.access.dtype) if term.operator.name == "cast" else inner


def _applied(function: Term, x: Term) -> Term:
    """A function of each element, of x."""
    constant = constants_under(function)
    (element,) = (leaf for leaf in tensors(function) if not constant[leaf])

    def of_x(part: Term, children: tuple[Term, ...]) -> Term | None:
        if constant[part]:
            return part
        if part.operator.name != "access-product":
            return None
        return build("access-product", *(broadcast(c, x.access.dims) for c in children), *part.attributes)

    return split_at(rebuild_all([function], of_x, {element: split_at(x, 0)})[0], x.access.split)


def _steps(function: Term) -> list[str]:
    """What a function does, one after the other."""
    constant = constants_under(function)
    computed = [part for part in postorder(function) if part.children and not constant[part]]
    return [name_of(part) for part in computed if part.operator.name != "access-product"]
