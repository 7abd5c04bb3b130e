"""From C to functions in this process: what a compiler is told, several of them at a time, and what they made."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from glenside.cache.objects import find, keep
from glenside.codegen.emit_c.translation_units import Source
from glenside.codegen.processor.find_compiler import Compiler, Kind, compiler, known_compiler
from glenside.codegen.processor.model import Machine, processors
from glenside.ir.errors import BadInput

__all__ = ["build_line", "compiler", "flags", "loaded", "object_line"]

_PLAIN = ("-std=c11", "-O2", "-ffp-contract=off")
_ONCE = ("-O1",)
"""Of what runs once, where compiling is most of it."""
_TILED = (
    "-std=gnu11",
    "-O2",  # -O3 carries what the next step of a window reads from one step to the next, and spills
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-tree-vectorize",  # vectors are written out; GCC 12's own gather scalars of tiles, and miscompile choices
    "-Wno-psabi",  # no vector is given to what is compiled elsewhere
)
LIBRARIES = ("-lm", "-pthread")
_NAMES = ("run", "open_pool", "close_pool")
_UNIT = 40_000
"""Characters of C that are worth a compiler of their own."""


def flags(machine: Machine | None, kind: Kind = Kind.GCC) -> tuple[str, ...]:
    """What a compiler is told for a machine; plain loops are exact, step by step."""
    general = _PLAIN if machine is None else _TILED
    own = () if machine is None else machine.flags
    if kind is not Kind.ZIG:
        return (*general, *own)
    # zig cc takes the processor that it runs on where none is named, spells names with _, and traps what C leaves open.
    own = tuple(word.replace("x86-64-", "x86_64_") for word in own)
    named = any(word.startswith("-march=") for word in own)
    return (*general, *own, *(() if named else ("-mcpu=baseline",)), "-fno-sanitize=undefined")


def build_line(files: str, machine: Machine | None) -> str:
    """How a user compiles what is written."""
    return " ".join(["cc", *flags(machine), files, *LIBRARIES])


def object_line(path: str, machine: Machine | None) -> str:
    """How a user compiles one of several files."""
    return " ".join(["cc", *flags(machine), "-c", path])


@dataclass(frozen=True)
class Loaded:
    """A shared object, the compiler that made it, and whether it was kept from before."""

    library: ctypes.CDLL
    compiler: str
    kept: bool


def loaded(source: Source, machine: Machine | None, *, runs_once: bool = False) -> Loaded:
    """The shared object of a program, which is compiled once. Raises BadInput: no compiler, or what it says."""
    by = known_compiler()
    told = (*flags(machine, by.kind), *(_ONCE if runs_once else ()))
    parts = [str(source), *told, by.identity, *computer()]
    key = hashlib.sha256("".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()
    kept = find(key)
    if kept is not None:
        try:
            with tempfile.TemporaryDirectory() as name:  # a copy: the file itself may be another one by now
                copy = Path(name) / "program.so"
                copy.write_bytes(kept)
                return Loaded(_opened(copy), by.kind.value, True)
        except OSError:  # no room, or a folder from which nothing is run
            pass
    try:
        with tempfile.TemporaryDirectory() as name:
            made = _made(source, by, told, Path(name))
            try:
                found = _opened(made)
            except OSError as error:
                raise BadInput(f"what {by} made cannot be loaded: {error}") from error
            keep(key, made)
            return Loaded(found, by.kind.value, False)
    except OSError as error:
        raise BadInput(f"to compile requires room for temporary files: {error.strerror or error}") from error


def _opened(path: Path) -> ctypes.CDLL:
    found = ctypes.CDLL(str(path))
    missing = [name for name in _NAMES if not hasattr(found, name)]
    if missing:
        raise OSError(f"it has no {missing[0]}")
    return found


def _made(source: Source, by: Compiler, told: tuple[str, ...], folder: Path) -> Path:
    """The shared object, compiled by as many processes as there are processors."""
    units = source.units(max(1, min(processors(), len(str(source)) // _UNIT)))
    made = folder / "program.so"
    how = [*told, "-fPIC"]

    given = [folder / f"unit{number}.c" for number in range(len(units))]
    for path, text in zip(given, units, strict=True):
        path.write_text(text, encoding="utf-8")
    if len(units) > 1:
        by.run([[*how, "-c", path, "-o", path.with_suffix(".o")] for path in given], folder)
        given = [path.with_suffix(".o") for path in given]
    by.run([[*how, "-shared", *given, "-o", made, *LIBRARIES]], folder)
    return made


@cache
def computer() -> tuple[str, ...]:
    """What this computer is: a folder of objects may be shared with others."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    words = [line for line in lines if line.lower().startswith(("flags", "features"))][:1]
    return (platform.system(), platform.machine(), os.name, *words)
