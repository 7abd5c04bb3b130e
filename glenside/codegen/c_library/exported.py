"""Describes a program that is exported as C: source, arrays, values of constants, and open sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from glenside.codegen.emit_c.scalar_primitives import STORED_AS
from glenside.codegen.loop_ir.ir import Buffer, Role
from glenside.codegen.memory.buffer_arena import Arena
from glenside.codegen.open_sizes.lowered import OpenLowered, Window
from glenside.codegen.open_sizes.template import OpenBuffer
from glenside.codegen.processor.model import Machine
from glenside.codegen.runtime.compiled_function import Lowered
from glenside.ir.errors import BadInput
from glenside.ir.open_program import Range
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.size_expression import Expression
from glenside.ir.types import TupleType

LEAST_STATUS_OF_SIZES = -3
"""The status of an exported function for a size outside of its range."""


@dataclass(frozen=True)
class Constant:
    """A constant in memory; a window of it is read if it depends on the sizes."""

    array: Array
    window: Window | None = None


@dataclass(frozen=True)
class Exported:
    """A program to be written as C, for one machine.

    program_at  returns the program of given sizes
    buffers     the arrays that C reads and writes, in the order in which `run` gets their pointers
    returned    for each result of the program, the position of its buffer
    constants   position of a buffer -> its values
    ranges      name of each open size -> (least, greatest, step)
    table       how many numbers depend on the sizes
    limits      (elements of a temporary, the most for which memory is planned), where they depend on the sizes
    in_place    input -> the position of the result that may have its memory, of a program with open sizes
    """

    title: str
    machine: Machine | None
    source: str
    arena: Arena
    program_at: Callable[[Mapping[str, int]], Program]
    buffers: Sequence[OpenBuffer]
    returned: Sequence[int]
    constants: Mapping[int, Constant]
    ranges: Mapping[str, Range] = field(default_factory=dict)
    table: int = 0
    limits: Sequence[tuple[tuple[Expression, ...], int]] = ()
    in_place: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def inputs(self) -> list[OpenBuffer]:
        """The inputs, in their order."""
        return [b for b in self.buffers if b.role is Role.INPUT]

    @cached_property
    def results(self) -> list[OpenBuffer]:
        """The arrays of results, each once, in the order of the results of the program."""
        return [self.buffers[place] for place in dict.fromkeys(self.returned)]

    @cached_property
    def sizes(self) -> dict[str, str]:
        """Open size -> the name of its argument in C."""
        return {name: f"n{number}" for number, name in enumerate(self.ranges, 1)}

    @property
    def parameters(self) -> list[str]:
        """The names of the arguments in C: sizes, inputs and results."""
        inputs = [f"x{number}" for number in range(1, len(self.inputs) + 1)]
        return [*self.sizes.values(), *inputs, *(f"y{number}" for number in range(1, len(self.results) + 1))]

    @property
    def arrays(self) -> dict[str, OpenBuffer]:
        """The arguments that are arrays, by their names in C."""
        return dict(zip(self.parameters[len(self.sizes) :], [*self.inputs, *self.results], strict=True))

    def declared(self) -> str:
        """Returns the declarations of the arguments in C."""
        sizes = [f"int64_t {name}" for name in self.sizes.values()]
        kinds = [f"{'const ' if b.role is Role.INPUT else ''}{kind_in_c(b)} *{n}" for n, b in self.arrays.items()]
        return ", ".join([*sizes, *kinds])

    def elements(self, dims: Sequence[Expression]) -> str:
        """Returns the number of elements of an array in C."""
        return product_in_c([dim.in_c(self.sizes) for dim in dims])

    def least_elements(self, buffer: OpenBuffer) -> int | None:
        """Returns the number of elements of an array; None if it depends on the sizes."""
        if any(dim.terms for dim in buffer.dims):
            return None
        return buffer_elements(buffer, {})

    def result_names(self) -> list[str]:
        """Returns the name of each result array; those of a nested tuple are NAME_0, NAME_1 .."""
        program = self.program_at({name: least for name, (least, _, _) in self.ranges.items()})
        kind, names = program.term.type, program.result_names()
        stack = [*zip(names, kind.items if isinstance(kind, TupleType) else (kind,), strict=True)][::-1]
        found = []
        while stack:
            name, own = stack.pop()
            if isinstance(own, TupleType):
                stack += reversed([(f"{name}_{i}", item) for i, item in enumerate(own.items)])
            else:
                found.append(name)
        return found


def product_in_c(factors: Sequence[str]) -> str:
    """Returns the product of factors in C; numbers are multiplied here."""
    number, others = 1, []
    for factor in factors:
        if factor.isdigit():
            number *= int(factor)
        else:
            others.append(factor if re.fullmatch(r"\w+", factor) else f"({factor})")
    return " * ".join([*others, *([str(number)] if number != 1 or not others else [])]) if number else "0"


def buffer_elements(buffer: OpenBuffer, sizes: Mapping[str, int]) -> int:
    """Returns the number of elements of a buffer at given sizes."""
    count = 1
    for dim in buffer.at(sizes):
        count *= dim
    return count


def kind_in_c(buffer: OpenBuffer) -> str:
    """Returns the type of an element in C."""
    return STORED_AS[buffer.dtype]


def exported(lowered: Lowered | OpenLowered | Exported) -> Exported:
    """Returns what is written of a lowered program. Raises BadInput, Unverified."""
    if isinstance(lowered, Exported):
        return lowered
    return _open(lowered) if isinstance(lowered, OpenLowered) else _fixed(lowered)


def _fixed(lowered: Lowered) -> Exported:
    values = lowered.in_memory()
    loops, program = lowered.loops, lowered.program
    places = {buffer: number for number, buffer in enumerate(loops.buffers)}
    return Exported(
        loops.name,
        lowered.machine,
        lowered.source,
        lowered.arena,
        lambda _: program,
        [OpenBuffer(b.name, tuple(Expression((), n) for n in b.dims), b.dtype, b.role) for b in loops.buffers],
        [places[b] for b in loops.results],
        {places[b]: Constant(array) for b, array in values.items()},
    )


def _open(lowered: OpenLowered) -> Exported:
    program, greatest = lowered.open, lowered.open.greatest
    elements = lowered.planned_elements
    own = [(b, elements[b.name]) for b in lowered.buffers if b.name in elements and any(d.terms for d in b.dims)]
    return Exported(
        program.name,
        lowered.machine,
        str(lowered.written),
        lowered.arena,
        lambda sizes: lowered.program_at(sizes) if sizes else lowered.program_at(greatest),
        lowered.buffers,
        lowered.template.results,
        _open_constants(lowered),
        {name: (low, high, step) for name, (low, high, step) in program.ranges.items()},
        len(lowered.text.numbers),
        list(dict.fromkeys((b.dims, most) for b, most in own)),
        lowered.in_place,
    )


def _open_constants(lowered: OpenLowered) -> dict[int, Constant]:
    """Returns the constants of a program with open sizes. Raises BadInput for one that C cannot compute."""
    greatest = lowered.open.greatest
    loops = lowered.template.at(greatest, None)
    sources = {packing.buffer: packing.source.name for packing in loops.packings}
    for buffer in loops.buffers:
        name = sources.get(buffer, buffer.name)
        is_packed = buffer in sources and name in lowered.windows
        if buffer.role is Role.CONSTANT and (is_packed or name in lowered.computed):
            raise BadInput(
                f"the constant {name} of {lowered.open.name} depends on the sizes {', '.join(greatest)}, and is "
                f"{'packed for them' if is_packed else 'no part of that of the greatest ones'}: as C it "
                "requires numbers for them"
            )
    values = lowered.constants_at(loops, greatest)
    return {number: _constant(lowered, b, values[b]) for number, b in enumerate(loops.buffers) if b in values}


def _constant(lowered: OpenLowered, buffer: Buffer, array: Array) -> Constant:
    window = lowered.windows.get(buffer.name)
    return Constant(array) if window is None else Constant(window.whole, window)
