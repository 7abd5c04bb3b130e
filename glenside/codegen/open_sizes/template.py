"""Loops of all sizes: loops lowered from a program whose sizes are open integers, as a function of the sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from glenside.codegen.loop_ir.ir import Buffer, For, Loops, Nest, Role, Way
from glenside.ir.index_map import Axis
from glenside.ir.open_integer import OpenFraction, OpenInteger
from glenside.ir.program import Program
from glenside.ir.size_expression import Expression, Size
from glenside.ir.term import Term, postorder
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


@dataclass(frozen=True)
class _Sequence:
    kind: type
    items: tuple[Any, ...]


@dataclass(frozen=True)
class _Record:
    kind: type
    fields: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, eq=False)
class _BufferOf:
    record: _Record


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

    def inferable(self) -> Iterator[tuple[str, int, int, int]]:
        """Yields (name, axis, factor, constant) for each axis whose size is factor * size + constant."""
        for axis, dim in enumerate(self.dims):
            if len(dim.terms) == 1 and len(dim.terms[0][1]) == 1 and isinstance(dim.terms[0][1][0], Size):
                yield dim.terms[0][1][0].name, axis, dim.terms[0][0], dim.constant


def terms_of(program: Program) -> list[Term]:
    """Returns the terms of a program in a fixed order."""
    return list(postorder(program.term))


class Template:
    """Loops as a function of sizes, from the loops of a program whose sizes are open integers. Raises NotUniform."""

    def __init__(self, program: Program, loops: Loops) -> None:
        self._positions = {term: i for i, term in enumerate(terms_of(program))}
        self._buffers: dict[int, _BufferOf] = {}
        self._known: dict[int, Any] = {}
        self._kept = loops  # keeps the ids in `_buffers` and `_known` valid
        self._root = self._part(loops)
        own = dict(self._root.fields)
        self.buffers = [self._buffer(part.record) for part in own["buffers"].items]
        places = {part: number for number, part in enumerate(own["buffers"].items)}
        self.results = [places[part] for part in own["results"].items]

    def _buffer(self, record: _Record) -> OpenBuffer:
        own = dict(record.fields)
        dims = tuple(n.expression if isinstance(n, OpenInteger) else Expression((), n) for n in own["dims"].items)
        return OpenBuffer(own["name"], dims, own["dtype"], own["role"])

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
        """Returns the template of a part of the loops. Raises NotUniform."""
        if isinstance(part, Buffer):
            if id(part) not in self._buffers:
                self._buffers[id(part)] = _BufferOf(self._record(part))
            return self._buffers[id(part)]
        if isinstance(part, Term):
            if part not in self._positions:
                raise NotUniform("its loops have terms that the program does not have")
            return _TermAt(self._positions[part])
        if isinstance(part, tuple | list):
            return _Sequence(type(part), tuple(map(self._part, part)))
        return self._record(part) if is_dataclass(part) else part

    def _record(self, part: Any) -> _Record:
        if isinstance(part, For) and part.way in _OF_FIXED_STEPS and isinstance(part.axis.size, OpenInteger):
            raise NotUniform(f"{part.way.value} loops have {part.axis.size.expression} steps")
        kind, found = type(part), []
        for field in fields(kind):
            if kind is Nest and field.name in _DROPPED:
                found.append((field.name, _DROPPED[field.name]))
            elif field.init:
                found.append((field.name, self._part(getattr(part, field.name))))
        return _Record(kind, tuple(found))


class _Instance:
    """The loops of a template at some sizes, or at all (None).

    terms    the terms of the program of these sizes, or None
    elements  the elements of some buffers, instead of their dims
    """

    def __init__(
        self, sizes: Mapping[str, int] | None, terms: Sequence[Term] | None, elements: Mapping[str, int]
    ) -> None:
        self.sizes, self.terms, self.elements = sizes, terms, elements
        self.buffers: dict[_BufferOf, Buffer] = {}
        self.numbers: dict[Expression, int] = {}

    def made(self, part: Any) -> Any:
        """Returns a part of the loops."""
        if isinstance(part, OpenInteger):
            return part if self.sizes is None else self._number(part)
        if isinstance(part, _Record):
            return self._record(part)
        if isinstance(part, _Sequence):
            return part.kind(map(self.made, part.items))
        if isinstance(part, _BufferOf):
            if part not in self.buffers:
                self.buffers[part] = self._record(part.record)
            return self.buffers[part]
        if isinstance(part, _TermAt):
            return None if self.terms is None else self.terms[part.position]
        if isinstance(part, OpenFraction):
            return part if self.sizes is None else part.at(self.sizes)
        return part

    def _number(self, part: OpenInteger) -> int:
        assert self.sizes is not None, "sizes are given"
        if part.expression not in self.numbers:
            self.numbers[part.expression] = part.expression.at(self.sizes)
        return self.numbers[part.expression]

    def _record(self, part: _Record) -> Any:
        own = {name: self.made(value) for name, value in part.fields}
        if part.kind is Axis:
            own["limit"] = 0
            if own["size"] < 0:
                raise Misfit(f"a loop has {own['size']} steps at other sizes")
        if part.kind is Buffer and own["name"] in self.elements:
            own["dims"] = Dims((self.elements[own["name"]],))
        if self.terms is None and part.kind is Nest:
            own["terms"] = ()
        if self.terms is None and part.kind is Loops:
            own["layouts"] = ()
        return part.kind(**own)
