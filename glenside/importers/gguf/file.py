"""Reads GGUF files by the package gguf, which maps them: metadata, and tensors as bytes."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.packages import import_gguf
from glenside.ir.replacing import PathLike

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a file.

    kind  the name of its type, such as Q4_0
    dims  its sizes, the last one contiguous
    data  mapped: elements of float types that numpy has, else the bytes of each row
    """

    name: str
    kind: str
    dims: tuple[int, ...]
    data: Array


@dataclass(frozen=True)
class GGUFFile:
    """The metadata and the tensors of a file, by name."""

    path: str
    fields: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]
    mapped: Any = None

    def forget(self) -> None:
        """Lets the system drop the pages of the file that are in memory: they are read again when they are used."""
        if self.mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            with suppress(OSError, ValueError):
                self.mapped.madvise(mmap.MADV_DONTNEED)

    def field(self, key: str, default: Any = None) -> Any:
        """Returns the value of a key of the metadata. Raises BadInput if there is neither a value nor a default."""
        field = self.fields.get(key)
        try:
            found = default if field is None else field.contents()
        except (ValueError, IndexError, TypeError) as error:
            raise BadInput(f"{self.path}: the value of {key} cannot be read: {error}") from None
        if found is None:
            raise BadInput(f"{self.path} has no value of {key}, which a decoder requires")
        return found


def read_gguf(path: PathLike) -> GGUFFile:
    """Opens a file. Raises BadInput: no such file, no GGUF file, another version, or cut short."""
    gguf = import_gguf()
    text = str(path)
    try:
        with Path(path).open("rb") as file:
            head = file.read(8)
    except OSError as error:
        raise BadInput(f"{text} cannot be read: {error.strerror}") from None
    if head[:4] != _MAGIC:
        raise BadInput(f"{text} is no GGUF file: it begins with {head[:4]!r}, not {_MAGIC!r}")
    if len(head) < 8 or (version := int.from_bytes(head[4:], "little")) not in _VERSIONS:
        found = "cut short" if len(head) < 8 else f"of version {version}"
        raise BadInput(f"{text} is {found}: GGUF files of versions {' and '.join(map(str, _VERSIONS))} are read")
    try:
        reader = gguf.GGUFReader(text, "r")
        tensors = {
            t.name: StoredTensor(t.name, t.tensor_type.name, tuple(int(n) for n in reversed(t.shape)), t.data)
            for t in reader.tensors
        }
    except Exception as error:  # the package raises what its slices of bytes happen to raise
        raise BadInput(f"{text} is damaged or cut short: {type(error).__name__}: {error}") from None
    return GGUFFile(text, reader.fields, tensors, getattr(reader.data, "_mmap", None))
