"""Verifies loops before they run: every `Condition` of `loop_ir.faults` for all nests, the arena, inputs and results.

The product verifies once, before it compiles or writes code; tests verify after each pass. Safety is checked
completely: no access out of bounds, no read before a write, no race. That nests compute the elements of their terms is
checked at sampled elements (`translation_validation`), and completely by `f.check()`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from glenside.codegen.loop_ir.faults import Condition, Fault
from glenside.codegen.loop_ir.ir import Buffer, Loops, Nest, Packing, Role
from glenside.codegen.loop_ir.open_axes import is_open
from glenside.codegen.loop_ir.pass_observer import observed
from glenside.codegen.loop_ir.step_loops import groups, nests_of
from glenside.codegen.loop_ir.structural_hash import alike
from glenside.codegen.memory.buffer_arena import Arena
from glenside.codegen.translation_validation.validate import Validation, mismatches, packed_wrongly
from glenside.codegen.verify.verify_loops import Checker
from glenside.ir.errors import GlensideError
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.types import AccessType, Dims, TupleType, Type


class Unverified(GlensideError):
    """Loops that break a condition: a mistake of the compiler, so that nothing is run or written."""

    status = 1


_SAMPLING_SECONDS = 0.15
_SAMPLING_SECONDS_PER_NEST = 0.003
"""Seconds of this thread for sampling: `_SAMPLING_SECONDS`, and `_SAMPLING_SECONDS_PER_NEST` more for each nest."""


def verify(
    loops: Loops,
    plan: Arena,
    program: Program,
    constants: Mapping[Buffer, Array],
    packings: Sequence[Packing] | None = None,
    checker: Checker | None = None,
) -> Validation:
    """Verifies loops before they run, and packed constants; returns the validation of the sampled elements.

    packings  those whose constants are compared with their sources; by default all of the loops
    checker   of other loops of the same program, whose parts that are alike are not verified again

    Raises Unverified, which names the layer and the fault.
    """
    for fault in (*(checker or Checker()).faults(loops, plan), *_interface(loops, program), *_bodies(loops)):
        raise Unverified(_sentence(fault, loops, program))
    found = _sampled(loops, program)
    for body in loops.bodies:
        found = found.plus(_sampled(body.loops, body.program))
    compared = loops.packings if packings is None else packings
    for fault in (*found.wrong, *packed_wrongly(compared, constants, program.constants)):
        raise Unverified(_sentence(fault, loops, program))
    return found


def _sampled(loops: Loops, program: Program) -> Validation:
    seconds = _SAMPLING_SECONDS + _SAMPLING_SECONDS_PER_NEST * len(loops.nests)
    return mismatches(loops, program.term, program.constants, seconds)


def _bodies(loops: Loops) -> Iterator[Fault]:
    """Yields a fault for each loop of steps whose nests are not those of its body, which is sampled by itself."""
    packed = {packing.buffer: replace(packing, buffer=packing.source) for packing in loops.packings}
    own = {counter: nests for counter, nests in groups(loops.nests) if counter is not None}
    for body in loops.bodies:
        constants = [packing for packing in body.loops.packings if packing.buffer.role is Role.CONSTANT]
        used = (*(nest.buffer for nest in body.loops.nests), *(packing.source for packing in constants))
        if (lost := next((buffer for buffer in used if buffer not in body.places), None)) is not None:
            yield Fault(Condition.MEANING, f"the loop of {body.program.name} has no memory for {lost} of its body")
            continue
        for packing in constants:
            source, _ = body.places[packing.source]
            packed.setdefault(packing.buffer, replace(packing, buffer=source, source=source))
        wanted = nests_of(body)
        if len(wanted) != len(own.get(body.counter, ())):
            yield Fault(Condition.MEANING, f"the loop of {body.program.name} has other nests than its body")
            continue
        for nest, other in zip(own[body.counter], wanted, strict=True):
            (like, buffers), (unlike, others) = alike(nest.body), alike(other.body)
            same = like == unlike and all(
                a is b or (a in packed and packed[a] == packed.get(b)) for a, b in zip(buffers, others, strict=True)
            )
            if not same:
                yield Fault(Condition.MEANING, "it differs from the nest of the loop's body", nest)


def _interface(loops: Loops, program: Program) -> Iterator[Fault]:
    """Yields a fault for each input or result whose dims or dtype differ from those of the program."""
    for buffer in loops.buffers:
        tensor = program.tensors.get(buffer.name) if buffer.role is Role.INPUT else None
        if tensor is not None and (tensor.dims, tensor.dtype) != (buffer.dims, buffer.dtype):
            yield Fault(Condition.INTERFACE, f"input {buffer} is ({_words(buffer.dims)}) {buffer.dtype}")
    wanted = list(_results(program.term.type))
    found = [(buffer.dims, buffer.dtype) for buffer in loops.results]
    if [(access.dims, access.dtype) for access in wanted] != found:
        yield Fault(Condition.INTERFACE, "the dims or dtypes of results differ from those of the program")


def _results(type_: Type) -> Iterator[AccessType]:
    if isinstance(type_, TupleType):
        for item in type_.items:
            yield from _results(item)
    else:
        assert isinstance(type_, AccessType), "a program gives access patterns"
        yield type_


def _words(dims: Dims) -> str:
    return " ".join(map(str, dims))


def _sentence(fault: Fault, loops: Loops, program: Program) -> str:
    """Returns a sentence that names the layer, the fault, the broken condition, and whose mistake it is."""
    where = f"of {program.name}" if fault.nest is None else _layer(fault.nest, loops, program)
    condition = f"{fault.condition.name.lower()}: {fault.condition.value}"
    return (
        f"the loops {where} are wrong: {fault.said} ({condition}). It is a mistake of Glenside's compiler, not of the "
        "program: nothing is run or written; please report it"
    )


def _layer(nest: Nest, loops: Loops, program: Program) -> str:
    """Returns a description of a nest: its number, its operation, and its layers of the program."""
    names = {term: name for name, term in (*program.names.items(), *program.layers.items())}
    layers = list(dict.fromkeys(names[term] for term in nest.terms if term in names))
    of = f"layer {', '.join(layers[:3])}, " if layers else ""
    number = f"nest {loops.nests.index(nest) + 1} of {len(loops.nests)}, " if nest in loops.nests else ""
    return f"of {program.name} ({of}{number}{nest.buffer}: {nest.what})"


@contextmanager
def verified_passes() -> Iterator[None]:
    """Verifies loops after each pass too, for tests. Raises Unverified, which names the pass that broke them.

    Loops of open sizes are not verified: these are, at some sizes.
    """
    checker = Checker()

    def verified(name: str, loops: Loops) -> None:
        if any(map(is_open, (size for buffer in loops.buffers for size in buffer.dims))):
            return
        for fault in checker.faults(loops):
            raise Unverified(f"after the pass {name!r} the loops of {loops.name} are wrong: {fault}")

    with observed(verified):
        yield
