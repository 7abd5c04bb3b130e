"""How a program was compiled, in numbers and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from glenside.codegen.memory.buffer_arena import Arena
from glenside.codegen.passes.rematerialization.plan import Schedule
from glenside.codegen.translation_validation.validate import Validation
from glenside.ir.names import one_line

_SLOWEST = 3
"""Stages that are named."""


@dataclass(frozen=True)
class CompileReport:
    """How a program was compiled.

    kept         whether it was compiled before, and kept
    seconds      what the compiler took, or to find what was kept
    nests        loops over buffers, one after the other
    functions    what is written for them: those that are alike share one
    weights      bytes of constants, in the order in which they are read
    arena        the memory of all that lies between the nests: activations and temporaries
    state        bytes of weights and of what an optimizer keeps, that go in and come out; 0 where it is no such step
    schedule     what is computed again within a budget, if anything had to be
    budget       whether a budget of the search is kept, in a sentence; "" where there is none
    validation   which elements of its nests were compared with the program's when it was compiled
    found        the report of the search, if there was one
    passes       seconds of each stage of lowering
    """

    program: str
    machine: str
    compiler: str
    kept: bool
    seconds: float
    nests: int
    functions: int
    weights: int
    arena: Arena
    state: int = 0
    schedule: Schedule | None = None
    budget: str = ""
    validation: Validation | None = None
    found: object = None
    passes: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        how = "kept from before" if self.kept else f"compiled by {self.compiler}"
        lines = [
            f"{one_line(self.program)}: {self.nests} nests of loops, {self.functions} functions, for {self.machine};"
            f" {how}, {self.seconds:.2f} s",
            self._stages(),
            f"Weights: {self.weights:,} bytes, in the order in which they are read.",
            str(self.arena),
            *(
                [f"State: {self.state:,} bytes of weights and what the optimizer keeps; as many go out."]
                if self.state
                else []
            ),
            *([] if self.schedule is None else [str(self.schedule)]),
            *([f"Budget: {self.budget}."] if self.budget else []),
            *([] if self.validation is None else [str(self.validation)]),
        ]
        return "\n".join([*lines, *([] if self.found is None else [str(self.found)])])

    def _stages(self) -> str:
        """The seconds of lowering, and of its slowest stages."""
        slowest = sorted(self.passes.items(), key=lambda item: -item[1])[:_SLOWEST]
        named = ", ".join(f"{name} {seconds:.2f}" for name, seconds in slowest)
        return f"Lowering: {sum(self.passes.values()):.2f} s, of which {named}."
