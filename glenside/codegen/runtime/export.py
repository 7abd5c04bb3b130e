"""Exports a program as files: C, a header, and weights, for programs in other languages and for other machines."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from glenside.codegen.loop_ir.ir import Buffer
from glenside.codegen.processor.find_compiler import known_compiler
from glenside.codegen.runtime.compile_and_load import LIBRARIES, flags
from glenside.codegen.runtime.compiled_function import Lowered
from glenside.codegen.runtime.library_files import LINE, Part, build_lines, file_names, machine_name, texts
from glenside.ir.errors import BadInput
from glenside.ir.files import write_bytes, write_together

__all__ = ["Library", "built", "c_name", "file_names", "library", "machine_name"]


@dataclass(frozen=True)
class Library:
    """The files of an exported program: texts by file name, the bytes of NAME.weights, and the build commands."""

    texts: Mapping[str, str]
    weights: bytes
    build: tuple[str, ...]


def c_name(text: str) -> str:
    """Returns the prefix of all exported C names, which may be any word, keywords included. Raises BadInput."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,60}", text):
        raise BadInput(f"a name in C is letters, digits and _, got {text!r}")
    return text


def library(lowered: Sequence[Lowered], name: str) -> Library:
    """Returns the files of a program, for one machine or several, verified.

    Raises BadInput if `name` is no C name, and Unverified.
    """
    for one in lowered:
        one.verify()
    parts = _parts(lowered, c_name(name))
    return Library(texts(parts, name), b"".join(part.content for part in parts), tuple(build_lines(lowered, name)))


def built(lowered: Sequence[Lowered], name: str, folders: Sequence[Path]) -> list[Path]:
    """Writes each program with its weights to its own folder, and compiles all at once to shared objects.

    Raises BadInput.
    """
    by = known_compiler()
    tasks: list[list[str | Path]] = []
    made: list[Path] = []
    for one, folder in zip(lowered, folders, strict=True):
        files = library([one], name)
        write_together({folder / path: text.encode() for path, text in files.texts.items()})
        write_bytes(folder / f"{name}.weights", files.weights)
        made.append(folder / f"{name}.so")
        how = [*flags(one.machine, by.kind), "-fPIC", "-shared"]
        tasks.append([*how, folder / f"{name}.c", "-o", made[-1], *LIBRARIES])
    by.run(tasks, folders[0])
    return made


def _parts(lowered: Sequence[Lowered], name: str) -> list[Part]:
    parts: list[Part] = []
    for number, one in enumerate(lowered):
        own = name if len(lowered) == 1 else f"{name}_{machine_name(one.machine)}"
        begin = sum(len(part.content) for part in parts)
        parts.append(Part(own, one, begin, *_content(one), last=number == len(lowered) - 1))
    return parts


def _content(lowered: Lowered) -> tuple[bytes, dict[Buffer, int]]:
    """Returns the weights of a part, and the offset of each constant: a checksum, then constants aligned to `LINE`."""
    found, places, end = [], {}, LINE
    for buffer, array in lowered.in_memory().items():
        places[buffer] = end
        content = np.ascontiguousarray(array).tobytes()
        padding = -len(content) % LINE
        found.append(content + bytes(padding))
        end += len(content) + padding
    body = b"".join(found)
    mark = hashlib.sha256(lowered.source.encode() + body).digest()[:32]
    return (b"glenside weights 1\n".ljust(32, b"\0") + mark).ljust(LINE, b"\0") + body, places
