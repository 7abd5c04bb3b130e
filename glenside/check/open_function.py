"""Compiles programs with open sizes, and checks them."""

from __future__ import annotations

from collections.abc import Sequence

from glenside.check.compiled import CheckFailed
from glenside.codegen.lowering.quantized_activations import with_activations
from glenside.codegen.open_sizes.function import OpenFunction
from glenside.codegen.open_sizes.lowered import OpenLowered
from glenside.codegen.processor.model import Machine, is_here, machine_of
from glenside.ir.errors import BadInput
from glenside.ir.open_program import OpenProgram
from glenside.ir.program import Program
from glenside.passes.integer_sums import for_processors, integer_sums


def compiled_open(
    program: OpenProgram, target: object, machine: str, check: bool, activations: str, options: Sequence[str]
) -> OpenFunction:
    """Compiles a program with open sizes for a machine, without a search.

    target   a target that was asked for, other than a processor, or None; it is refused
    options  names of further options, which are refused

    Raises BadInput; CheckFailed if `check` is set and fails.
    """
    if target is not None:
        name = getattr(target, "name", target)
        raise BadInput(f"{name} requires numbers for the open sizes {', '.join(program.ranges)}")
    if options:
        said = "a program with open sizes is compiled without a search, by all its passes"
        raise BadInput(f"{', '.join(options)}: {said}")
    of = machine_of(machine)
    if of is not None and not is_here(of):
        raise BadInput(f"this computer has no {of.name}")
    return checked_function(lowered_open(program.mapped(lambda own: with_activations(own, activations)), of), check)


def lowered_open(program: OpenProgram, of: Machine | None) -> OpenLowered:
    """Lowers a program with open sizes for a machine, or to plain loops for None. Raises BadInput, Unverified."""
    changes = [True]

    def prepare(own: Program) -> Program:
        if of is None:
            return own
        if not changes[0]:
            return integer_sums(own)
        found = for_processors(own)[0]
        changes[0] = found.term is not integer_sums(own).term  # batch norms are in programs of all sizes, or in none
        return found

    return OpenLowered(program, of, prepare)


def checked_function(lowered: OpenLowered, check: bool) -> OpenFunction:
    """Compiles a lowered program, and with `check` compares its results. Raises BadInput, CheckFailed."""
    function = OpenFunction(lowered)
    if check and (wrong := function.wrong()):
        raise CheckFailed(f"{lowered.open.name} as compiled fails its check {'; '.join(wrong)}")
    return function
