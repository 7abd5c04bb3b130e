"""Declares the faults that the verifier reports: a `Fault` violates a `Condition` of loops."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from glenside.codegen.loop_ir.ir import Nest


class Condition(Enum):
    """The conditions, each with its statement."""

    COUNTED = "each index uses only counters of enclosing loops"
    NAMED = "a variable is defined once, before it is read, and is not assigned by steps of a parallel loop"
    TYPED = "stored values and operands of primitives have the required dtypes"
    OWNED = "a nest stores only to its own buffer and to thread-private memory"
    LANES = "vectors are full and contiguous, and register indices are constant once loops are unrolled"
    BOUNDED = "a computed index is checked against its axis, on every path, before it is used in an access"
    STRIDED = "a computed index is multiplied by a stride of the buffer's layout"
    WITHIN = "each access is within its buffer"
    WRITTEN = "each element is written before it is read"
    RACES = "no step of a parallel loop accesses an element that another step writes"
    PRIVATE = "each step of a parallel loop writes scratch memory and registers before it reads them"
    ARENA = "temporaries that are live at the same time do not overlap in the arena"
    RESULTS = "each element of each result is written"
    NARROW = "an instruction that clamps or wraps to fewer bits has operands for which that has no effect"
    MEANING = "each sampled element that a nest stores equals the element of the term at that index"
    INTERFACE = "inputs and results have the dims and dtypes of the program"


@dataclass(frozen=True)
class Fault:
    """A violated condition, with a message and the nest at fault; None if the fault is in no single nest."""

    condition: Condition
    said: str
    nest: Nest | None = None

    def __str__(self) -> str:
        return self.said if self.nest is None else f"{self.nest.buffer} ({self.nest.what}): {self.said}"
