"""Checks before C is written, and reading it back, for `glenside compile`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from glenside.cli.output import status_line, writable
from glenside.ir.errors import BadInput
from glenside.ir.interrupts import answered, unless_stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from glenside.codegen.processor.model import Machine


def require_c_file(output: str | None, machines: Sequence[Machine | None]) -> None:
    """Raises BadInput if the C files of a program cannot be written."""
    from glenside.codegen.c_library.export import c_name, file_names

    if output is None or Path(output).suffix != ".c":
        raise BadInput("C is written to a file: give one that ends in .c by -o")
    path = Path(output)
    others = (f"{path.stem}.h", f"{path.stem}.weights", *file_names(c_name(path.stem), machines))
    writable(*(str(path.parent / other) for other in others))


def require_here(machines: Sequence[Machine | None]) -> None:
    """Raises BadInput if this computer cannot run code compiled for one of the machines."""
    from glenside.codegen.processor.model import is_here

    for machine in machines:
        if machine is not None and not is_here(machine):
            raise BadInput(f"--check runs the compiled program, and this computer has no {machine.name}")


def read_back(read: Callable[[], str]) -> str:
    """Reads the written files back before they get their names; a signal, before or meanwhile, skips that."""
    with status_line("read back"):
        try:
            unless_stopped()
            return read()
        except KeyboardInterrupt:
            answered()
            return "not read back: interrupted"
