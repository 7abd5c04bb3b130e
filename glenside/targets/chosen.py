"""The targets that a user names, as objects or texts, and those of compilation by default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glenside.ir.errors import BadInput
from glenside.ir.open_program import OpenProgram
from glenside.targets.base import Compiles, PricesAlgebra, Target

if TYPE_CHECKING:
    from glenside.codegen.processor.model import Machine

DEFAULT_TARGET, AS_IT_IS = "cpu", "none"
"""The default target of `compile` and `glenside compile`; and the name for compiling without optimization."""


def as_target(target: Target | str) -> Target:
    """Returns the target of an object or text. Raises BadInput."""
    from glenside.targets import parse_target  # loads all targets

    if isinstance(target, str):
        return parse_target(target)
    if not isinstance(target, Target):
        raise BadInput(f"a target is one such as gl.CPU(), or text such as 'cpu:8MB', got {target!r}")
    return target


def target_named(target: Target | str | None, memory: int | str | None, machine: Machine | None) -> Target | None:
    """Returns the target of an object or text; "cpu" gets the memory budget.

    Returns None for a program that is compiled unoptimized, as plain loops always are (`machine` is None). Raises
    BadInput.
    """
    if target is None or target == AS_IT_IS:
        return None
    if isinstance(target, str) and target == DEFAULT_TARGET:
        return None if machine is None else as_target(DEFAULT_TARGET if memory is None else f"cpu:{memory}")
    return as_target(target)


def target_of_open(program: OpenProgram, target: Target | str | None, of: Machine | None) -> PricesAlgebra | None:
    """Returns the target of a search over open sizes, for a machine; None for no search. Raises BadInput."""
    wanted = target_named(target, None, of)
    if wanted is not None and (wanted.budget is not None or not isinstance(wanted, Compiles)):
        raise BadInput(f"{wanted.name} requires numbers for the open sizes {', '.join(program.ranges)}")
    compiled = None if of is None or wanted is None else wanted.compiled_for(of)
    return compiled if isinstance(compiled, PricesAlgebra) else None
