"""Exports a program as files: C, a header, and weights, for programs in other languages and for other machines."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from glenside.codegen.c_library.exported import Exported, exported
from glenside.codegen.c_library.files import LINE, Part, build_lines, file_names, machine_name, texts
from glenside.codegen.open_sizes.lowered import OpenLowered
from glenside.codegen.open_sizes.lowered_chain import LoweredChain
from glenside.codegen.processor.find_compiler import known_compiler
from glenside.codegen.runtime.compile_and_load import LIBRARIES, flags
from glenside.codegen.runtime.compiled_function import Lowered
from glenside.ir.errors import BadInput
from glenside.ir.files import write_bytes, write_together

__all__ = ["Library", "built", "c_name", "file_names", "libraries", "library", "machine_name"]

_MAGIC = b"glenside weights 2\n".ljust(32, b"\0")


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


def library(lowered: Sequence[Lowered | OpenLowered | LoweredChain | Exported], name: str) -> Library:
    """Returns the files of a program, for one machine or several, verified.

    Raises BadInput if `name` is no C name, or a constant depends on open sizes in a way that C cannot compute; and
    Unverified.
    """
    return libraries({name: lowered})


def libraries(programs: Mapping[str, Sequence[Lowered | OpenLowered | LoweredChain | Exported]]) -> Library:
    """Returns the files of several programs, by name, whose constants are in one file, each once: NAME.weights.

    NAME is the name of the first. Raises BadInput, Unverified.
    """
    own = {c_name(name): list(map(exported, lowered)) for name, lowered in programs.items()}
    weights, parts = _parts(own)
    found: dict[str, str] = {}
    for name, of in parts.items():
        found |= texts(of, name, next(iter(own)))
    return Library(found, weights, tuple(line for name, of in own.items() for line in build_lines(of, name)))


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


def _parts(programs: Mapping[str, Sequence[Exported]]) -> tuple[bytes, dict[str, list[Part]]]:
    """Returns the weights of programs: a head, then constants aligned to `LINE`; and the parts of each program."""
    known: dict[bytes, int] = {}
    contents: list[bytes | memoryview] = []
    places: list[dict[int, int]] = []
    end, mark = LINE, hashlib.sha256()
    for one in (own for of in programs.values() for own in of):
        mark.update(one.source.encode())
        places.append({})
        for number, constant in one.constants.items():
            content = np.ascontiguousarray(constant.array).reshape(-1).view(np.uint8)
            key = hashlib.sha256(content.data).digest()
            if key not in known:
                known[key] = end
                padding = bytes(-content.size % LINE)
                contents += [content.data, padding]
                end += content.size + len(padding)
                mark.update(key)
            places[-1][number] = known[key]
    head, of_each = _MAGIC + mark.digest(), iter(places)
    parts = {
        name: [
            Part(name if len(of) == 1 else f"{name}_{machine_name(one.machine)}", one, head, next(of_each), end)
            for one in of
        ]
        for name, of in programs.items()
    }
    return b"".join([head, *contents]), parts
