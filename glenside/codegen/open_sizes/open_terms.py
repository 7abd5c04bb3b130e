"""Makes one program of all sizes from programs of some sizes: its sizes are open integers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from glenside.codegen.open_sizes.fit import Fitter, Observed
from glenside.codegen.open_sizes.template import NotUniform, operands_of, terms_of
from glenside.ir.errors import TypeMismatch
from glenside.ir.open_integer import OpenInteger, OpenText, value_at
from glenside.ir.operand import Array
from glenside.ir.program import Program, entry_of
from glenside.ir.size_expression import Size
from glenside.ir.term import Term, build, postorder, shared
from glenside.ir.types import Dims, Tensor

_WHOLE = re.compile(r"-?\d+(\.0+)?")
"""The text of a whole number, of integers or of floats."""


def program_of_all_sizes(
    programs: Sequence[Program],
    samples: Sequence[Mapping[str, int]],
    sizes: Mapping[str, int],
    open_sizes: Sequence[Size],
) -> Program:
    """Returns a program whose sizes are open integers, from programs of sample sizes with the same operators.

    sizes  the sizes at which the open integers have their values

    Of the constants it has those of one element that are the same at all sizes. Raises NotUniform.
    """
    return _Terms(programs, Fitter(samples, open_sizes), sizes).program()


class _Terms:
    def __init__(self, programs: Sequence[Program], fitter: Fitter, sizes: Mapping[str, int]) -> None:
        self.programs = programs
        rows = [terms_of(program) for program in programs]
        self.columns, places = list(zip(*rows, strict=False)), zip(*map(operands_of, rows), strict=False)
        observed: dict[Observed, tuple[Term, ...]] = {}
        for terms, kinds in zip(self.columns, places, strict=True):
            if len({operator for operator, _ in kinds}) > 1:
                raise NotUniform(f"{self._place(terms)}{terms[0].operator.name} is another operator at other sizes")
            if len({*kinds}) > 1:
                raise NotUniform(f"{self._place(terms)}{terms[0].operator.name} has other operands at other sizes")
            for attributes in zip(*(term.attributes for term in terms), strict=True):
                try:
                    observed = dict.fromkeys(_varying(attributes), terms) | observed
                except NotUniform as error:
                    raise NotUniform(f"{self._place(terms)}{error}") from None
        if len({*map(len, rows)}) > 1:
            longest = max(range(len(rows)), key=lambda place: len(rows[place]))
            place = self._place(rows[longest][len(self.columns) :], longest)
            raise NotUniform(f"{place}its programs have different terms at different sizes")
        self.integers: dict[Observed, OpenInteger] = {}
        for values, found in fitter.fit_all(observed).items():
            if found is None:
                words = f"the sizes {values} are no expression of the open sizes"
                raise NotUniform(f"{self._place(observed[values])}{words}")
            own = found.expanded()
            self.integers[values] = OpenInteger(own.at(sizes), own)

    def _place(self, terms: Sequence[Term], program: int = 0) -> str:
        """Returns, for a message, the node of the file to which terms belong, or the first that reads them."""
        own, term, readers = self.programs[program], terms[0], dict[Term, Term]()
        for each in postorder(own.term):
            for child in each.children:
                readers.setdefault(child, each)
        while term not in own.nodes and term in readers:
            term = readers[term]
        return f"{own.nodes[term]}: " if term in own.nodes else ""

    def program(self) -> Program:
        made: dict[Term, Term] = {}
        for terms in self.columns:
            first = terms[0]
            attributes = tuple(map(self._attribute, zip(*(term.attributes for term in terms), strict=True)))
            try:
                made[first] = shared(first.operator, tuple(made[child] for child in first.children), attributes)
            except TypeMismatch as error:
                raise NotUniform(f"{self._place(terms)}{error}") from error
        first = self.programs[0]
        same = {
            name: first.constants[name]
            for name, tensor in first.constants_declared.items()
            if tensor.dims.product() == 1 and name in first.constants and have_same(name, self.programs)
        }
        leaves = (made[build("access-tensor", tensor)] for tensor in first.signature.inputs)
        inputs = tuple(own for leaf in leaves for own in leaf.attributes if isinstance(own, Tensor))
        return replace(
            first,
            term=made[first.term],
            signature=replace(first.signature, inputs=inputs),
            layers={name: made[term] for name, term in first.layers.items() if term in made},
            labels={},
            names={},
            origins={},
            nodes={},
            constants=MappingProxyType(same),
        )

    def _attribute(self, values: tuple[Any, ...]) -> Any:
        first = values[0]
        if all(value == first for value in values):
            return first
        if isinstance(first, Tensor):
            return replace(first, dims=self._attribute(tuple(value.dims for value in values)))
        if isinstance(first, tuple):
            return Dims(map(self._attribute, zip(*values, strict=True)))
        if isinstance(first, str):
            return OpenText(self.integers[tuple(map(_integer, values))])
        return self.integers[values]


def program_at(program: Program, sizes: Mapping[str, int]) -> Program:
    """Returns the program of given sizes from one whose sizes are open integers. Raises TypeMismatch."""
    made: dict[Term, Term] = {}
    for term in postorder(program.term):
        children = tuple(made[child] for child in term.children)
        attributes = tuple(_at(attribute, sizes) for attribute in term.attributes)
        made[term] = shared(term.operator, children, attributes)
    layers = {name: made[term] for name, term in program.layers.items()}
    return replace(program, term=made[program.term], layers=layers, names={})


def _at(attribute: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(attribute, OpenInteger):
        return value_at(attribute, sizes)
    if isinstance(attribute, OpenText):
        return str(value_at(attribute.integer, sizes))
    if isinstance(attribute, Tensor):
        return replace(attribute, dims=_at(attribute.dims, sizes))
    if isinstance(attribute, Dims):
        return Dims(_at(each, sizes) for each in attribute)
    return attribute


def _varying(values: tuple[Any, ...]) -> set[Observed]:
    """Returns the integers of corresponding attributes that depend on the sizes. Raises NotUniform."""
    first = values[0]
    if all(value == first for value in values):
        return set()
    if isinstance(first, tuple) and all(len(value) == len(first) for value in values):
        return {found for own in zip(*values, strict=True) for found in _varying(own)}
    if isinstance(first, Tensor) and all(replace(value, dims=first.dims) == first for value in values):
        return _varying(tuple(value.dims for value in values))
    if isinstance(first, int):
        return {values}
    if all(isinstance(value, str) and _WHOLE.fullmatch(value) for value in values):
        return {tuple(map(_integer, values))}
    raise NotUniform(f"the attribute {first} is another at other sizes")


def _integer(text: str) -> int:
    return int(text.partition(".")[0])


def have_same(name: str, programs: Sequence[Program]) -> bool:
    """True if all programs have a constant, and its values are bitwise equal."""
    if any(name not in program.constants for program in programs):
        return False
    entries = [entry_of(program.constants, name) for program in programs]
    if all(entry is entries[0] for entry in entries):
        return True
    first = programs[0].constants[name]
    return all(same_array(first, program.constants[name]) for program in programs[1:])


def same_array(a: Array, b: Array) -> bool:
    """True if two constants are bitwise equal."""
    if a is b:
        return True
    return a.shape == b.shape and a.dtype == b.dtype and np.array_equal(_bytes_of(a), _bytes_of(b))


def _bytes_of(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
