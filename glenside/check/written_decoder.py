"""Writes decoders of language models as C, which is compiled and read back before it has its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from glenside.check.written_c import read_back
from glenside.codegen.c_library.decoder import ROWS, STEP, decoder_library
from glenside.codegen.c_library.export import Library
from glenside.codegen.c_library.exported import Exported, exported
from glenside.codegen.lowering.quantized_activations import with_activations
from glenside.codegen.processor.model import Machine, machine_of
from glenside.codegen.runtime.compiled_function import Lowered
from glenside.codegen.scheduling.one_packing import one_packing
from glenside.ir.bounds import whole
from glenside.ir.errors import BadInput
from glenside.ir.files import write_together
from glenside.ir.program import Program
from glenside.ir.replacing import PathLike
from glenside.passes.integer_sums import for_processors

_MOST_ROWS = 4096


def write_decoder(
    load: Callable[[int], Program],
    folder: PathLike,
    rows: int = 16,
    activations: str = "float32",
    machine: Machine | str | None = "native",
    around: Callable[[Callable[[], str]], str] = lambda read: read(),
) -> tuple[Library, str]:
    """Writes a decoder to a folder: main.c, decoder.c and .h, two steps, and decoder.weights.

    load         returns the step of a number of tokens, as `glenside.models.decoder.decoder_step` does
    rows         tokens of a prompt that are computed at a time; the rest, and what is written, one at a time
    activations  of products with weights of 4 or 8 bits: "float32" or "int8"
    around       calls the function that reads the files back

    Returns the files, and a sentence that says what was compared. Raises BadInput, Unverified, WrittenWrong.
    """
    rows = whole("the tokens of a prompt at a time", rows, 2, _MOST_ROWS)
    of = machine_of(machine) if isinstance(machine, str) else machine
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise BadInput(f"a decoder in C is written to a folder, and {path} is a file")
    steps = {STEP: _step(load(1), activations, of), ROWS: _step(load(rows), activations, of)}
    made = decoder_library(steps[STEP], steps[ROWS])
    said = ""

    def verify(written: Mapping[Path, Path]) -> None:
        nonlocal said
        for name, step in steps.items():
            said = around(lambda name=name, step=step: read_back([step], path / f"{name}.c", written))  # type: ignore[misc]

    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot make the folder {path}: {error.strerror or error}") from error
    texts = {path / name: text.encode() for name, text in made.texts.items()}
    write_together({**texts, path / "decoder.weights": made.weights}, verify)
    return made, said


def _step(program: Program, activations: str, machine: Machine | None) -> Exported:
    program = with_activations(program, activations)
    if machine is not None:
        program = for_processors(program)[0]
    with one_packing():
        return exported(Lowered(program, machine))
