"""A processor as data: what tiles fit its registers, and what its vectors are."""

from __future__ import annotations

import ctypes
import os
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

# Measured by `glenside calibrate` on a Xeon with 2 MB of second cache, at some 3.5 GHz.
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
# Of the same Xeon with vectors of 16 bytes, by a fit in which nothing overlaps.
_OF_ANY = Work(cycles=0.34, functions=4.3, near=0.0019, far=0.03, weights=0.045, nests=1600)
# Not measured: a Neoverse N1 at 3 GHz, whose second cache gives 19.3 bytes a cycle (chipsandcheese.com, "Deep Diving
# Neoverse N1"); the rest is what vectors as long take on that Xeon, by the clock.
_OF_NEON = Work(cycles=0.33, functions=5.0, near=0.017, far=0.035, weights=0.05, nests=1900)


@dataclass(frozen=True)
class Machine:
    """What a tile must know of a processor.

    vector     bytes of a register
    registers  how many of them
    products   vectors that are multiplied and added in a cycle
    loads      vectors that are read from the nearest cache in a cycle
    latency    cycles until a sum can be added to again
    l1, l2     bytes of the caches that a core has alone, the nearest one and the one behind it
    l3         bytes of the last cache, which cores share; 0 where there is none, or its size is not known
    family     the processors that may have these vectors, by the macro of compilers for them; "" for any
    needs      what /proc/cpuinfo says of a processor that has these vectors
    flags      for the compiler
    nanoseconds  what one of each kind of work takes
    pairs      vectors of pairs of bfloat16 whose products are added in a cycle; 0 where that is no instruction
    matrix     products of bfloat16 that a unit for matrices adds in a cycle; 0 where there is none
    peak       products of float32 that a core adds in a nanosecond at most; 0 where nobody measured
    shared     (threads, what one of each kind of work takes where so many share it), where that was measured
    threads    how many loops are chosen for
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
    matrix: float = 0
    peak: float = 0
    shared: tuple[tuple[int, Work], ...] = ()
    threads: int = 1

    def prices(self, threads: int = 1) -> Work:
        """What one of each kind of work takes where so many threads share it; of one thread where nobody measured."""
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
            matrix=384,  # of 512: as long as numbers are not 0 its clock is slower
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
        ),
        Machine("neon", 16, 32, l1=64 << 10, family="aarch64", needs=("asimd",), nanoseconds=_OF_NEON),
        Machine("generic", 16, 16, products=1),
    )
}
"""The widest vectors first; the last one is any processor, with what a compiler makes of vectors of 16 bytes."""
PLAIN = "plain"
"""No machine: plain loops, one step after the other."""


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
"""What a file may say of a machine, and within which numbers."""
_PRICES, _SHARED, _PEAK = "nanoseconds", "threads", "peak"
_MOST_PEAK = 1e6
_MOST_THREADS = 1024
_TABLES = (_PRICES, _SHARED, "fit", "machine")
"""Tables of a file: prices, and what calibration notes beside them."""


def machine_of(name: str) -> Machine | None:
    """A machine by its name, or of a .toml file; native is the best that this computer is, plain none.

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
    """A machine that is `like` one of those, with other numbers, as a file at a path has it. Raises BadInput."""
    name = Path(path).stem
    if not re.fullmatch("[A-Za-z0-9_]{1,60}", name) or name in ("native", PLAIN, *MACHINES):
        raise BadInput(f"{path}: a machine is called like its file, by letters, digits and _, and as no other one is")
    unknown = next((key for key in content if key not in ("target", "like", _PEAK, *_BOUNDS, *_TABLES)), None)
    if unknown is not None:
        known = ", ".join((*_BOUNDS, _PEAK, _PRICES, _SHARED))
        raise BadInput(f"{path}: there is no {unknown}; there are like, {known}")
    like = content.get("like")
    if not isinstance(like, str) or like not in MACHINES:
        raise BadInput(f"{path}: like is one of {', '.join(MACHINES)}, whose instructions it has, got {like!r}")
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
    """What it takes where several threads share it, as tables by their number. Raises BadInput."""
    if not isinstance(given, dict):
        raise BadInput(f"{path}: {_SHARED} has a table of {_PRICES} for each number of threads, got {given!r}")
    for threads in given:
        if not threads.isdecimal() or not 2 <= int(threads) <= _MOST_THREADS:
            raise BadInput(f"{path}: {_SHARED} are numbers from 2 to {_MOST_THREADS}, got {threads!r}")
    return tuple((int(threads), _priced(base, prices, path)) for threads, prices in given.items())


def _priced(base: Work, given: Any, path: str) -> Work:
    """What one of each kind of work takes, as a file has it. Raises BadInput."""
    if not isinstance(given, dict):
        raise BadInput(f"{path}: {_PRICES} is a table of numbers, got {given!r}")
    for name, value in given.items():
        if name not in NAMES:
            raise BadInput(f"{path}: there are no {_PRICES} of {name}; there are those of {', '.join(NAMES)}")
        if type(value) not in (int, float) or not 0 <= value <= 1e9:
            raise BadInput(f"{path}: {_PRICES} of {name} are a number from 0 to 1e9, got {value!r}")
    return Work(**(asdict(base) | given))


def machines_of(names: str) -> list[Machine | None]:
    """Machines by their names, as `avx512,avx2,generic`, the best first. Raises BadInput."""
    found = [machine_of(name.strip()) for name in names.split(",")]
    if len(found) == 1:
        return found
    families = {machine.family for machine in found if machine is not None and machine.family}
    if len(families) > 1:
        raise BadInput(f"one program is for machines of one family of processors, got {' and '.join(sorted(families))}")
    needs = [() if machine is None else machine.needs for machine in found]
    if len({*needs}) < len(needs) or len({machine and machine.name for machine in found}) < len(found):
        raise BadInput(f"a processor would never run one of {names}: name each once, and one that any processor is")
    return sorted(found, key=lambda machine: 0 if machine is None or not machine.family else -len(machine.needs))


def is_here(machine: Machine) -> bool:
    """Whether this computer has the vectors of a machine, and the system its unit for matrices, if that has one."""
    try:
        words = set(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split())
    except OSError:
        words = {"asimd"} if platform.machine() in ("arm64", "aarch64") else set()
    return words.issuperset(machine.needs) and ("amx_tile" not in machine.needs or _has_matrices())


@cache
def _has_matrices() -> bool:
    """Whether Linux keeps the registers of matrices for this process: arch_prctl (158) asks for state 18."""
    try:
        return bool(sys.platform == "linux" and ctypes.CDLL(None).syscall(158, 0x1023, 18) == 0)
    except (OSError, AttributeError):
        return False


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
