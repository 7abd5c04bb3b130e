"""Loops of all sizes: loops lowered from a program whose sizes are open integers, as a function of the sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from glenside.codegen.loop_ir.ir import Buffer, For, Loops, Nest, Role, Way
from glenside.ir.index_map import Axis
from glenside.ir.open_integer import OpenFraction, OpenInteger
from glenside.ir.operator import Operator
from glenside.ir.program import Program
from glenside.ir.size_expression import Expression, Size
from glenside.ir.term import Term, build, postorder
from glenside.ir.types import Dims

_DROPPED = {"block": None, "packings": ()}
"""Fields of nests that passes alone read."""


_OF_FIXED_STEPS = (Way.UNROLLED, Way.VECTOR, Way.MATRIX)
"""Loops whose steps are instructions: their number is the same for all sizes."""


class NotUniform(Exception):
    """Programs at two sizes that differ in more than integers, or in an integer that no expression gives."""


class Misfit(NotUniform):
    """An expression that gives an integer that cannot be at other sizes."""


@dataclass(frozen=True)
class _TermAt:
    """A term of the program, by its position."""

    position: int


@dataclass(frozen=True, eq=False)
class _Sequence:
    kind: type
    items: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class _Record:
    kind: type
    fields: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class OpenBuffer:
    """A buffer whose dims may depend on the sizes."""

    name: str
    dims: tuple[Expression, ...]
    dtype: str
    role: Role

    def at(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Returns the dims at given sizes."""
        return tuple(dim.at(sizes) for dim in self.dims)

    def of(self, dims: tuple[int, ...]) -> Buffer:
        """Returns the buffer of given dims."""
        return Buffer(self.name, Dims(dims), self.dtype, self.role)

    def inferable(self) -> Iterator[tuple[Size, int, int, int]]:
        """Yields (size, axis, factor, constant) for each axis whose size is factor * steps of a size + constant."""
        for axis, dim in enumerate(self.dims):
            if len(dim.terms) == 1 and len(dim.terms[0][1]) == 1 and isinstance(size := dim.terms[0][1][0], Size):
                yield size, axis, dim.terms[0][0], dim.constant


class Shapes:
    """The dims of buffers at given sizes: each expression is evaluated once, and buffers of equal dims share them."""

    def __init__(self, dims: Iterable[tuple[Expression, ...]]) -> None:
        self._places: dict[tuple[Expression, ...], int] = {}
        self._order = [self._places.setdefault(own, len(self._places)) for own in dims]
        self._open = list(dict.fromkeys(size for own in self._places for size in own if size.terms))
        place = {size: number for number, size in enumerate(self._open)}
        self._parts = [[(place.get(size), size.constant) for size in own] for own in self._places]

    def at(self, sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
        """Returns the dims of each buffer at given sizes."""
        values = [size.at(sizes) for size in self._open]
        found = [tuple([n if at is None else values[at] for at, n in own]) for own in self._parts]
        return [found[place] for place in self._order]


def terms_of(program: Program) -> list[Term]:
    """Returns the terms of a program in a fixed order, and last the inputs that it does not read."""
    found = dict.fromkeys(postorder(program.term))
    return list(found | dict.fromkeys(build("access-tensor", tensor) for tensor in program.signature.inputs))


def operands_of(terms: Sequence[Term]) -> list[tuple[Operator, tuple[int, ...]]]:
    """Returns the operator of each term, and the places of its operands among the terms."""
    places = {term: place for place, term in enumerate(terms)}
    return [(term.operator, tuple(places[child] for child in term.children)) for term in terms]


class Template:
    """Loops as a function of sizes, from the loops of a program whose sizes are open integers. Raises NotUniform.

    Parts that depend on no size are those of the loops themselves: records such as primitives are compared by identity.
    """

    def __init__(self, program: Program, loops: Loops) -> None:
        self._positions = {term: i for i, term in enumerate(terms_of(program))}
        self._known: dict[int, Any] = {}
        self._kept = loops  # keeps the ids in `_known` valid
        self._root = self._part(loops)
        self.buffers = [OpenBuffer(b.name, tuple(map(_expression, b.dims)), b.dtype, b.role) for b in loops.buffers]
        places = {buffer: number for number, buffer in enumerate(loops.buffers)}
        self.results = [places[buffer] for buffer in loops.results]

    def at(self, sizes: Mapping[str, int], program: Program | None, elements: Mapping[str, int] | None = None) -> Loops:
        """Returns the loops at given sizes; without a program (of the same structure) they have no terms.

        elements  the elements of some buffers by name, if they are to be larger

        Raises Misfit.
        """
        terms = None if program is None else terms_of(program)
        found: Loops = _Instance(sizes, terms, elements or {}).made(self._root)
        return found

    def symbolic(self) -> Loops:
        """Returns the loops at all sizes, without terms: their integers know their expressions."""
        found: Loops = _Instance(None, None, {}).made(self._root)
        return found

    def _part(self, part: Any) -> Any:
        """Returns the template of a part of the loops; of one object it is one. Raises NotUniform."""
        if isinstance(part, tuple | list) or is_dataclass(part):
            if id(part) not in self._known:
                self._known[id(part)] = self._new(part)
            return self._known[id(part)]
        return part

    def _new(self, part: Any) -> Any:
        if isinstance(part, Term):
            if part not in self._positions:
                raise NotUniform("its loops have terms that the program does not have")
            return _TermAt(self._positions[part])
        if isinstance(part, tuple | list):
            items = tuple(map(self._part, part))
            return part if all(map(_is_fixed, items, part)) else _Sequence(type(part), items)
        record = self._record(part)
        is_same = all(_is_fixed(own, getattr(part, name)) for name, own in record.fields)
        return part if is_same and not isinstance(part, Loops | Nest) else record

    def _record(self, part: Any) -> _Record:
        if isinstance(part, For) and part.way in _OF_FIXED_STEPS and isinstance(part.axis.size, OpenInteger):
            raise NotUniform(f"{part.way.value} loops have {part.axis.size.expression} steps")
        kind = type(part)
        names = [field.name for field in fields(kind) if field.init]
        return _Record(kind, tuple((name, self._field(part, name)) for name in names))

    def _field(self, part: Any, name: str) -> Any:
        """Returns the template of a field; the limits of axes are those of the representative sizes, and go."""
        if isinstance(part, Nest) and name in _DROPPED:
            return _DROPPED[name]
        return 0 if isinstance(part, Axis) and name == "limit" else self._part(getattr(part, name))


def _is_fixed(template: Any, part: Any) -> bool:
    """True if a part of the loops is the same at all sizes."""
    return template is part and not isinstance(part, OpenInteger | OpenFraction)


def _expression(size: int) -> Expression:
    return size.expression if isinstance(size, OpenInteger) else Expression((), size)


class _Instance:
    """The loops of a template at some sizes, or at all (None).

    terms    the terms of the program of these sizes, or None
    elements  the elements of some buffers, instead of their dims
    """

    def __init__(
        self, sizes: Mapping[str, int] | None, terms: Sequence[Term] | None, elements: Mapping[str, int]
    ) -> None:
        self.sizes, self.terms, self.elements = sizes, terms, elements
        self.known: dict[_Record | _Sequence, Any] = {}
        self.numbers: dict[Expression, int] = {}

    def made(self, part: Any) -> Any:
        """Returns a part of the loops; of one template it is one object."""
        if isinstance(part, OpenInteger):
            return part if self.sizes is None else self._number(part)
        if isinstance(part, OpenFraction):
            return part if self.sizes is None else part.at(self.sizes)
        if isinstance(part, _TermAt):
            return None if self.terms is None else self.terms[part.position]
        if not isinstance(part, _Record | _Sequence):
            return part
        if part not in self.known:
            self.known[part] = self._new(part)
        return self.known[part]

    def _number(self, part: OpenInteger) -> int:
        assert self.sizes is not None, "sizes are given"
        if part.expression not in self.numbers:
            self.numbers[part.expression] = part.expression.at(self.sizes)
        return self.numbers[part.expression]

    def _new(self, part: _Record | _Sequence) -> Any:
        if isinstance(part, _Sequence):
            return part.kind(map(self.made, part.items))
        own = {name: self.made(value) for name, value in part.fields}
        if part.kind is Axis and own["size"] < 0:
            raise Misfit(f"a loop has {own['size']} steps at other sizes")
        if part.kind is Buffer and own["name"] in self.elements:
            own["dims"] = Dims((self.elements[own["name"]],))
        if self.terms is None and part.kind is Nest:
            own["terms"] = ()
        if self.terms is None and part.kind is Loops:
            own["layouts"] = ()
        return part.kind(**own)
