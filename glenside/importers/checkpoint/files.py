"""Reads the files of a checkpoint: JSON, and tensors of safetensors files, which are mapped. Nothing is unpickled.

A safetensors file is the number of bytes of its header (8 bytes, little-endian), the header (JSON: name -> dtype,
shape and the first and last byte, counted from the end of the header), and the elements of the tensors.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from glenside.ir.bounds import TEXT_BYTES, whole
from glenside.ir.dtypes import RECORDS
from glenside.ir.errors import BadInput
from glenside.ir.names import shortened
from glenside.ir.operand import Array

CONFIG, INDEX, WHOLE, TOKENIZER = "config.json", "model.safetensors.index.json", "model.safetensors", "tokenizer.json"
FLOATS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}
_MOST_HEADER = 100_000_000


class MappedFile:
    """A mapped file."""

    def __init__(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise BadInput(f"{path} cannot be read: {error.strerror}") from None
        except ValueError:
            raise BadInput(f"{path} is empty") from None
        self.data = np.frombuffer(self._map, np.uint8)

    def forget(self) -> None:
        """Lets the system drop the pages of the file that are in memory: they are read again when they are used."""
        if hasattr(mmap, "MADV_DONTNEED"):
            with suppress(OSError, ValueError):
                self._map.madvise(mmap.MADV_DONTNEED)


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a file.

    kind  the name of its type in the file, such as BF16
    data  its bytes, mapped
    """

    name: str
    kind: str
    dims: tuple[int, ...]
    data: Array
    file: MappedFile

    def elements(self) -> Array:
        """Returns the elements of a type of FLOATS, mapped."""
        return np.ndarray(self.dims, RECORDS[FLOATS[self.kind]].numpy, self.data.data)


def read_json(path: Path) -> Any:
    """Returns the value of a JSON file. Raises BadInput."""
    try:
        if path.stat().st_size > TEXT_BYTES:
            raise BadInput(f"{path} has more than {TEXT_BYTES:,} bytes")
        return json.loads(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not JSON: {error}") from None


def read_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Returns the tensors of a checkpoint by name. Raises BadInput."""
    if (folder / INDEX).exists():
        index = read_json(folder / INDEX)
        files = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(files, dict) or not all(isinstance(name, str) for name in files.values()):
            raise BadInput(f"{folder / INDEX} has no weight_map, the file of each tensor by name")
        for name in files.values():
            if Path(name).name != name or not name.endswith(".safetensors"):
                raise BadInput(f"{folder / INDEX} names the file {shortened(name)}, no .safetensors file of its folder")
        found: dict[str, StoredTensor] = {}
        for name in sorted(set(files.values())):
            found |= read_safetensors(folder / name)
        for name in files:
            if name not in found:
                raise BadInput(f"{folder / INDEX} has a tensor {shortened(name)}, which none of its files has")
        return found
    if (folder / WHOLE).exists():
        return read_safetensors(folder / WHOLE)
    if pickled := sorted(folder.glob("*.bin")) + sorted(folder.glob("*.pt")):
        raise BadInput(
            f"{pickled[0]} is pickled, and nothing is unpickled from files: write the weights as {WHOLE} with "
            "model.save_pretrained(folder)"
        )
    raise BadInput(f"{folder} has no {WHOLE}, which holds the weights of a checkpoint")


def read_safetensors(path: Path) -> dict[str, StoredTensor]:
    """Returns the tensors of a file by name. Raises BadInput: no such file, damaged or cut short."""
    file = MappedFile(path)
    data = file.data
    size = int.from_bytes(data[:8].tobytes(), "little")
    if len(data) < 8 or size > len(data) - 8 or size > _MOST_HEADER:
        raise BadInput(f"{path} is damaged or cut short: its header has {size:,} bytes, and the file {len(data):,}")
    try:
        header = json.loads(data[8 : 8 + size].tobytes())
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is damaged: its header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise BadInput(f"{path} is damaged: its header is no JSON object")
    body = data[8 + size :]
    return {name: _tensor(path, file, name, entry, body) for name, entry in header.items() if name != "__metadata__"}


def _tensor(path: Path, file: MappedFile, name: str, entry: Any, body: Array) -> StoredTensor:
    what = f"{path}: the tensor {shortened(name)}"
    known = entry if isinstance(entry, dict) else {}
    kind, shape, place = known.get("dtype"), known.get("shape"), known.get("data_offsets")
    if not isinstance(kind, str) or not isinstance(shape, list) or not isinstance(place, list) or len(place) != 2:
        raise BadInput(f"{what} is damaged: it requires dtype, shape and data_offsets")
    dims = tuple(whole(f"{what}: a size", _number(size)) for size in shape)
    begin, end = (whole(f"{what}: a place", _number(one), 0, len(body)) for one in place)
    if begin > end or (kind in _BYTES and prod(dims) * _BYTES[kind] != end - begin):
        raise BadInput(f"{what} is damaged: {shortened(str(dims))} of {kind} are not the bytes {begin} to {end}")
    return StoredTensor(name, kind, dims, body[begin:end], file)


def _number(value: Any) -> Any:
    return value if isinstance(value, int) else str(value)


def read_vocabulary(folder: Path) -> list[str]:
    """Returns the text of each token, from tokenizer.json; [] if there is no such file. Raises BadInput."""
    path = folder / TOKENIZER
    if not path.exists():
        return []
    found = read_json(path)
    model: Mapping[str, Any] = found.get("model") if isinstance(found, dict) else None  # type: ignore[assignment]
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, list):
        return [str(pair[0]) if isinstance(pair, list) and pair else "" for pair in vocabulary]
    if not isinstance(vocabulary, dict) or not all(isinstance(place, int) for place in vocabulary.values()):
        raise BadInput(f"{path} has no vocabulary")
    most = len(vocabulary) + 1024
    pieces = [""] * (max((place for place in vocabulary.values() if 0 <= place < most), default=-1) + 1)
    for text, place in vocabulary.items():
        if 0 <= place < len(pieces):
            pieces[place] = text
    return pieces
