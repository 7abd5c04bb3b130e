"""Compiles C to shared objects, with several compiler processes, and loads them into this process."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from glenside.cache.objects import find, keep
from glenside.codegen.emit_c.translation_units import Source
from glenside.codegen.processor.find_compiler import Compiler, Kind, compiler, known_compiler
from glenside.codegen.processor.model import Machine
from glenside.ir.errors import BadInput
from glenside.ir.threads import processors

__all__ = ["build_line", "compiler", "flags", "loaded", "object_line"]

_PLAIN_FLAGS = ("-std=c11", "-O2", "-ffp-contract=off")
_RUN_ONCE_FLAGS, _FEW_STEPS_FLAGS = ("-O1",), ("-O0",)
"""Compiler flags for a program that runs once, so that compile time dominates; for one of at most `_FEW_STEPS`."""
_FEW_STEPS = 1 << 17
"""Loop steps, of statements, that take less time without optimization than it takes to optimize them."""
_VECTOR_FLAGS = (
    "-std=gnu11",
    "-O2",  # -O3 carries operands of a window from one step to the next, and spills
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-tree-vectorize",  # vectors are explicit; GCC 12's own gather scalars of tiles, and miscompile selects
    "-Wno-psabi",  # no vector crosses translation units
)
LIBRARIES = ("-lm", "-pthread")
_EXPORTED_NAMES = ("run", "open_pool", "close_pool")
_UNIT = 40_000
"""Characters of C for which one more compiler process pays."""


def flags(machine: Machine | None, kind: Kind = Kind.GCC) -> tuple[str, ...]:
    """Returns the compiler flags for a machine; plain loops (None) are exact, operation by operation."""
    general = _PLAIN_FLAGS if machine is None else _VECTOR_FLAGS
    own = () if machine is None else machine.flags
    if kind is not Kind.ZIG:
        return (*general, *own)
    # zig cc defaults to the processor that it runs on, spells names with _, and traps undefined behaviour.
    own = tuple(word.replace("x86-64-", "x86_64_") for word in own)
    named = any(word.startswith("-march=") for word in own)
    return (*general, *own, *(() if named else ("-mcpu=baseline",)), "-fno-sanitize=undefined")


def build_line(files: str, machine: Machine | None) -> str:
    """Returns the command by which a user compiles exported files."""
    return " ".join(["cc", *flags(machine), files, *LIBRARIES])


def object_line(path: str, machine: Machine | None) -> str:
    """Returns the command by which a user compiles one of several files."""
    return " ".join(["cc", *flags(machine), "-c", path])


@dataclass(frozen=True)
class Loaded:
    """A loaded shared object; `kept`: it came from the cache."""

    library: ctypes.CDLL
    compiler: str
    kept: bool


def loaded(
    source: Source, machine: Machine | None, verify: Callable[[], None] = lambda: None, *, steps: int | None = None
) -> Loaded:
    """Returns the shared object of a program, cached or compiled. Raises BadInput: no compiler, or its errors.

    verify  is called before the object is loaded or stored, while the compiler runs; what it raises ends the compiler
    steps   how often statements run in a program that runs once
    """
    by = known_compiler()
    once = () if steps is None else _RUN_ONCE_FLAGS if steps > _FEW_STEPS else _FEW_STEPS_FLAGS
    options = (*flags(machine, by.kind), *once)
    parts = [str(source), *options, by.identity, *computer()]
    key = hashlib.sha256("".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()
    kept = find(key)
    if kept is not None:
        verify()
        try:
            with tempfile.TemporaryDirectory() as name:  # a copy, as the cached file may change
                copy = Path(name) / "program.so"
                copy.write_bytes(kept)
                return Loaded(_opened(copy), by.kind.value, True)
        except OSError:  # no space, or a folder mounted noexec
            pass
    try:
        with tempfile.TemporaryDirectory() as name:
            made = _made(source, by, options, Path(name), verify)
            try:
                found = _opened(made)
            except OSError as error:
                raise BadInput(f"the shared object that {by} made cannot be loaded: {error}") from error
            keep(key, made)
            return Loaded(found, by.kind.value, False)
    except OSError as error:
        raise BadInput(f"compiling requires space for temporary files: {error.strerror or error}") from error


def _opened(path: Path) -> ctypes.CDLL:
    found = ctypes.CDLL(str(path))
    missing = [name for name in _EXPORTED_NAMES if not hasattr(found, name)]
    if missing:
        raise OSError(f"it has no {missing[0]}")
    return found


def _made(source: Source, by: Compiler, options: tuple[str, ...], folder: Path, meanwhile: Callable[[], None]) -> Path:
    """Compiles a shared object, with at most as many processes as there are processors."""
    units = source.units(max(1, min(processors(), len(str(source)) // _UNIT)))
    made = folder / "program.so"
    how = [*options, "-fPIC"]

    given = [folder / f"unit{number}.c" for number in range(len(units))]
    for path, text in zip(given, units, strict=True):
        path.write_text(text, encoding="utf-8")
    if len(units) > 1:
        by.run([[*how, "-c", path, "-o", path.with_suffix(".o")] for path in given], folder, meanwhile=meanwhile)
        given = [path.with_suffix(".o") for path in given]
    link: list[list[str | Path]] = [[*how, "-shared", *given, "-o", made, *LIBRARIES]]
    by.run(link, folder, meanwhile=meanwhile if len(units) == 1 else lambda: None)
    return made


@cache
def computer() -> tuple[str, ...]:
    """Returns what identifies this computer in cache keys: a cache folder may be shared between computers."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    words = [line for line in lines if line.lower().startswith(("flags", "features"))][:1]
    return (platform.system(), platform.machine(), os.name, *words)
