"""Describes a program that is exported as C: source, arrays, values of constants, and open sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate

from glenside.codegen.emit_c.scalar_primitives import STORED_AS
from glenside.codegen.loop_ir.ir import Buffer, Role
from glenside.codegen.open_sizes.callable import OpenCallable
from glenside.codegen.open_sizes.lowered import OpenLowered, Window
from glenside.codegen.open_sizes.lowered_chain import LoweredChain
from glenside.codegen.open_sizes.template import OpenBuffer
from glenside.codegen.processor.model import Machine
from glenside.codegen.runtime.compiled_function import Lowered
from glenside.ir.dtypes import RECORDS
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
class Call:
    """A call of C code that runs a stage of a program.

    run      the C function
    given    positions of the buffers that it reads, and `results` of those that it stores, in the order of its pointers
    numbers  position of its first number in the table of numbers that depend on the sizes
    name     of the stage that it runs
    """

    run: str
    given: Sequence[int]
    results: Sequence[int]
    numbers: int = 0
    name: str = ""


@dataclass(frozen=True)
class Exported:
    """A program to be written as C, for one machine.

    program_at  returns the program of given sizes
    buffers     the arrays that C reads and writes
    calls       in their order
    memory      bytes of the temporaries of a call, and `scratch` bytes of scratch memory per thread
    returned    for each result of the program, the position of its buffer
    constants   position of a buffer -> its values
    values      position of a buffer between calls -> its place in bytes, in memory of `between` bytes
    ranges      name of each open size -> (least, greatest, step)
    tables      C function that computes numbers that depend on the sizes -> the position of the first one
    table       how many numbers depend on the sizes
    limits      (elements of a temporary, the most for which memory is planned), where they depend on the sizes
    in_place    input -> the position of the result that may have its memory, of a program with open sizes
    compiled    the same as a function, where it was compiled
    """

    title: str
    machine: Machine | None
    source: str
    program_at: Callable[[Mapping[str, int]], Program]
    buffers: Sequence[OpenBuffer]
    calls: Sequence[Call]
    memory: int
    scratch: int
    returned: Sequence[int]
    constants: Mapping[int, Constant]
    values: Mapping[int, int] = field(default_factory=dict)
    between: int = 0
    ranges: Mapping[str, Range] = field(default_factory=dict)
    tables: Mapping[str, int] = field(default_factory=dict)
    table: int = 0
    limits: Sequence[tuple[tuple[Expression, ...], int]] = ()
    in_place: Mapping[str, int] = field(default_factory=dict)
    compiled: OpenCallable | None = None

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


def exported(lowered: Lowered | OpenLowered | LoweredChain | Exported) -> Exported:
    """Returns what is written of a lowered program. Raises BadInput, Unverified."""
    if isinstance(lowered, Exported):
        return lowered
    if isinstance(lowered, LoweredChain):
        return _chain(lowered)
    return _open(lowered) if isinstance(lowered, OpenLowered) else _fixed(lowered)


def _fixed(lowered: Lowered) -> Exported:
    values = lowered.in_memory()
    loops, program = lowered.loops, lowered.program
    places = {buffer: number for number, buffer in enumerate(loops.buffers)}
    buffers = [OpenBuffer(b.name, tuple(Expression((), n) for n in b.dims), b.dtype, b.role) for b in loops.buffers]
    return Exported(
        loops.name,
        lowered.machine,
        lowered.source,
        lambda _: program,
        buffers,
        [_call(buffers)],
        lowered.arena.size,
        lowered.arena.scratch,
        [places[b] for b in loops.results],
        {places[b]: Constant(array) for b, array in values.items()},
    )


def _open(lowered: OpenLowered) -> Exported:
    return Exported(
        lowered.open.name,
        lowered.machine,
        str(lowered.written),
        lowered.program_at,
        lowered.buffers,
        [_call(lowered.buffers)],
        lowered.arena.size,
        lowered.arena.scratch,
        lowered.template.results,
        _open_constants(lowered),
        {},
        0,
        {name: (low, high, step) for name, (low, high, step) in lowered.open.ranges.items()},
        {"open_sizes": 0},
        len(lowered.text.numbers),
        _limits(lowered),
        lowered.in_place,
        lowered.compiled,
    )


def _call(buffers: Sequence[OpenBuffer]) -> Call:
    """Returns the only call of a program."""
    given = [n for n, b in enumerate(buffers) if b.role in (Role.INPUT, Role.CONSTANT)]
    return Call("run", given, [n for n, b in enumerate(buffers) if b.role is Role.RESULT])


def _limits(lowered: OpenLowered) -> list[tuple[tuple[Expression, ...], int]]:
    """Returns the dims of temporaries that depend on the sizes, and for how many elements memory is planned."""
    own = [(b.dims, lowered.planned_elements.get(b.name)) for b in lowered.buffers]
    return list(dict.fromkeys((dims, most) for dims, most in own if most is not None and any(d.terms for d in dims)))


def _chain(chain: LoweredChain) -> Exported:
    """Returns a chain: one call for each stage, of its first variant, and values between calls in memory."""
    buffers: list[OpenBuffer] = [*chain.inputs]
    places: dict[str | int, int] = {b.name: number for number, b in enumerate(buffers)}
    results = range(len(buffers), len(buffers) + len(chain.unique))
    stored: dict[tuple[int, int], int] = dict(zip(chain.unique, results, strict=True))
    buffers += [replace(chain.result(*own), name=f"result {n}") for n, own in enumerate(chain.unique)]
    slots = dict(zip(chain.slot_bytes, accumulate(chain.slot_bytes.values(), initial=0), strict=False))
    values, limits = dict[int, int](), [limit for kind in chain.kinds for limit in _limits(kind.variants[0])]
    for own, value in chain.values():
        if own not in stored:
            buffer, slot = chain.result(*own), chain.slots[value]
            stored[own] = len(buffers)
            values[len(buffers)] = slots[slot]
            buffers.append(replace(buffer, name=f"value {value}", role=Role.TEMPORARY))
            if any(dim.terms for dim in buffer.dims):
                limits.append((buffer.dims, chain.slot_bytes[slot] // RECORDS[buffer.dtype].numpy.itemsize))
        places[value] = stored[own]
    first = [*accumulate((len(kind.variants[0].text.numbers) for kind in chain.kinds), initial=0)]
    number_of = {kind.stage.kind: number for number, kind in enumerate(chain.kinds)}
    constants, calls = dict[int, Constant](), list[Call]()
    for at, stage in enumerate(chain.stages):
        lowered, number = stage.variants[0], number_of[stage.stage.kind]
        known, operands, given = _open_constants(lowered), iter(stage.operands), list[int]()
        for place, buffer in enumerate(lowered.buffers):
            if buffer.role is Role.INPUT:
                given.append(places[next(operands)])
            elif buffer.role is Role.CONSTANT:
                given.append(len(buffers))
                constants[len(buffers)] = known[place]
                buffers.append(buffer)
        order = lowered.template.results
        targets = [stored[at, order.index(n)] for n, b in enumerate(lowered.buffers) if b.role is Role.RESULT]
        calls.append(Call(f"run_{number + 1}", given, targets, first[number], stage.stage.program.name))
    return Exported(
        chain.open.name,
        chain.machine,
        str(chain.written),
        chain.open.at,
        buffers,
        calls,
        chain.arena.size - chain.between,
        chain.arena.scratch,
        [results[number] for number in chain.returned],
        constants,
        values,
        chain.between,
        {name: (low, high, step) for name, (low, high, step) in chain.open.ranges.items()},
        {f"open_sizes_{number}": begin for number, begin in enumerate(first[:-1], 1)},
        first[-1],
        list(dict.fromkeys(limits)),
        {b.name: results[n] for b, n in zip(chain.inputs, chain.in_place, strict=True) if n is not None},
        chain.compiled,
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
