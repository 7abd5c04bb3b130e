"""Writes the C driver of a program: `rtl/driver.c` with the host port's registers and the file's offsets."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from math import prod

import numpy as np

from glenside.npu.isa import host_registers
from glenside.npu.isa.encoding import words
from glenside.npu.isa.fields import UNITS
from glenside.npu.program.binary_format import DIGEST, queues_of
from glenside.npu.program.program import NpuProgram, Place
from glenside.npu.rtl.verilator import sources

_WIDTH = 116


def driver(program: NpuProgram, file: bytes) -> str:
    """Returns the driver of a program and of `file`, the bytes of its program file; it accepts no other file.

    Raises BadInput.
    """
    body = (sources() / "driver.c").read_text(encoding="utf-8")
    header = host_registers.in_c().replace("#pragma once\n\n", "")
    for name, text in (("registers", header), ("program", _program(program, file))):
        body = body.replace(f'#include "{name}.h"\n', text)
    return f"// Written by glenside, for one program of {program.machine}.\n{body}"


def _program(program: NpuProgram, file: bytes) -> str:
    """Returns the definitions that `rtl/driver.c` includes as program.h."""
    queues = queues_of(file)
    lines = [
        f"#define PROGRAM_SIZE {len(file)}u",
        f"#define PROGRAM_DRAM {queues[-1]}u",
        f"#define PROGRAM_DRAM_SIZE {len(program.dram)}u",
        *_numbers("uint8_t PROGRAM_DIGEST", list(file[-DIGEST:])),
        "// Of each unit how many instructions it has, the words of each, and where its queue begins in the file.",
        *_numbers("uint64_t PROGRAM_COUNT", [len(program.queue(unit)) for unit in UNITS]),
        *_numbers("uint64_t PROGRAM_WORDS", [words(unit) for unit in UNITS]),
        *_numbers("uint64_t PROGRAM_QUEUE", queues[:-1]),
        *_places("PROGRAM_INPUTS", program.inputs),
        *_places("PROGRAM_OUTPUTS", program.outputs),
        "// The steps from the outputs to the results of the network, in words; glenside run takes them.",
        f"static const char PROGRAM_REST[] = {_text('' if program.host is None else program.host.rest, b' ._-,;')};",
    ]
    return "\n".join([*lines, ""])


def _numbers(name: str, numbers: list[int]) -> Iterator[str]:
    text = f"static const {name}[] = {{{', '.join(map(str, numbers))}}};"
    yield from textwrap.wrap(text, _WIDTH, subsequent_indent="    ")


def _places(name: str, places: Mapping[str, Place]) -> Iterator[str]:
    """Yields the address loops of tensors, then the table of the tensors, terminated by an entry without a name."""
    entries = []
    for number, (tensor, place) in enumerate(places.items()):
        size = np.dtype(place.dtype).itemsize
        nests = [(n.counts, n.bases[0], n.strides[0]) for n in place.nests]
        if not nests:
            nests = [((prod(place.shape), 1, 1), place.address, (size, 0, 0))]
        means = "" if place.stands_for is None else f", {place.stands_for}"
        yield f"// {_text(tensor)}: {place.dtype} ({', '.join(map(str, place.shape))}){means}"
        yield f"static const struct nest {name}_{number}[] = {{"
        for counts, base, strides in nests:
            yield f"    {{{{{', '.join(map(str, counts))}}}, {base}, {{{', '.join(map(str, strides))}}}}},"
        yield "};"
        entries.append(f"    {{{_text(tensor)}, {size}, {len(nests)}, {name}_{number}}},")
    yield from [f"static const struct place {name}[] = {{", *entries, "    {NULL, 0, 0, NULL},", "};"]


def _text(name: str, plain: bytes = b"._-") -> str:
    """Quotes any name as a C string: bytes other than letters, digits and `plain` become octal escapes."""
    made = (chr(b) if chr(b).isascii() and (chr(b).isalnum() or b in plain) else f"\\{b:03o}" for b in name.encode())
    return f'"{"".join(made)}"'
