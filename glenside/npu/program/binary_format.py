"""Reads and writes programs as binary files: a header, the words of each queue, DRAM, and a digest.

8 bytes   "GLNPU 2\\n"
4 bytes   length of the header, little-endian
header    JSON: machine, layout, words of each queue, bytes of DRAM, places, stretches, predicted cycles, choices,
          the steps of the host
queues    of dma, load, stream and store, in words of 8 bytes, little-endian
DRAM
32 bytes  SHA-256 of everything before
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from glenside.ir.errors import BadInput
from glenside.ir.files import read_bytes, write_bytes
from glenside.ir.operand import Array
from glenside.ir.replacing import PathLike, WrittenWrong
from glenside.npu.isa.encoding import all_decoded, all_encoded, decoded, package, words
from glenside.npu.isa.fields import UNITS
from glenside.npu.machine.model import Machine
from glenside.npu.program.header import choices_of, header, host_of, machine_of, places_of, predicted_of, stretches_of
from glenside.npu.program.program import NpuProgram

MAGIC = b"GLNPU 2\n"
_OLD_MAGIC = b"GLNPU 1\n"
_REBUILD_HINT = "make it again with `glenside tensorize NETWORK --target npu:.. -o FILE.bin`"
_LENGTH = 4
DIGEST = 32
"""Bytes of the digest at the end of a file."""


def layout() -> str:
    """Returns a digest of the bit layout of instructions: of the SystemVerilog package, but for its comments."""
    return hashlib.sha256(re.sub(r" *//.*", "", package()).encode()).hexdigest()[:16]


def save(program: NpuProgram, path: PathLike) -> None:
    """Writes a program atomically. Raises BadInput."""
    meant = content(program)

    def verify(written: Path) -> None:
        if content(load(written)) != meant:
            raise WrittenWrong(path, "its instructions or its DRAM differ")

    write_bytes(path, meant, verify)


def content(program: NpuProgram) -> bytes:
    """Returns the bytes of a program's file. Raises BadInput for an instruction that does not fit its fields."""
    queues = [all_encoded(unit, program.queue(unit)).astype("<u8").reshape(-1) for unit in UNITS]
    head = {
        **header(program),
        "layout": layout(),
        "words": [len(queue) for queue in queues],
        "dram": len(program.dram),
    }
    text = json.dumps(head).encode()
    parts = [MAGIC, len(text).to_bytes(_LENGTH, "little"), text, *(queue.tobytes() for queue in queues)]
    body = b"".join([*parts, program.dram.tobytes()])
    return body + hashlib.sha256(body).digest()


def queues_of(content: bytes) -> list[int]:
    """Returns the offset of each unit's queue in a file's bytes, then the offset of DRAM. Raises BadInput."""
    head, at = _header(content)
    return [at + 8 * sum(head["words"][:unit]) for unit in range(len(UNITS) + 1)]


def load(path: PathLike, machine: Machine | None = None) -> NpuProgram:
    """Reads a program, and checks that it runs on `machine` if given. Raises BadInput with the file and the fault."""
    found = read_bytes(path)
    try:
        return _read(found, machine)
    except BadInput as error:
        raise BadInput(f"{path}: {error.message}") from None


def _read(found: bytes, machine: Machine | None) -> NpuProgram:
    _require_version(found)
    head, at = _header(found)
    counts, size = head.get("words"), head.get("dram")
    known = isinstance(counts, list) and len(counts) == len(UNITS) and all(map(_is_count, counts))
    if not known or not _is_count(size) or counts is None:
        raise BadInput("its header does not say how long it is")
    total = at + 8 * sum(counts) + size + DIGEST
    if len(found) != total:
        raise BadInput(f"it has {len(found):,} bytes of {total:,}: it is cut short, or was added to")
    if hashlib.sha256(found[:-DIGEST]).digest() != found[-DIGEST:]:
        raise BadInput("it is damaged: its digest does not match")
    if head.get("layout") != layout():
        raise BadInput("its instructions are encoded as by another version of Glenside")
    own = machine_of(head.get("machine"))
    if machine is not None and not own.runs_as(machine):
        raise BadInput(f"it is for another machine, {own}, and not for {machine}")
    queues = {}
    for unit, count in zip(UNITS, counts, strict=True):
        queues[unit] = _queue(unit, np.frombuffer(found, "<u8", count, at))
        at += 8 * count
    dram = np.frombuffer(found, np.uint8, size, at)
    return NpuProgram(
        own,
        queues,
        dram,
        places_of(head.get("inputs"), size),
        places_of(head.get("outputs"), size),
        stretches_of(head.get("stretches"), {unit: len(queue) for unit, queue in queues.items()}, size),
        predicted_of(head.get("predicted")),
        choices_of(head.get("choices")),
        host_of(head.get("host"), size),
    )


def _require_version(found: bytes) -> None:
    """Checks the first line. Raises BadInput for other files and for programs of another version."""
    if found.startswith(MAGIC):
        return
    if found and MAGIC.startswith(found):
        raise BadInput("it is cut short within its first line")
    if found.startswith(_OLD_MAGIC):
        raise BadInput(
            f"it was written by Glenside 0.5 or before, which left out the steps of the host: {_REBUILD_HINT}"
        )
    if found[:6] == MAGIC[:6]:
        raise BadInput(f"it is a program of another version of Glenside: {_REBUILD_HINT}")
    raise BadInput("it is not a program of an npu, which begins with GLNPU")


def _header(found: bytes) -> tuple[dict[str, Any], int]:
    begin = len(MAGIC) + _LENGTH
    end = begin + int.from_bytes(found[len(MAGIC) : begin], "little")
    if len(found) < max(begin, end):
        raise BadInput("it is cut short within its header")
    try:
        head = json.loads(found[begin:end])
    except (ValueError, RecursionError):
        raise BadInput("its header is not JSON") from None
    if not isinstance(head, dict):
        raise BadInput("its header is not an object")
    return head, end


def _is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 1 << 40


def _queue(unit: str, found: Array) -> tuple[Any, ...]:
    size = words(unit)
    if len(found) % size:
        raise BadInput(f"its queue of {unit} ends within an instruction")
    every = found.reshape(-1, size).astype(np.uint64)
    try:
        return tuple(all_decoded(unit, every))
    except BadInput:
        for number, own in enumerate(every.tolist()):  # finds the first wrong one
            try:
                decoded(unit, own)
            except BadInput as error:
                raise BadInput(f"{unit} instruction {number}: {error.message}") from None
        raise
