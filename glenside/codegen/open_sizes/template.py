"""Loops of all sizes: loops lowered at sample sizes, of one structure, whose integers are expressions of the sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from typing import Any

from glenside.codegen.loop_ir.ir import Buffer, Loops, Nest, Role
from glenside.codegen.open_sizes.expression import Expression, Size
from glenside.codegen.open_sizes.fit import Fitter, Observed
from glenside.codegen.open_sizes.open_integer import Numbers, OpenInteger
from glenside.ir.index_map import Axis
from glenside.ir.program import Program
from glenside.ir.term import Term, postorder
from glenside.ir.types import Dims

_DROPPED = {"block": None, "packings": ()}
"""Fields of nests that passes alone read."""


class NotUniform(Exception):
    """Loops at two sizes that differ in more than integers, or in an integer that no expression gives."""


class Misfit(NotUniform):
    """An expression that holds at the samples, and at other sizes gives an integer that cannot be."""


@dataclass(frozen=True)
class _Integer:
    """An integer that depends on the sizes: its values at the samples."""

    values: Observed


@dataclass(frozen=True)
class _Ratio:
    """A rational number that depends on the sizes."""

    numerator: Any
    denominator: Any


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
    """Loops as a function of sizes, from the loops of sample programs. Raises NotUniform."""

    def __init__(self, fitter: Fitter, programs: Sequence[Program], loops: Sequence[Loops]) -> None:
        self.fitter = fitter
        self._positions = [{term: i for i, term in enumerate(terms_of(program))} for program in programs]
        self._buffers: dict[tuple[int, ...], _BufferOf] = {}
        self._kept = list(loops)  # keeps the ids in `_buffers` valid
        self._observed: set[Observed] = set()
        self.ratios: list[tuple[Observed, Observed]] = []
        self._root = self._unified(tuple(loops), "loops")
        self.expressions: dict[Observed, Expression] = {}
        for values, found in fitter.fit_all(self._observed).items():
            if found is None:
                raise NotUniform(f"the integer {values} of its loops is no expression of the sizes")
            self.expressions[values] = found
        own = dict(self._root.fields)
        self.buffers = [self._buffer(part.record) for part in own["buffers"].items]
        places = {part: number for number, part in enumerate(own["buffers"].items)}
        self.results = [places[part] for part in own["results"].items]

    def _buffer(self, record: _Record) -> OpenBuffer:
        own = dict(record.fields)
        dims = tuple(
            self.expressions[n.values].expanded() if isinstance(n, _Integer) else Expression((), n)
            for n in own["dims"].items
        )
        return OpenBuffer(own["name"], dims, own["dtype"], own["role"])

    def at(self, sizes: Mapping[str, int], program: Program | None, elements: Mapping[str, int] | None = None) -> Loops:
        """Returns the loops at given sizes; without a program (of the same structure) they have no terms.

        elements  the elements of some buffers by name, if they are to be larger

        Raises Misfit.
        """
        numbers = {values: found.at(sizes) for values, found in self.expressions.items()}
        terms = None if program is None else terms_of(program)
        found: Loops = _Instance(numbers, terms, elements or {}).made(self._root)
        return found

    def symbolic(self, sizes: Mapping[str, int], numbers: Numbers) -> Loops:
        """Returns the loops at given sizes, without terms; their integers know their expressions. Raises Misfit."""
        own = {of: OpenInteger(e.at(sizes), e + Expression(), numbers) for of, e in self.expressions.items()}
        found: Loops = _Instance(own, None, {}).made(self._root)
        return found

    def ratios_at(self, sizes: Mapping[str, int]) -> dict[Fraction, tuple[Expression, Expression]]:
        """Returns the numerator and the denominator of each rational number, by its value at given sizes."""
        found = {}
        for parts in self.ratios:
            above, below = (self.expressions.get(part) or Expression((), part[0]) for part in parts)
            if below.at(sizes):
                found[Fraction(above.at(sizes), below.at(sizes))] = above, below
        return found

    def _unified(self, parts: tuple[Any, ...], where: str) -> Any:
        """Returns the template of corresponding parts of all samples. Raises NotUniform."""
        first = parts[0]
        if any(type(part) is not type(first) for part in parts):
            raise NotUniform(f"{where}: {', '.join(sorted({type(part).__name__ for part in parts}))}")
        if isinstance(first, Buffer):
            key = tuple(map(id, parts))
            if key not in self._buffers:
                self._buffers[key] = _BufferOf(self._record(parts, "buffer"))
            return self._buffers[key]
        if isinstance(first, Term):
            return self._term(parts, where)
        if isinstance(first, tuple | list):
            if any(len(part) != len(first) for part in parts):
                raise NotUniform(f"{where}: {sorted({len(part) for part in parts})} parts")
            items = tuple(self._unified(own, where) for own in zip(*parts, strict=True))
            return _Sequence(type(first), items)
        if isinstance(first, Nest):
            return self._record(parts, f"the nest {first.what}")
        if is_dataclass(first):
            return self._record(parts, f"{where}.{type(first).__name__}")
        return first if all(part == first for part in parts) else self._number(parts, where)

    def _term(self, parts: tuple[Term, ...], where: str) -> _TermAt:
        found = {own.get(part) for own, part in zip(self._positions, parts, strict=True)}
        position = found.pop()
        if found or position is None:
            raise NotUniform(f"{where}: terms at different places")
        return _TermAt(position)

    def _number(self, parts: tuple[Any, ...], where: str) -> _Integer | _Ratio:
        """Returns the template of numbers that differ."""
        if type(parts[0]) is int:
            self._observed.add(parts)
            return _Integer(parts)
        if isinstance(parts[0], Fraction):
            above, below = _ratio(parts)
            self.ratios.append((above, below))
            return _Ratio(self._unified(above, where), self._unified(below, where))
        raise NotUniform(f"{where}: {parts[0]} and others")

    def _record(self, parts: tuple[Any, ...], where: str) -> _Record:
        kind = type(parts[0])
        found = []
        for field in fields(kind):
            if kind is Nest and field.name in _DROPPED:
                found.append((field.name, _DROPPED[field.name]))
            elif kind is Nest and field.name == "what":
                found.append(("what", parts[0].what))
            elif field.init:
                values = tuple(getattr(part, field.name) for part in parts)
                found.append((field.name, self._unified(values, f"{where}.{field.name}")))
        return _Record(kind, tuple(found))


class _Instance:
    """The loops of a template at some sizes.

    numbers  the values of integers, by their values at the samples
    terms    the terms of the program of these sizes, or None
    elements  the elements of some buffers, instead of their dims
    """

    def __init__(
        self, numbers: Mapping[Observed, int], terms: Sequence[Term] | None, elements: Mapping[str, int]
    ) -> None:
        self.numbers, self.terms, self.elements = numbers, terms, elements
        self.buffers: dict[_BufferOf, Buffer] = {}

    def made(self, part: Any) -> Any:
        """Returns a part of the loops."""
        if isinstance(part, _Integer):
            return self.numbers[part.values]
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
        if isinstance(part, _Ratio):
            below = self.made(part.denominator)
            return Fraction(self.made(part.numerator), below) if below else Fraction(0)
        return part

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


def _ratio(parts: Sequence[Fraction]) -> tuple[Observed, Observed]:
    """Returns numerators and denominators of numbers with one numerator, or one denominator, if they have one."""
    numerators = tuple(part.numerator for part in parts)
    denominators = tuple(part.denominator for part in parts)
    if len(set(numerators)) > 1 and len(set(denominators)) > 1:  # 3/6 became 1/2
        raise NotUniform(f"the numbers {', '.join(map(str, parts))}")
    return numerators, denominators
