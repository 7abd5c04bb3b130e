"""From terms to loop nests: what only moves elements becomes places, what is computed of each element formulas.

A nest pulls each element that it stores from what it is made of, down to buffers: index maps of records say where an
element comes from, scalar expressions what is done with it. A term has a nest of its own where it must be in memory:
where several terms read it, or one reads its elements more than once, or it is not computed element by element.
"""

from __future__ import annotations

from collections import Counter as Times
from itertools import count

from glenside.codegen.filling import Filling, Places
from glenside.codegen.formulas import applied, choose, convert, never, number
from glenside.codegen.loops import Buffer, Counter, Formula, Load, Loops, Nest, Number, Role
from glenside.codegen.nests import OF_OPERATOR, category_of, fill, is_unrolled
from glenside.ir.elementwise import folds
from glenside.ir.errors import BadInput
from glenside.ir.index_map import Fill, Index, Within
from glenside.ir.operator import Category
from glenside.ir.operators.compute import name_of, parse_compute
from glenside.ir.program import Program
from glenside.ir.rational import exact
from glenside.ir.term import Term, build, postorder, rebuild_all
from glenside.ir.types import AccessType, TupleType

_LEAVES = frozenset({"access-tensor", "access-literal", "full", "eye", "iota"})
"""Leaves each element of which is a formula of its place."""
_LARGEST = 100
"""Steps of one formula: what takes more is stored between, so that no formula is too large for whoever reads it."""


def lower(program: Program) -> Loops:
    """The loop nests of a program. Raises BadInput for a black box, by its name."""
    return _Lowering(program).loops()


class _Lowering:
    """One program: which terms are stored, their buffers, and the nests that fill them.

    buffers  term -> its buffer; of a tensor, and of what is stored
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.results = list(_flat(*rebuild_all([program.term], _untupled)))
        self.order = [t for t in postorder(*self.results) if not isinstance(t.type, TupleType)]
        for term in self.order:
            if term.operator.opaque:
                raise BadInput(f"{term.operator.name} {term.attributes[0]!r} has no meaning that could be compiled")
            if not _is_inline(term) and term.operator.name not in ("compute", *OF_OPERATOR):
                raise BadInput(f"{name_of(term)} is not compiled yet")
        self.buffers: dict[Term, Buffer] = {}
        self.nests: list[Nest] = []
        self.numbers = count(1)
        self.stored = self._stored()

    def loops(self) -> Loops:
        for tensor in self.program.tensors.values():
            role = Role.CONSTANT if tensor.constant else Role.INPUT
            leaf = build("access-tensor", tensor)
            self.buffers[leaf] = Buffer(tensor.name, tensor.dims, tensor.dtype, role)
        filled: dict[Term, Buffer] = {}
        for term in self.order:
            if term in self.stored:
                role = Role.RESULT if term in self.results else Role.TEMPORARY
                name = f"{role.value}{next(self.numbers)}"
                buffer = filled[term] = Buffer(name, term.access.dims, term.access.dtype, role)
                self.nests.append(Nest(name_of(term), buffer, tuple(fill(Filling(self, term, buffer)))))
                self.buffers.setdefault(term, buffer)  # a tensor that is a result is still read where it was
        buffers = dict.fromkeys([*self.buffers.values(), *filled.values()])
        return Loops(self.program.name, tuple(buffers), tuple(self.nests), tuple(filled[t] for t in self.results))

    def _stored(self) -> set[Term]:
        """The results, what is not computed element by element, and what would be computed, or written, too often."""
        stored = self._read_more_than_once()
        steps: dict[Term, int] = {}
        for term in self.order:
            steps[term] = 1 + sum(steps[child] * _written(term, child) for child in term.children)
            if steps[term] > _LARGEST and term.operator.name not in _LEAVES:
                stored.add(term)
            if term in stored:
                steps[term] = 1
        return stored

    def _read_more_than_once(self) -> set[Term]:
        stored = set(self.results)
        reads: Times[Term] = Times(self.results)
        for term in reversed(self.order):
            if term.operator.name not in _LEAVES and (not _is_inline(term) or (reads[term] > 1 and _computes(term))):
                stored.add(term)
            times = 1 if term in stored else reads[term]
            for child in term.children:
                reads[child] += times * _rereads(term, child)
                addressed = term.operator.name in _ADDRESSED and child is term.children[0]
                if (addressed or _is_sorted(term)) and child.operator.name != "access-tensor":
                    stored.add(child)  # it is read at places that are computed
        return stored

    def pull(self, term: Term, places: Places) -> Formula:
        """One element of a term."""
        if term in self.buffers:
            buffer = self.buffers[term]
            return Load(buffer, buffer.place(places))
        return self.formula(term, places)

    def formula(self, term: Term, places: Places) -> Formula:
        """One element of a term that is computed where it is read."""
        name, dtype = term.operator.name, term.access.dtype
        if name in ("access-literal", "full"):
            return Number(exact(str(term.attributes[-2])), dtype)
        if name == "iota":
            return convert(Counter(places[0]), dtype)
        if name == "eye":
            same = Within(places[0] - places[1], 0, 1)
            return choose((same,), number(1, dtype), number(0, dtype))
        if term.operator.moves:
            return self._moved(term, places)
        if name in ("cast", "bitcast"):
            return convert(self.pull(term.children[0], places), dtype, bits=name == "bitcast")
        kind, parameters = parse_compute(str(term.attributes[0]))
        expression, (child,) = kind.expression(*parameters), term.children
        if kind.category is Category.POINTWISE:
            return applied(expression, [self.pull(child, places)])
        split = child.access.split
        parts = [
            self.pull(child, (*places[:split], Index() + part, *places[split:])) for part in range(child.access.item[0])
        ]
        if not folds(expression):
            return applied(expression, parts)
        found = parts[0]
        for part in parts[1:]:
            found = applied(expression, [found, part])
        return found

    def _moved(self, term: Term, places: Places) -> Formula:
        found = term.index_map
        assert found is not None, f"{term.operator.name} moves elements to places that are known"
        pieces = [piece.at(places) for piece in found.pieces]
        pieces = [piece for piece in pieces if not any(map(never, piece.guards))]
        dtype = term.access.dtype
        if found.fill is None and pieces:
            *pieces, last = pieces
            result = self.pull(term.children[last.operand], last.indices)
        else:
            result = number(None if found.fill is Fill.LOWEST else 0, dtype)
        for piece in reversed(pieces):
            result = choose(piece.guards, self.pull(term.children[piece.operand], piece.indices), result)
        return result


_ADDRESSED = frozenset({"access-gather", "access-gather-nd"})
"""Operators that read their first operand at places that are computed."""
_ONCE = frozenset({"access-gather", "access-overlap-add", "linear-map", "access-scatter-nd"})


def _flat(term: Term) -> list[Term]:
    """The results of a program, from left to right."""
    if not isinstance(term.type, TupleType):
        return [term]
    return [found for child in term.children for found in _flat(child)]


def _untupled(term: Term, children: tuple[Term, ...]) -> Term | None:
    """What a place in a tuple is."""
    if term.operator.name != "tuple-get-item" or children[0].operator.name != "construct-tuple":
        return None
    (place,) = term.attributes
    assert isinstance(place, int), "a place in a tuple is a number"
    return children[0].children[place]


def _is_inline(term: Term) -> bool:
    """Whether an element of it is a formula of elements of what it is made of."""
    if term.operator.name in _LEAVES or term.operator.name in ("cast", "bitcast"):
        return True
    if term.operator.name == "compute":
        return (category := category_of(term)) is Category.POINTWISE or (
            category is Category.FOLD and is_unrolled(term)
        )
    return term.operator.moves and term.operator.index_map is not None


def _is_sorted(term: Term) -> bool:
    return term.operator.name == "compute" and parse_compute(str(term.attributes[0]))[0].name == "argsort"


def _computes(term: Term) -> bool:
    """Whether it is worth a place in memory where it would be read twice: movement and casts are not."""
    return term.operator.name == "compute"


def _rereads(term: Term, child: Term) -> int:
    """How often, at least, an element of a child is read for those of a term."""
    if term.operator.name == "compute":
        return 2 if category_of(term) in (Category.CONTRACTION, Category.NORMALIZATION) else 1
    if term.operator.moves and isinstance(term.type, AccessType):
        return 2 if term.access.size > sum(c.access.size for c in term.children) else 1
    return 1 if term.operator.name in ("cast", "bitcast", *_ONCE) else 2


def _written(term: Term, child: Term) -> int:
    """How often the formula of a child is part of that of a term."""
    if term.operator.name != "compute" or category_of(term) is not Category.FOLD:
        return 1
    return 1 if child.operator.name == "access-product" else child.access.item[0]
