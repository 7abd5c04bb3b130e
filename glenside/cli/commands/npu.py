"""`glenside run PROGRAM.bin --on simulator` and `--on rtl`: run an npu program and count its cycles; and
`glenside assemble`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from glenside.cli.instructions import write_code
from glenside.cli.npu_runs import Ran, ran
from glenside.cli.output import OK, WRONG, print_or_write, status_line, writable
from glenside.cli.table import print_schedule
from glenside.ir.errors import BadInput
from glenside.ir.names import one_line

if TYPE_CHECKING:
    from glenside.cli.options import Valued
    from glenside.ir.operand import Array
    from glenside.npu.program.program import NpuProgram

_SHOWN = 64
"""Maximum elements of a result that is printed whole."""


def run_on_npu(
    source: Valued,
    on: str,
    target: str | None,
    others: Mapping[str, object],
    output: str | None,
    json_path: str | None,
    plot: str | None = None,
    html: str | None = None,
) -> int:
    """Runs a program, prints its cycles and results, and returns the exit status.

    The status is 1 if the RTL and the simulator differ, or the cycles differ from those predicted in the program.
    Raises BadInput.
    """
    _refuse(others, output, plot, html)
    program = with_values(loaded(source.source, target), source.inputs or ())
    with status_line("npu: simulated") as show:
        found = ran(program, source.source, on, show)
        said = {**found.said, "schedule": found.ledger.as_dict()}
    if output is not None:
        from glenside.ir.files import write_arrays

        write_arrays(output, found.results)
    if plot is not None:
        from glenside.report.timeline import write_timeline

        write_timeline(Path(source.source).name, program, found.simulated.times, plot)
    if html is not None:
        _write_page(found, program, html)
    if json_path != "-":
        _print(found, {} if output is not None else found.results)
    if json_path is not None:
        print_or_write(json.dumps(said, indent=2) + "\n", json_path)
    return OK if found.ok else WRONG


def _refuse(others: Mapping[str, object], output: str | None, plot: str | None, html: str | None) -> None:
    """Raises BadInput for options of other machines and for unknown file endings."""
    from glenside.report.html_file import require_page

    require_page(html)
    given = [name for name, value in others.items() if value is not None]
    if given:
        raise BadInput(f"--{given[0]} is for programs that run on SPU: give --on spu")
    if output is not None and Path(output).suffix != ".npz":
        raise BadInput(f"the outputs of a program of an npu go to an .npz file, got {output}")
    if plot is not None:
        from glenside.report.plots import plot_ending

        plot_ending(plot)


def loaded(path: str, target: str | None) -> NpuProgram:
    """Returns the program of a .bin or .asm file. Raises BadInput, also if it is for another machine than `target`."""
    from glenside.formats import ENDINGS, ending
    from glenside.ir.files import read_text
    from glenside.npu.program import binary_format, text_format

    machine = None if target is None else _machine(target)
    if ending(path) in ENDINGS:
        made = f"glenside tensorize {path} --target npu:64x64 --quantize random -o {Path(path).stem}.bin"
        raise BadInput(f"{path} is a network and no program of an npu yet: `{made}` makes one")
    if ending(path) != ".asm":
        return binary_format.load(path, machine)
    program = text_format.parse(read_text(path), path)
    if machine is not None and program.machine != machine:
        raise BadInput(f"{path}: it is for another machine, {program.machine}, and not for {machine}")
    return program


def _machine(target: str) -> Any:
    from glenside.targets import parse_target

    found = getattr(parse_target(target), "npu", None)
    if found is None:
        raise BadInput(f"--target of a program of an npu is an npu, got {target}")
    return found


def with_values(program: NpuProgram, inputs: Sequence[str]) -> NpuProgram:
    """Returns the program with input values, NAME=VALUE, in its DRAM. Raises BadInput."""
    from glenside.formats.sources import arrays_given
    from glenside.npu.program.results import with_inputs

    return with_inputs(program, arrays_given(inputs))


def _write_page(found: Ran, program: NpuProgram, path: str) -> None:
    """Writes the report of a run as a page. Raises BadInput."""
    from glenside.ir.files import write_text
    from glenside.report.document import Document, Section, Words, asked
    from glenside.report.machine_page import machine_sections

    said, (lead, *others) = found.said, found.sentences()
    facts = [("program", one_line(said["program"])), ("machine", said["machine"])]
    sections = [Section("", [Words(others)]), *machine_sections(program, found.simulated.times), asked(facts)]
    title = f"{one_line(Path(said['program']).name)} on {said['machine']}"
    write_text(path, Document(title, lead, sections).html())


def _print(found: Ran, results: Mapping[str, Array]) -> None:
    said = found.said
    print("\n".join(found.sentences()))
    if said["layers"]:
        print("layers, each from its first instruction's start to its last one's end, while neighbours work too:")
    for layer in said["layers"]:
        cycles, predicted = layer["completed"], layer["predicted"]
        other = "" if cycles == predicted else f", predicted {predicted:,}"
        print(f"  {one_line(layer['name'])}: from {layer['start']:,} to {cycles:,}{other}")
    if found.ledger.cycles:
        print_schedule(said["program"], found.ledger)
    for name, own in results.items():
        print(f"{one_line(name)}: {np.array2string(own, threshold=_SHOWN, edgeitems=2)}")


def assemble(
    source: Annotated[str, typer.Argument(help="An npu program: a .bin or .asm file.")],
    output: Annotated[
        str | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Write the program as .bin or .asm; by default print it as text."
        ),
    ] = None,
    emit: Annotated[
        str | None,
        typer.Option("--emit", metavar="DRIVER.c", help="Write a C driver that runs the .bin from a host."),
    ] = None,
) -> None:
    """Write an npu program as text, as the binary that the host loads, or a C driver that loads it."""
    from glenside.npu.program import text_format

    writable(output, emit)
    program = loaded(source, None)
    if emit is not None:
        _emit(program, source, output, emit)
    elif output is None:
        print(text_format.text(program), end="")
    else:
        write_code(program, output)


def _emit(program: NpuProgram, source: str, output: str | None, emit: str) -> None:
    """Writes the C driver, and the .bin if one is wanted: both files or neither. Raises BadInput."""
    from glenside.ir.files import read_bytes, write_together
    from glenside.npu.program import binary_format
    from glenside.npu.rtl import c_driver

    if Path(emit).suffix != ".c":
        raise BadInput(f"a driver of a program of an npu is written as .c, got {emit}")
    binary = source if output is None else output
    if Path(binary).suffix != ".bin":
        raise BadInput(f"a driver runs a program from its .bin, got {binary}: say with -o where that goes")
    content = read_bytes(source) if output is None else binary_format.content(program)
    written = {} if output is None else {Path(output): content}
    write_together({**written, Path(emit): c_driver.driver(program, content).encode()})
