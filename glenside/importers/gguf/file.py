"""Reads GGUF files, which are mapped: metadata, and tensors as bytes. In place of the package gguf, which takes 5 to
15 seconds for a vocabulary of 150,000 words, as it makes an array of each number.

    magic, version, number of tensors, number of keys
    keys     name, type, value; an array is a type, a length, and values
    tensors  name, dims with the contiguous one first, type, place after the head, which is aligned
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from glenside.importers.gguf.blocks import BLOCKS
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.replacing import PathLike

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The formats of the types of values, as in the module struct."""
_TEXT, _ARRAY = 8, 9
_FLOATS = {"F32": 4, "F16": 2, "BF16": 2}
"""The bytes of an element."""
_KINDS = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K",
    12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip
_ALIGNMENT, _MAX_AXES = 32, 8


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a file.

    kind  the name of its type, such as Q4_0
    dims  its sizes, the last one contiguous
    data  mapped: float32 or float16 elements, bytes of bfloat16, or the bytes of each row of blocks; none of types that
          are not read
    """

    name: str
    kind: str
    dims: tuple[int, ...]
    data: Array


@dataclass(frozen=True)
class GGUFFile:
    """The metadata and the tensors of a file, by name.

    fields  key -> a function that reads its value
    """

    path: str
    fields: Mapping[str, Callable[[], Any]]
    tensors: Mapping[str, StoredTensor]
    mapped: mmap.mmap

    def forget(self) -> None:
        """Lets the system drop the pages of the file that are in memory: they are read again when they are used."""
        if hasattr(mmap, "MADV_DONTNEED"):
            with suppress(OSError, ValueError):
                self.mapped.madvise(mmap.MADV_DONTNEED)

    def field(self, key: str, default: Any = None) -> Any:
        """Returns the value of a key of the metadata. Raises BadInput if there is neither a value nor a default."""
        field = self.fields.get(key)
        try:
            found = default if field is None else field()
        except (ValueError, struct.error) as error:
            raise BadInput(f"{self.path}: the value of {key} cannot be read: {error}") from None
        if found is None:
            raise BadInput(f"{self.path} has no value of {key}, which a decoder requires")
        return found


def read_gguf(path: PathLike) -> GGUFFile:
    """Opens a file. Raises BadInput: no such file, no GGUF file, another version, or cut short."""
    text = str(path)
    try:
        with Path(path).open("rb") as file:
            head = file.read(8)
            if head[:4] != _MAGIC:
                found = f"begins with {head[:4]!r}, not {_MAGIC!r}" if head else "is empty"
                raise BadInput(f"{text} is no GGUF file: it {found}")
            if len(head) < 8 or (version := int.from_bytes(head[4:], "little")) not in _VERSIONS:
                found = "cut short" if len(head) < 8 else f"of version {version}"
                raise BadInput(
                    f"{text} is {found}: GGUF files of versions {' and '.join(map(str, _VERSIONS))} are read"
                )
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise BadInput(f"{text} cannot be read: {error.strerror}") from None
    try:
        return _Reader(text, mapped).file()
    except struct.error:
        raise BadInput(f"{text} is damaged or cut short: its head ends beyond byte {len(mapped):,}, the last") from None
    except ValueError as error:
        raise BadInput(f"{text} is damaged or cut short: {error}") from None


class _Reader:
    """Reads the head of a file from its first to its last byte. Raises ValueError and struct.error."""

    def __init__(self, path: str, mapped: mmap.mmap) -> None:
        self.path, self.mapped, self.at = path, mapped, len(_MAGIC) + 4

    def file(self) -> GGUFFile:
        tensors, keys = self._read("QQ")
        fields: dict[str, Callable[[], Any]] = {}
        for _ in range(keys):
            key = self._text()
            fields[key] = self._field()
        every = [self._tensor_info() for _ in range(tensors)]
        alignment = fields["general.alignment"]() if "general.alignment" in fields else _ALIGNMENT
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError(f"general.alignment is {alignment!r}")
        begin = -(-self.at // alignment) * alignment
        found = [self._tensor(name, kind, dims, begin + place) for name, kind, dims, place in every]
        return GGUFFile(self.path, fields, {tensor.name: tensor for tensor in found}, self.mapped)

    def _read(self, form: str) -> tuple[Any, ...]:
        form = f"<{form}"
        found = struct.unpack_from(form, self.mapped, self.at)
        self.at += struct.calcsize(form)
        return found

    def _skip(self, size: int) -> int:
        """Goes on by a number of bytes; returns where they begin."""
        begin, self.at = self.at, self.at + size
        if self.at > len(self.mapped):
            raise ValueError(f"{size:,} bytes from byte {begin:,} on are beyond the end")
        return begin

    def _text(self) -> str:
        begin = self._skip(self._read("Q")[0])
        return self.mapped[begin : self.at].decode("utf-8")

    def _field(self) -> Callable[[], Any]:
        """Goes to the end of a value; returns a function that reads it."""
        (kind,) = self._read("I")
        begin = self.at
        if kind != _ARRAY:
            self._skip_value(kind)
            return partial(self._value, kind, begin)
        kind, count = self._read("IQ")
        begin = self.at
        if kind in _NUMBERS:
            self._skip(count * struct.calcsize(_NUMBERS[kind]))
        else:
            for _ in range(count):
                self._skip_value(kind)
        return partial(self._values, kind, begin, count)

    def _skip_value(self, kind: int) -> None:
        if kind == _TEXT:
            self._skip(self._read("Q")[0])
        elif kind in _NUMBERS:
            self._skip(struct.calcsize(_NUMBERS[kind]))
        else:
            raise ValueError(f"a value has the type {kind}")

    def _value(self, kind: int, begin: int) -> Any:
        return self._values(kind, begin, 1)[0]

    def _values(self, kind: int, begin: int, count: int) -> list[Any]:
        if kind in _NUMBERS:
            return list(struct.unpack_from(f"<{count}{_NUMBERS[kind]}", self.mapped, begin))
        reader = _Reader(self.path, self.mapped)
        reader.at = begin
        return [reader._text() for _ in range(count)]

    def _tensor_info(self) -> tuple[str, str, tuple[int, ...], int]:
        name = self._text()
        (rank,) = self._read("I")
        if rank > _MAX_AXES:
            raise ValueError(f"{name} has {rank:,} axes")
        *dims, kind, place = self._read(f"{rank}QIQ")
        return name, _KINDS.get(kind, f"number {kind}"), tuple(reversed(dims)), place

    def _tensor(self, name: str, kind: str, dims: tuple[int, ...], begin: int) -> StoredTensor:
        if kind not in _FLOATS and kind not in BLOCKS:
            return StoredTensor(name, kind, dims, np.empty(0, np.uint8))
        last, rows = (dims[-1], prod(dims[:-1])) if dims else (1, 1)
        if kind in BLOCKS and last % BLOCKS[kind].steps:
            raise ValueError(f"rows of {name} have {last} elements, and blocks of {kind} {BLOCKS[kind].steps}")
        row = last * _FLOATS[kind] if kind in _FLOATS else last // BLOCKS[kind].steps * BLOCKS[kind].bytes
        if begin + rows * row > len(self.mapped):
            raise ValueError(f"{name} ends at byte {begin + rows * row:,}, of {len(self.mapped):,}")
        data = np.frombuffer(self.mapped, np.uint8, rows * row, begin)
        if kind in ("F32", "F16"):
            return StoredTensor(name, kind, dims, data.view(np.float32 if kind == "F32" else np.float16).reshape(dims))
        return StoredTensor(name, kind, dims, data if kind in _FLOATS else data.reshape(*dims[:-1], row))
