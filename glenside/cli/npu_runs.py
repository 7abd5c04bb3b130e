"""Runs of programs of an npu, in the simulator or in RTL: what they took, and whether they did what they were to do."""

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
"""What runs programs of an npu."""
_MANY = 1000
"""Instructions of programs for which a second process is worth its while."""


_Results = Mapping[str, str] | None
"""What tells the results of layers from others, by name, where that is known."""


@dataclass(frozen=True)
class Ran:
    """What a program did.

    said       what is told of it, as JSON has it
    ledger     where its cycles and bytes went
    simulated  what the simulator says of it
    dram       what it left there
    results    of the network, by name
    is_same    whether the simulator says the same of that, bit by bit
    """

    said: Mapping[str, Any]
    ledger: Ledger
    simulated: Run
    dram: Array
    results: Mapping[str, Array]
    is_same: bool

    @property
    def ok(self) -> bool:
        """Whether all who know say the same of it: in the RTL and the simulator, the interpreter and the prediction."""
        return bool(self.said["equal"] and self.said["cycles"] == self.said["predicted"])

    def sentences(self) -> list[str]:
        """What it took, and whether it is as it should be."""
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
    """Raise BadInput: nothing runs programs of an npu that is called so, or it cannot be built here."""
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
    """Run a program of that name; `wanted` tells results of its layers from others, where its network is known. Raises
    BadInput: it is not right, or nothing builds its RTL.
    """
    from glenside.npu.model.reference_results import wrong
    from glenside.npu.program.results import results

    simulated, ledger, meant, left = _simulated(program, wanted)
    said = {"program": name, "machine": str(program.machine), "on": on, **_told(program, simulated)}
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
    """A result, as JSON has it."""
    ends = (float(values.min()), float(values.max())) if values.size else (None, None)
    least, most = (end if end is None or isfinite(end) else str(end) for end in ends)
    shape = [*map(int, values.shape)]
    return {"name": name, "dtype": values.dtype.name, "shape": shape, "least": least, "greatest": most}


def _simulated(program: NpuProgram, wanted: Callable[[], _Results]) -> tuple[Run, Ledger, _Results, _Results]:
    """What a program does, where its cycles go, and what its results mean, and are, where that is known then. Of a
    large one a second process finds out whether it is right, and what it means; of what is not right the whole
    simulator says what is wrong. Raises BadInput.
    """
    from glenside.ir.copies import beside, may_be_copied
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

    if program.size >= _MANY and may_be_copied():
        with beside(right) as told, suppress(Exception):  # of what is not right anything may come: it is met again
            simulated, ledger = split_execution.values(program, found), accounts(program, found)
            left = results_left(program, simulated.dram)
            if (meant := told()) is not None:
                return simulated, ledger, meant, left
    return execute.run(program), accounts(program, found), None, None


def _told(program: NpuProgram, run: Run) -> dict[str, Any]:
    """What the simulator says."""
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
    """What the RTL says: equal is DRAM, bit by bit, and predicted what the simulator says of the cycles."""
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
