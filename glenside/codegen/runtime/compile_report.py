"""The report of a compilation: its figures, and their text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from glenside.codegen.memory.buffer_arena import Arena
from glenside.codegen.passes.rematerialization.plan import Schedule
from glenside.codegen.translation_validation.validate import Validation
from glenside.ir.names import one_line

_SLOWEST = 3
"""Slowest stages that the text names."""


@dataclass(frozen=True)
class CompileReport:
    """The figures of a compilation.

    kept         True if the compiled program came from the cache
    seconds      seconds of the C compiler, or of the cache lookup
    nests        number of loop nests
    functions    number of C functions; structurally equal nests share one
    weights      bytes of constants
    arena        memory of activations and temporaries
    state        bytes of weights and optimizer state of a training step, as input and as output; 0 for other programs
    schedule     the rematerialization for a budget, if one was needed
    budget       a sentence: whether the memory budget is met; "" without a budget
    validation   the validation of sampled elements
    found        the report of the search, if there was one
    remarks      other remarks on the program
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
    remarks: Sequence[str] = ()
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
        lines += [f"Note: {remark}." for remark in self.remarks]
        return "\n".join([*lines, *([] if self.found is None else [str(self.found)])])

    def _stages(self) -> str:
        """Returns the seconds of lowering, and of its slowest stages, as a sentence."""
        slowest = sorted(self.passes.items(), key=lambda item: -item[1])[:_SLOWEST]
        named = ", ".join(f"{name} {seconds:.2f}" for name, seconds in slowest)
        return f"Lowering: {sum(self.passes.values()):.2f} s, of which {named}."
