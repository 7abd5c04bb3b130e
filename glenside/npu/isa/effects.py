"""Declares effects: which memories an instruction accesses, at which locations, by which port, and in which cycle.

The records of instructions state their effects once. Derived from them are the inferred waits, the port checks of the
simulator, completion delays, counts of accesses, stall causes, the timing table of `rtl/README.md`, the assertions of
`rtl/npu_checks.sv`, and `rtl/npu_isa.json`. The simulator computes the locations of its accesses from the semantics of
instructions, not from effects, so that it checks both the effects and the waits inferred from them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from glenside.npu.machine.model import Machine


@dataclass(frozen=True)
class Memory:
    """A memory that instructions access.

    name    the name in effects
    word    one location, in messages
    size    number of locations on a machine; None for DRAM, whose locations are beats
    energy  field of `Energy` that counts its accesses; "" for registers, whose accesses are not counted
    ports   True if each half of a bank has one read port and one write port, which units share
    """

    name: str
    word: str
    size: Callable[[Machine], int] | None = None
    energy: str = ""
    ports: bool = False

    def located(self, at: int, machine: Machine) -> str:
        """Returns a flat index in words."""
        return f"lane {at % machine.rows} at {at // machine.rows}" if self.name == "lanes" else f"{self.word} {at}"


LANES = Memory("lanes", "lane", lambda m: m.depth * m.rows, "lane_byte", ports=True)
WEIGHTS = Memory("weights", "row of weights", lambda m: m.weight_rows, "weight_byte")
ACCUMULATORS = Memory("accumulators", "accumulator", lambda m: m.accumulators, "accumulator_word", ports=True)
TABLES = Memory("tables", "table", lambda m: m.tables)
PARAMETERS = Memory("parameters", "row of parameters", lambda m: m.parameters)
FUNCTIONS = Memory("functions", "function", lambda m: m.functions)
DRAM = Memory("dram", "beat", energy="dram_byte")
ARRAY = Memory("array", "the array's weights", lambda m: 1)
"""The weights in the array. The interlock orders its accesses. Only a load after streams that are not fresh needs a
wait in a serial array, which has no second buffer.
"""
MEMORIES = (LANES, WEIGHTS, ACCUMULATORS, TABLES, PARAMETERS, FUNCTIONS, DRAM, ARRAY)


@dataclass(frozen=True)
class Delay:
    """Cycles from the start of an iteration: `cycles`, and the DRAM latency L, or the rows R of the array, if set."""

    cycles: int
    latency: bool = False
    rows: bool = False

    def of(self, machine: Machine) -> int:
        return self.cycles + self.latency * machine.latency + self.rows * machine.rows

    def __str__(self) -> str:
        return "+".join(["L"] * self.latency + ["R"] * self.rows + [str(self.cycles)])


@dataclass(frozen=True)
class Effect:
    """An access of each iteration of an instruction.

    at       the field with the first location; "" for the only location
    delay    cycles from the iteration's start to the access
    count    the field or property with the number of consecutive locations; "": one
    through  how a permutation table selects locations: "lane" and "select" name the bank of an entry, "column" the
             column of weights; "": not at all
    when     the flag field that has to be set; "": always
    every    the attribute of `Machine` with the cycles per iteration; "": one
    skewed   True if column c is accessed c cycles after column 0
    """

    memory: Memory
    writes: bool
    at: str
    delay: Delay
    count: str = ""
    through: str = ""
    when: str = ""
    every: str = ""
    skewed: bool = False

    def holds(self, own: Any) -> bool:
        """True if an instruction has the effect."""
        return not self.when or bool(getattr(own, self.when))

    def last(self, machine: Machine) -> int:
        """Returns the cycles from the start of an iteration to its last access."""
        return self.delay.of(machine) + (machine.columns - 1 if self.skewed else 0)

    @property
    def verb(self) -> str:
        return "writes" if self.writes else "reads"


def reads(memory: Memory, at: str, delay: int | Delay, **more: Any) -> Effect:
    """Builds a read."""
    return Effect(memory, False, at, Delay(delay) if isinstance(delay, int) else delay, **more)


def writes(memory: Memory, at: str, delay: int | Delay, **more: Any) -> Effect:
    """Builds a write."""
    return Effect(memory, True, at, Delay(delay) if isinstance(delay, int) else delay, **more)


START, END, COMPLETED = "start", "end", "completed"
"""The events of an instruction, by the fields of `Times`."""


@dataclass(frozen=True)
class Interlock:
    """An order that the hardware keeps without waits.

    The n-th interlocked instruction of a unit starts no earlier than an event of the (n - lag)-th one of unit `other`.

    event   the event: START, END or COMPLETED; `serial` is the event in an array that is not pipelined
    when    the flag field that makes an instruction interlocked; "" for every one
    reason  the event that the instruction waits for, in messages about deadlocks
    """

    other: str
    event: str
    serial: str
    lag: int
    reason: str
    when: str = ""

    def holds(self, own: Any) -> bool:
        """True if an instruction is interlocked."""
        return not self.when or bool(getattr(own, self.when))
