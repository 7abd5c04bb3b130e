"""Writes decoders of language models as C, which is compiled and read back before it has its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from glenside.check.open_function import lowered_for_c
from glenside.check.written_c import read_back
from glenside.codegen.c_library.decoder import STEP, check_ranges, decoder_library
from glenside.codegen.c_library.export import Library
from glenside.codegen.c_library.exported import exported
from glenside.codegen.processor.model import Machine, machine_of
from glenside.ir.errors import BadInput
from glenside.ir.files import write_together
from glenside.ir.open_program import OpenProgram
from glenside.ir.replacing import PathLike


def write_decoder(
    program: OpenProgram,
    folder: PathLike,
    activations: str = "float32",
    machine: Machine | str | None = "native",
    around: Callable[[Callable[[], str]], str] = lambda read: read(),
) -> tuple[Library, str]:
    """Writes a decoder to a folder: main.c, decoder.c and .h, its step, and decoder.weights.

    program      a step of 1 to some rows, as `gl.load` gives with ranges of rows and past, or with ring=True
    activations  of products with weights of 4 or 8 bits: "float32" or "int8"
    around       calls the function that reads the files back

    Returns the files, and a sentence that says what was compared. Raises BadInput, Unverified, WrittenWrong.
    """
    of = machine_of(machine) if isinstance(machine, str) else machine
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise BadInput(f"a decoder in C is written to a folder, and {path} is a file")
    if not isinstance(program, OpenProgram):
        raise BadInput(f"a decoder in C has open rows, as of gl.load(.., dims={{'rows': (1, 16)}}), got {program!r}")
    check_ranges(program.ranges)
    step, said = exported(lowered_for_c(program, None, of, check=False, activations=activations)), ""
    made = decoder_library(step)

    def verify(written: Mapping[Path, Path]) -> None:
        nonlocal said
        said = around(lambda: read_back([step], path / f"{STEP}.c", written))

    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot make the folder {path}: {error.strerror or error}") from error
    texts = {path / name: text.encode() for name, text in made.texts.items()}
    write_together({**texts, path / "decoder.weights": made.weights}, verify)
    return made, said
