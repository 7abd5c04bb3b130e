"""Writes the assertions that hold the SystemVerilog to the effects of instructions: the text of `rtl/npu_checks.sv`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from glenside.npu.isa.base import Instruction
from glenside.npu.isa.effects import (
    ACCUMULATORS,
    COMPLETED,
    END,
    LANES,
    MEMORIES,
    START,
    WEIGHTS,
    Delay,
    Interlock,
    Memory,
)
from glenside.npu.isa.encoding import operations
from glenside.npu.isa.fields import UNITS


@dataclass(frozen=True)
class _Signal:
    """The signals of the RTL that show a unit's use of a memory in a cycle: of bank i, in the scope of `npu`.

    `row` is the address, which selects the half of the bank; "" for a memory whose ports are not shared.
    """

    enable: str
    row: str = ""


_STAGE = "accumulators.stage[R+1+i]"
_SIGNALS = {
    ("stream", LANES, False): _Signal("stream_read[i]", "stream_address[i]"),
    ("dma", LANES, False): _Signal("out_read[i]", "out_address[i]"),
    ("store", LANES, True): _Signal("store_write[i]", "store_address[i]"),
    ("dma", LANES, True): _Signal("fill_write[i]", "fill_address[i]"),
    ("stream", ACCUMULATORS, False): _Signal(f"{_STAGE}.valid && {_STAGE}.adds", f"{_STAGE}.row"),
    ("stream", ACCUMULATORS, True): _Signal(f"{_STAGE}.valid", f"{_STAGE}.row"),
    ("store", ACCUMULATORS, False): _Signal("store_reads", "store_row"),
    ("store", ACCUMULATORS, True): _Signal("put", "put_row"),
    ("dma", ACCUMULATORS, False): _Signal("dma_reads", "dma_row"),
    ("load", WEIGHTS, False): _Signal("load_unit.real1"),
}
_BANKS = {LANES: ("R", "26'(DEPTH / 2)"), ACCUMULATORS: ("C", "16'(ACCUMULATORS / 2)"), WEIGHTS: ("1", "")}
"""Memory -> its number of banks, and the first address of the upper half."""
_EVENTS = {
    ("load", START): "load_started",
    ("load", END): "load_ended",
    ("stream", START): "stream_fresh_started",
    ("stream", COMPLETED): "stream_fresh_done",
}
"""The pulses of interlocked instructions. A start counts in its own cycle, the others from the next cycle on."""


def assertions() -> str:
    """Returns the module of assertions, and its binding to the machine."""
    body = [*_ports(), *_delays(), *_completions(), *_interlocks()]
    lines = [
        "// Assertions of ports, delays and interlocks. Written by glenside.npu.isa.checks.assertions(): do not edit.",
        "// For simulation: `verilator --assert`, with a DRAM that always answers in L cycles.",
        "module npu_checks #(",
        "    parameter int R = 4,",
        "    parameter int C = 4,",
        "    parameter bit PIPELINED = 1,",
        "    parameter int DEPTH = 32,",
        "    parameter int ACCUMULATORS = 16,",
        "    parameter int L = 0",
        ") (",
        "    input logic clk,",
        "    input logic reset",
        ");",
        "  default clocking @(posedge clk); endclocking",
        "  default disable iff (reset);",
        "",
        *(f"  {line}" if line else "" for line in body),
        "endmodule",
        "",
        "bind npu npu_checks #(",
        "    .R(R), .C(C), .PIPELINED(PIPELINED), .DEPTH(DEPTH), .ACCUMULATORS(ACCUMULATORS), .L(L)",
        ") checks (.clk(clk), .reset(reset));",
    ]
    return "\n".join([*lines, ""])


def _name(unit: str, memory: Memory, writes: bool) -> str:
    return f"{unit}_{'writes' if writes else 'reads'}_{memory.name}"


def _ports() -> Iterator[str]:
    """Yields an assertion for any two units that share a port: not in one cycle, bank and half."""
    for memory in (own for own in MEMORIES if own.ports):
        banks, half = _BANKS[memory]
        for writes in (False, True):
            users = [unit for unit in UNITS if (unit, memory, writes) in _SIGNALS]
            for at, one in enumerate(users):
                for two in users[at + 1 :]:
                    a, b = (_scoped(_SIGNALS[unit, memory, writes]) for unit in (one, two))
                    yield from _for_each(
                        banks,
                        f"{_name(one, memory, writes)}_beside_{two}",
                        f"!({a.enable} && {b.enable} && ({a.row} >= {half}) == ({b.row} >= {half}))",
                    )


def _delays() -> Iterator[str]:
    """Yields an assertion for each access: some iteration that has the effect began its delay before."""
    for (unit, memory, writes), signal in _SIGNALS.items():
        kinds = [
            (kind, own)
            for kind in operations(unit).values()
            for own in kind.effects
            if own.memory == memory and own.writes == writes
        ]
        delay, skewed = kinds[0][1].delay, kinds[0][1].skewed
        if any(own.delay != delay for _, own in kinds):
            raise TypeError(f"{unit} accesses {memory.name} after different delays")
        whens = {own.when for _, own in kinds}
        issued = _issued(unit, [kind for kind, _ in kinds], *(f"npu.{unit}_head.{when}" for when in whens if when))
        yield from _for_each(
            _BANKS[memory][0],
            f"{_name(unit, memory, writes)}_in_time",
            f"{_scoped(signal).enable} |-> $past({issued}, {_cycles(delay)}{' + i' if skewed else ''})",
        )


def _completions() -> Iterator[str]:
    """Yields an assertion for each unit: an instruction is completed its unit's delay after its last cycle."""
    for number, unit in enumerate(UNITS):
        delay, skewed = _last_write(unit)
        late = f"{_cycles(delay)}{' + C - 1' if skewed else ''}"
        yield from _asserted(
            f"{unit}_completed_in_time", f"npu.completions[{number}] |-> $past(npu.pop[{number}], {late})"
        )


def _last_write(unit: str) -> tuple[Delay, bool]:
    every = [own for kind in operations(unit).values() for own in kind.effects if own.writes]
    last = max(every, key=lambda own: (own.delay.latency, own.delay.rows, own.delay.cycles))
    return last.delay, last.skewed


def _interlocks() -> Iterator[str]:
    """Yields counters of interlocked instructions, and an assertion for each interlock."""
    locks = {unit: lock for unit in UNITS for kind in operations(unit).values() if (lock := kind.interlock) is not None}
    needed = [(lock.other, event) for lock in locks.values() for event in dict.fromkeys((lock.event, lock.serial))]
    needed += [(unit, START) for unit in locks]
    for unit, event in dict.fromkeys(needed):
        name, pulse = f"{unit}_{event}", f"npu.{_EVENTS[unit, event]}"
        yield f"logic [19:0] {name};  // interlocked instructions of {unit}: events so far"
        yield f"always_ff @(posedge clk) {name} <= reset ? '0 : {name} + 20'({pulse});"
        yield ""
    for unit, lock in locks.items():
        counts = (_count(lock, event) for event in (lock.event, lock.serial))
        pipelined, serial = (f"{count} + 20'd{lock.lag} > {unit}_start" for count in counts)
        held = pipelined if pipelined == serial else f"(PIPELINED ? {pipelined} : {serial})"
        yield from _asserted(f"{unit}_interlock", f"npu.{_EVENTS[unit, START]} |-> {held}")


def _count(lock: Interlock, event: str) -> str:
    name = f"{lock.other}_{event}"
    return f"{name} + 20'(npu.{_EVENTS[lock.other, event]})" if event == START else name


def _issued(unit: str, kinds: list[type[Instruction]], *flags: str) -> str:
    """Returns the condition that an iteration of an instruction of these kinds begins."""
    every = operations(unit)
    tests = (f"npu.{unit}_head.operation == npu_pkg::{kind.mnemonic().upper()}" for kind in kinds)
    own = [] if len(kinds) == len(every) else [f"({' || '.join(tests)})"]
    return " && ".join([f"npu.{unit}_unit.go", *own, *flags])


def _cycles(delay: Delay) -> str:
    return " + ".join(["L"] * delay.latency + ["R"] * delay.rows + [str(delay.cycles)])


def _scoped(signal: _Signal) -> _Signal:
    """Returns the signal with hierarchical names."""
    enable = " && ".join(f"npu.{part}" for part in signal.enable.split(" && "))
    return _Signal(enable, f"npu.{signal.row}")


def _for_each(banks: str, name: str, held: str) -> Iterator[str]:
    """Yields an assertion of each bank i."""
    if banks == "1" or "[" not in held:
        yield from _asserted(name, held)
        return
    yield f"for (genvar i = 0; i < {banks}; i++) begin : {name}_in"
    yield from (f"  {line}" for line in _asserted(name, held))
    yield "end"


def _asserted(name: str, held: str) -> Iterator[str]:
    head, sep, rest = held.partition(" |-> ")
    yield f"{name}: assert property ("
    yield f"  {head}{sep}"
    yield from ([f"  {rest}"] if rest else [])
    yield ");"
