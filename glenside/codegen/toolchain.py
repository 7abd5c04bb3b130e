"""The system's C compiler: cc, or what CC names."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from glenside.codegen.machine import Machine
from glenside.ir.errors import BadInput

_PLAIN = ("-std=c11", "-O2", "-ffp-contract=off")
_TILED = (
    "-std=gnu11",
    "-O2",  # -O3 carries what the next step of a window reads from one step to the next, and spills
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-tree-vectorize",  # vectors are written out; GCC 12's own gather scalars of tiles, and miscompile choices
    "-fno-move-loop-invariants",  # numbers that follow a sum stay in memory, and the sums in registers
    "-Wno-psabi",  # no vector is given to what is compiled elsewhere
)
_LIBRARIES = ("-lm", "-pthread")


def flags(machine: Machine | None) -> tuple[str, ...]:
    """What the compiler is told for a machine; plain loops are exact, step by step."""
    return _PLAIN if machine is None else (*_TILED, *machine.flags)


def compiler() -> list[str]:
    """The command that compiles C: CC, as a shell reads it, or what the system has; none of it is []."""
    try:
        named = shlex.split(os.environ.get("CC", ""))
    except ValueError as error:
        raise BadInput(f"CC requires a command, got {os.environ['CC']!r}: {error}") from error
    return named or next(([name] for name in ("cc", "gcc", "clang") if shutil.which(name)), [])


def build_line(name: str, machine: Machine | None) -> str:
    """How a user compiles what is written."""
    return " ".join(["cc", *flags(machine), f"{name}.c", *_LIBRARIES])


def loaded(text: str, machine: Machine | None) -> ctypes.CDLL:
    """A shared object of a text. Raises BadInput: no compiler, or what it says."""
    command = compiler()
    if not command:
        raise BadInput("there is no C compiler: install one, or name it in CC")
    said = shlex.join(command)
    try:
        with tempfile.TemporaryDirectory() as folder:
            path, made = Path(folder) / "program.c", Path(folder) / "program.so"
            path.write_text(text, encoding="utf-8")
            done = subprocess.run(
                [*command, *flags(machine), "-fPIC", "-shared", str(path), "-o", str(made), *_LIBRARIES],
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
            if done.returncode:
                lines = done.stderr.strip().splitlines()
                first = next((line for line in lines if "error" in line), f"it ended with status {done.returncode}")
                raise BadInput(f"{said} does not compile what was made: {first}")
            return ctypes.CDLL(str(made))
    except OSError as error:
        raise BadInput(f"{said} does not run: {error.strerror or error}") from error
