"""The conditions that the verifier checks of loops before they run; a violation is reported as a `Fault`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from glenside.codegen.loop_ir.ir import Nest


class Condition(Enum):
    """The conditions, each with its statement."""

    COUNTED = "each index counts with the counters of the loops around it"
    NAMED = "a variable is made once, before it is read, and is changed by no steps that threads share"
    TYPED = "what is stored, and what a primitive takes, is of the dtype that it must be"
    OWNED = "a nest stores to its own buffer, and to memory of its thread"
    LANES = "vectors are whole and next to each other, and registers are known where loops are written out"
    BOUNDED = "a computed index is held to its axis, on every path, before it moves a place"
    STRIDED = "a computed index moves a place by a stride of the buffer as it lies in memory"
    WITHIN = "each place lies in its buffer"
    WRITTEN = "each element is written before it is read"
    RACES = "no step that any thread may take touches what another one writes"
    PRIVATE = "scratch memory and registers are written first by each step that threads share"
    ARENA = "temporaries that are needed at a time lie apart in the arena"
    RESULTS = "each element of each result is written"
    MEANING = "what a nest stores is the element of the term that lies there, of all that are sampled"
    INTERFACE = "inputs and results have the dims and dtypes of the program's"


@dataclass(frozen=True)
class Fault:
    """A violated condition, with a message and the nest at fault; None if the fault is in no single nest."""

    condition: Condition
    said: str
    nest: Nest | None = None

    def __str__(self) -> str:
        return self.said if self.nest is None else f"{self.nest.buffer} ({self.nest.what}): {self.said}"
