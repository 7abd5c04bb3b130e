"""The processor model: registers, vectors, caches and the cost of each kind of work, as data."""

from __future__ import annotations

import ctypes
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from glenside.codegen.processor.work_record import NAMES, Work
from glenside.ir.errors import BadInput
from glenside.ir.files import read_toml

# Measured by `glenside calibrate` on a Xeon with 2 MB of L2, at about 3.5 GHz.
_OF_AVX512 = Work(
    cycles=0.3,
    matrices=0.34,
    stores=0.65,
    scattered=0.004,
    functions=5.4,
    near=0.0063,
    far=0.023,
    weights=0.0245,
)
_OF_AVX2 = Work(cycles=0.26, stores=0.42, functions=4.8, near=0.01, far=0.029, weights=0.046)
# The same Xeon with vectors of 16 bytes, by a fit without overlap.
_OF_ANY = Work(cycles=0.34, functions=4.3, near=0.0019, far=0.03, weights=0.045, nests=1600)
# Not measured: a Neoverse N1 at 3 GHz, whose L2 delivers 19.3 bytes a cycle (chipsandcheese.com, "Deep Diving Neoverse
# N1"); the rest is the cost of vectors of the same length on that Xeon, scaled by the clock.
_OF_NEON = Work(cycles=0.33, functions=5.0, near=0.017, far=0.035, weights=0.05, nests=1900)


@dataclass(frozen=True)
class Machine:
    """The parameters of a processor that schedules and the cost model use.

    vector     bytes of a vector register
    registers  number of vector registers
    products   vector multiply-adds per cycle
    loads      vector loads from L1 per cycle
    latency    cycles between dependent additions to an accumulator
    l1, l2     bytes of the private caches of a core
    l3         bytes of the shared last-level cache; 0 if there is none, or its size is unknown
    family     processor family with these vectors, as in the compilers' predefined macro; "" for any
    needs      flags of /proc/cpuinfo of a processor with these vectors
    flags      compiler options
    nanoseconds  cost of one unit of each kind of work
    pairs      vector instructions per cycle that add pairs of bfloat16 products; 0 if there are none
    shorts   True if products of bytes are best added in pairs, in 16 bits that saturate, before 32 bits hold them
    matrix     bfloat16 multiply-adds of a matrix unit per cycle; 0 if there is none
    peak       most float32 multiply-adds of a core per nanosecond; 0 if not measured
    shared     (threads, cost of one unit of each kind of work on that number of threads), if measured
    threads    number of threads that schedules are chosen for
    """

    name: str
    vector: int
    registers: int
    products: int = 2
    loads: int = 2
    latency: int = 4
    l1: int = 32 << 10
    l2: int = 1 << 20
    l3: int = 0
    family: str = ""
    needs: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    nanoseconds: Work = _OF_ANY
    pairs: float = 0
    shorts: bool = False
    matrix: float = 0
    peak: float = 0
    shared: tuple[tuple[int, Work], ...] = ()
    threads: int = 1

    def prices(self, threads: int = 1) -> Work:
        """Returns the cost of each kind of work on `threads` threads, or on one if that was not measured."""
        return dict(self.shared).get(threads, self.nanoseconds)


_AVX2 = ("avx2", "fma", "bmi2")
_AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "fma")
_AVX512_FLAGS = ("-march=x86-64-v4", "-mprefer-vector-width=512")

MACHINES = {
    machine.name: machine
    for machine in (
        Machine(
            "amx",
            64,
            32,
            l1=48 << 10,
            l2=2 << 20,
            family="x86_64",
            needs=(*_AVX512, "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16"),
            flags=(*_AVX512_FLAGS, "-mavx512vnni", "-mavx512bf16", "-mamx-tile", "-mamx-bf16"),
            nanoseconds=_OF_AVX512,
            pairs=0.5,
            matrix=384,  # of 512: the clock is slower unless operands are 0
        ),
        Machine(
            "avx512bf16",
            64,
            32,
            l1=48 << 10,
            l2=2 << 20,
            family="x86_64",
            needs=(*_AVX512, "avx512_vnni", "avx512_bf16"),
            flags=(*_AVX512_FLAGS, "-mavx512vnni", "-mavx512bf16"),
            nanoseconds=_OF_AVX512,
            pairs=0.5,  # measured, of the same Xeon
        ),
        Machine(
            "avx512vnni",
            64,
            32,
            l1=48 << 10,
            l2=2 << 20,
            family="x86_64",
            needs=(*_AVX512, "avx512_vnni"),
            flags=(*_AVX512_FLAGS, "-mavx512vnni"),
            nanoseconds=_OF_AVX512,
        ),
        Machine(
            "avx512",
            64,
            32,
            l1=48 << 10,
            l2=2 << 20,
            family="x86_64",
            needs=_AVX512,
            flags=_AVX512_FLAGS,
            nanoseconds=_OF_AVX512,
        ),
        Machine(
            "avxvnni",
            32,
            16,
            family="x86_64",
            needs=(*_AVX2, "avx_vnni"),
            flags=("-march=x86-64-v3", "-mavxvnni"),
            nanoseconds=_OF_AVX2,
        ),
        Machine(
            "avx2",
            32,
            16,
            family="x86_64",
            needs=_AVX2,
            flags=("-march=x86-64-v3",),
            nanoseconds=_OF_AVX2,
            shorts=True,
        ),
        Machine("neon", 16, 32, l1=64 << 10, family="aarch64", needs=("asimd",), nanoseconds=_OF_NEON),
        Machine("generic", 16, 16, products=1),
    )
}
"""The machines, widest vectors first; the last is any processor, with the compiler's own vectors of 16 bytes."""
PLAIN = "plain"
"""No machine: sequential scalar loops."""


_BOUNDS = {
    "vector": (16, 64),
    "registers": (8, 64),
    "products": (1, 8),
    "loads": (1, 8),
    "latency": (1, 64),
    "l1": (1 << 10, 1 << 30),
    "l2": (1 << 12, 1 << 36),
    "l3": (0, 1 << 40),
}
"""The integer keys of a machine file, and their ranges."""
_PRICES, _SHARED, _PEAK = "nanoseconds", "threads", "peak"
_MOST_PEAK = 1e6
_MOST_THREADS = 1024
_FORMER = ("fetched",)
"""Kinds of work of earlier versions, which a file may still name: they are ignored."""
_TABLES = (_PRICES, _SHARED, "fit", "machine")
"""Tables of a machine file: unit costs, and further records of the calibration."""


def machine_of(name: str) -> Machine | None:
    """Returns a machine by name, or from a .toml file; `native`: the best that this computer has, `plain`: None.

    Raises BadInput.
    """
    if isinstance(name, str) and name.endswith(".toml"):
        return read_machine(read_toml(name), name)
    if name == PLAIN:
        return None
    if name == "native":
        return next(machine for machine in MACHINES.values() if is_here(machine))
    if name not in MACHINES:
        raise BadInput(f"a machine is native, plain, {', '.join(MACHINES)}, or a .toml file, got {name!r}")
    return MACHINES[name]


def read_machine(content: Mapping[str, Any], path: str) -> Machine:
    """Builds a machine from a parsed file: the machine `like` with other numbers. Raises BadInput."""
    name = Path(path).stem
    if not re.fullmatch("[A-Za-z0-9_]{1,60}", name) or name in ("native", PLAIN, *MACHINES):
        raise BadInput(f"{path}: a machine file is named by 1 to 60 letters, digits and _, not like a built-in machine")
    unknown = next((key for key in content if key not in ("target", "like", _PEAK, *_BOUNDS, *_TABLES)), None)
    if unknown is not None:
        known = ", ".join((*_BOUNDS, _PEAK, _PRICES, _SHARED))
        raise BadInput(f"{path}: unknown key {unknown}; the keys are like, {known}")
    like = content.get("like")
    if not isinstance(like, str) or like not in MACHINES:
        raise BadInput(f"{path}: like must be one of {', '.join(MACHINES)}, got {like!r}")
    numbers = {key: content[key] for key in _BOUNDS if key in content}
    for key, value in numbers.items():
        least, most = _BOUNDS[key]
        if type(value) is not int or not least <= value <= most:
            raise BadInput(f"{path}: {key} is a whole number from {least} to {most}, got {value!r}")
    base, vector = MACHINES[like], numbers.get("vector", 16)
    if vector & (vector - 1) or vector > base.vector:
        raise BadInput(f"{path}: vector is a power of two, at most the {base.vector} bytes of {like}, got {vector}")
    peak = content.get(_PEAK, 0)
    if type(peak) not in (int, float) or not 0 <= peak <= _MOST_PEAK:
        raise BadInput(f"{path}: {_PEAK} is a number from 0 to {_MOST_PEAK:.0f}, got {peak!r}")
    prices = _priced(base.nanoseconds, content.get(_PRICES, {}), path)
    shared = _shared(prices, content.get(_SHARED, {}), path)
    return replace(base, name=name, nanoseconds=prices, peak=peak, shared=shared, **numbers)


def _shared(base: Work, given: Any, path: str) -> tuple[tuple[int, Work], ...]:
    """Reads the unit costs for several threads, a table for each number of threads. Raises BadInput."""
    if not isinstance(given, dict):
        raise BadInput(f"{path}: {_SHARED} has a table of {_PRICES} for each number of threads, got {given!r}")
    for threads in given:
        if not threads.isdecimal() or not 2 <= int(threads) <= _MOST_THREADS:
            raise BadInput(f"{path}: {_SHARED} are numbers from 2 to {_MOST_THREADS}, got {threads!r}")
    return tuple((int(threads), _priced(base, prices, path)) for threads, prices in given.items())


def _priced(base: Work, given: Any, path: str) -> Work:
    """Reads the cost of each kind of work from a table, with `base` as default. Raises BadInput."""
    if not isinstance(given, dict):
        raise BadInput(f"{path}: {_PRICES} is a table of numbers, got {given!r}")
    given = {name: value for name, value in given.items() if name not in _FORMER}
    for name, value in given.items():
        if name not in NAMES:
            raise BadInput(f"{path}: unknown key {name} of {_PRICES}; the keys are {', '.join(NAMES)}")
        if type(value) not in (int, float) or not 0 <= value <= 1e9:
            raise BadInput(f"{path}: {_PRICES} of {name} are a number from 0 to 1e9, got {value!r}")
    return Work(**(asdict(base) | given))


def machines_of(names: str) -> list[Machine | None]:
    """Returns machines by a list of names, such as `avx512,avx2,generic`, the best first. Raises BadInput."""
    found = [machine_of(name.strip()) for name in names.split(",")]
    if len(found) == 1:
        return found
    families = {machine.family for machine in found if machine is not None and machine.family}
    if len(families) > 1:
        raise BadInput(f"machines of one program must be of one family, got {' and '.join(sorted(families))}")
    needs = [() if machine is None else machine.needs for machine in found]
    if len({*needs}) < len(needs) or len({machine and machine.name for machine in found}) < len(found):
        raise BadInput(f"one of {names} would never be selected: name each once, and at most one that runs anywhere")
    return sorted(found, key=lambda machine: 0 if machine is None or not machine.family else -len(machine.needs))


def is_here(machine: Machine) -> bool:
    """True if this computer has the vectors of a machine and, if the machine has a matrix unit, Linux enables it."""
    try:
        words = set(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split())
    except OSError:
        words = {"asimd"} if platform.machine() in ("arm64", "aarch64") else set()
    return words.issuperset(machine.needs) and ("amx_tile" not in machine.needs or _has_matrices())


@cache
def _has_matrices() -> bool:
    """True if Linux grants this process the AMX tile registers: arch_prctl (158) requests state component 18."""
    try:
        return bool(sys.platform == "linux" and ctypes.CDLL(None).syscall(158, 0x1023, 18) == 0)
    except (OSError, AttributeError):
        return False
