"""Runs npu programs in the simulator or in RTL, counts their cycles and compares their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from glenside.ir.errors import BadInput
from glenside.ir.names import one_line

if TYPE_CHECKING:
    from glenside.ir.operand import Array
    from glenside.npu.analysis.critical_path import Ledger
    from glenside.npu.model.execute import Run
    from glenside.npu.program.program import NpuProgram

MACHINES = ("simulator", "rtl")
"""The machines of `--on` that run npu programs."""
_MANY = 1000
"""Minimum instructions of a program for which a second process saves time."""


_Results = Mapping[str, str] | None
"""Digests of the results of layers, by name; None if they are not known."""


@dataclass(frozen=True)
class Ran:
    """A finished run of a program.

    said       the report, for JSON
    ledger     the account of its cycles and bytes
    simulated  the run of the simulator
    dram       DRAM after the run
    results    results of the network, by name
    is_same    True if `dram` equals the simulator's DRAM, bit by bit
    """

    said: Mapping[str, Any]
    ledger: Ledger
    simulated: Run
    dram: Array
    results: Mapping[str, Array]
    is_same: bool

    @property
    def ok(self) -> bool:
        """True if DRAM of the RTL and the simulator, the interpreter's results and the predicted cycles all agree."""
        return bool(self.said["equal"] and self.said["cycles"] == self.said["predicted"])

    def sentences(self) -> list[str]:
        """Returns the lines about cycles, bytes and wrong results."""
        said = self.said
        where = "its RTL" if said["on"] == "rtl" else "the simulator"
        lines = [
            f"{one_line(said['program'])}: {said['cycles']:,} cycles in {where}, {said['predicted']:,} predicted",
            f"{said['machine']}: {said['read']:,} bytes read, {said['written']:,} written",
        ]
        if said["on"] == "rtl":
            lines.append(f"DRAM is {'equal' if self.is_same else 'NOT equal'} to the simulator's, bit by bit")
            if said["starved"]:
                lines.append(f"in {said['starved']:,} cycles a queue was empty: the host is not fast enough")
        return [*lines, *(f"{one_line(name)} is NOT what the interpreter says of it" for name in said["wrong"])]


def require_machine(on: str) -> None:
    """Raises BadInput if the machine is unknown or cannot be built on this computer."""
    if on not in MACHINES:
        raise BadInput(f"instructions run on {' or '.join(MACHINES)}, got {on!r}")
    if on == "rtl":
        from glenside.npu.rtl.verilator import require_verilator

        require_verilator()


def ran(
    program: NpuProgram,
    name: str,
    on: str,
    show: Callable[[str], None] = lambda _: None,
    wanted: Callable[[], _Results] = lambda: None,
) -> Ran:
    """Runs a program and compares its results.

    `wanted` returns the expected digests of its layers' results, if its network is known. Raises BadInput if the
    program is invalid or its RTL cannot be built.
    """
    from glenside.npu.model.reference_results import wrong
    from glenside.npu.program.results import results

    simulated, ledger, meant, left = _simulated(program, wanted)
    said = {"program": name, "machine": str(program.machine), "on": on, **_measures(program, simulated)}
    dram = simulated.dram
    if on == "rtl":
        show("npu: built and run in RTL")
        more, dram = _in_rtl(program, simulated)
        said |= more
        left = None
    show("npu: compared with the interpreter")
    is_same = said["equal"]
    said["wrong"] = wrong(program, dram, meant, left)
    said["equal"] = is_same and not said["wrong"]
    found = results(program, dram)
    said["outputs"] = [_output(name, own) for name, own in found.items()]
    return Ran(said, ledger, simulated, dram, found, is_same)


def _output(name: str, values: Array) -> dict[str, Any]:
    """Returns the description of a result for JSON."""
    ends = (float(values.min()), float(values.max())) if values.size else (None, None)
    least, most = (end if end is None or isfinite(end) else str(end) for end in ends)
    shape = [*map(int, values.shape)]
    return {"name": name, "dtype": values.dtype.name, "shape": shape, "least": least, "greatest": most}


def _simulated(program: NpuProgram, wanted: Callable[[], _Results]) -> tuple[Run, Ledger, _Results, _Results]:
    """Simulates a program: returns the run, its account of cycles, and the expected and actual digests of results.

    For a large program a second process verifies the order of accesses and computes the expected digests. If that
    fails, the whole simulator runs here and reports the fault; the digests are then None. Raises BadInput.
    """
    from glenside.ir.forked_work import forked, may_fork
    from glenside.npu.analysis.critical_path import accounts
    from glenside.npu.model import execute, split_execution
    from glenside.npu.model.bounds import require_fit
    from glenside.npu.model.cycle_model import times
    from glenside.npu.model.reference_results import results_left, results_meant

    require_fit(program)
    found = times(program)

    known = wanted()

    def right(_: object) -> Mapping[str, str]:
        split_execution.require_order(program, found)
        return results_meant(program) if known is None else known

    if program.size >= _MANY and may_fork():
        with (
            forked(right) as answer,
            suppress(Exception),
        ):  # an invalid program may raise anything; simulated again below
            simulated, ledger = split_execution.values(program, found), accounts(program, found)
            left = results_left(program, simulated.dram)
            if (meant := answer()) is not None:
                return simulated, ledger, meant, left
    return execute.run(program), accounts(program, found), None, None


def _measures(program: NpuProgram, run: Run) -> dict[str, Any]:
    """Returns the simulator's part of the report."""
    layers = [(own.name, run.times.between(own.begin, own.end)) for own in program.stretches]
    return {
        "equal": True,
        "cycles": run.cycles,
        "predicted": run.cycles if program.predicted is None else program.predicted,
        "read": run.read,
        "written": run.written,
        "busy": dict(run.times.busy),
        "layers": [{"name": name, "start": start, "completed": end, "predicted": end} for name, (start, end) in layers],
    }


def _in_rtl(program: NpuProgram, simulated: Run) -> tuple[dict[str, Any], Array]:
    """Runs a program in RTL: returns its part of the report, and DRAM.

    `equal`: DRAM equals the simulator's, bit by bit; `predicted`: the program's predicted cycles, else the simulator's.
    """
    from glenside.npu.isa.fields import UNITS
    from glenside.npu.rtl import verilator

    found = verilator.run(program)
    equal = bool(np.array_equal(found.dram, simulated.dram))
    layers = []
    for own in program.stretches:
        start, end = simulated.times.between(own.begin, own.end)
        ends = (int(found.completed[u][own.begin.get(u, 0) : own.end.get(u, 0)].max(initial=0)) for u in UNITS)
        layers.append({"name": own.name, "start": start, "completed": max(ends), "predicted": end})
    return {
        "equal": equal,
        "cycles": found.cycles,
        "predicted": simulated.cycles if program.predicted is None else program.predicted,
        "starved": found.starved,
        "layers": layers,
    }, found.dram
