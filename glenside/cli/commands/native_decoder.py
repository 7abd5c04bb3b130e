"""`glenside compile model.gguf -o folder/`: a decoder as C, with a program that writes tokens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from glenside.cli.c_files import read_back
from glenside.cli.options import Compilable
from glenside.cli.output import json_report, status_line, writable
from glenside.formats.sources import pair
from glenside.ir.errors import BadInput
from glenside.ir.interrupts import finishing

_GREATEST = {"rows": "16", "past": "512"}
"""The tokens of a prompt at a time, and those that the cache has room for, if no others are given."""
_LEAST = {"rows": 1, "past": 0}


def is_decoder(source: str, output: str | None) -> bool:
    """True if a GGUF file or a checkpoint is to be written as C to a folder."""
    from glenside.formats import ending
    from glenside.importers.checkpoint import is_checkpoint

    is_folder = output is not None and (output.endswith("/") or not Path(output).suffix)
    return is_folder and (ending(source) == ".gguf" or is_checkpoint(source))


def compile_decoder(source: Compilable, folder: str, machine: str | None, refused: bool, json_path: str | None) -> None:
    """Writes a decoder to a folder. Raises BadInput.

    refused  True if there are other options, which are of single programs
    """
    from glenside.check.written_decoder import write_decoder
    from glenside.codegen.c_library.decoder import FILES
    from glenside.codegen.processor.model import machines_of

    if refused:
        raise BadInput(
            "a decoder in C is compiled without a search, for one machine: leave --target, --emit, --after, --without "
            "and --check out, or give -o NAME.c for one step of it"
        )
    machines = machines_of("native" if machine is None else machine)
    if len(machines) > 1:
        raise BadInput(f"a decoder in C is of one machine, got {machine}")
    is_ring = "ring=true" in (source.parameters or ())
    dims = {name: high for name, high in _GREATEST.items() if not (is_ring and name == "past")}
    dims |= dict(pair(flag, "--dim") for flag in source.dims or ())
    ranges = [f"{n}={own if '..' in own else f'{_LEAST.get(n, 1)}..{own}'}" for n, own in dims.items()]
    path = Path(folder)
    if path.is_dir():
        writable(*(str(path / name) for name in FILES))
    load = replace(source, dims=ranges).loader(may_be_open=True)
    with json_report(json_path) as content, finishing():
        with status_line("lower"):
            program: Any = load()
            made, read = write_decoder(program, path, machine=machines[0], around=read_back)
        rows, past = (program.greatest.get(name) for name in _GREATEST)
        room = f"a cache of {past} tokens" if past else "the tokens of its window"
        print(f"{path}: main.c writes tokens; decoder.h has the functions, over {room}.")
        print(f"A prompt is read {rows} tokens at a time. Weights: {len(made.weights):,} bytes, which are mapped.")
        print(f"{read[:1].upper()}{read[1:]}.")
        print(f"Compile it, in {path}: {made.build[0]}")
        print("Run it: ./decoder decoder.weights THREADS COUNT TOKEN..")
        found: dict[str, Any] = {"folder": str(path), "build": [*made.build], "read": read, "rows": rows}
        content |= {**found, "past": past, "bytes": len(made.weights)}
