"""Reads tensors of ONNX: dtypes, size limits, and values, which are memory-mapped from external files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from math import prod
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import DTypeLike

from glenside.ir.dtypes import DTYPES, HALVES, RECORDS
from glenside.ir.errors import BadInput
from glenside.ir.names import shortened
from glenside.ir.operand import Array
from glenside.ir.operators.requirements import spelled
from glenside.ir.packing import packed_bytes, unpacked
from glenside.ir.term import Term

ELEMENTS = 1 << 40
"""The maximum elements of one tensor: more fit into no machine, and their count must fit into a word."""

AXES = 30
"""The maximum axes of one tensor: its windows then stay within numpy's 64."""

TABLE = 1 << 24
"""The maximum elements of a table computed at import: 128 MiB of float64, and several may exist at once."""


def dtype_name(element_type: int) -> str:
    """Returns the dtype of an ONNX element type. Raises BadInput for one that the language lacks."""
    import onnx

    try:
        name = onnx.TensorProto.DataType.Name(element_type)
    except ValueError:
        raise BadInput(f"an element type requires a number that ONNX knows, got {element_type}") from None
    if not element_type:
        raise BadInput("an element type requires a number that ONNX knows, got 0")
    if name not in _BY_ONNX:
        raise BadInput(f"an element type is one of {', '.join(DTYPES)}, got {name.lower()}")
    return _BY_ONNX[name]


_BY_ONNX = {record.onnx: record.name for record in RECORDS.values()}


def element_type(dtype: DTypeLike) -> int:
    """Returns ONNX's number of a dtype."""
    import onnx

    return int(onnx.TensorProto.DataType.Value(RECORDS[np.dtype(dtype).name].onnx))


def float_dtype(*terms: Term) -> str:
    """Returns float64 if one of the terms needs it, else float32."""
    narrow = {*HALVES, "float32"}
    return "float32" if all(term.access.dtype in narrow for term in terms) else "float64"


def require_table(what: str, *sizes: int, most: int = TABLE) -> None:
    """Raises BadInput if a table of these sizes, such as of interpolation weights, is too large."""
    if prod(sizes) > most:
        raise BadInput(f"{what} requires at most {most} elements, got {' x '.join(map(str, sizes))}")


def check_size(what: str, dims: Iterable[int]) -> list[int]:
    """Returns the dims if a tensor of them can exist: not too many axes or elements. Raises BadInput."""
    sizes = list(dims)
    if min(sizes, default=0) < 0:
        raise BadInput(f"{what} requires sizes of at least 0, got {shortened(spelled(sizes))}")
    if len(sizes) > AXES:
        raise BadInput(f"{what} requires at most {AXES} axes, got {len(sizes)}")
    if prod(max(1, size) for size in sizes) > ELEMENTS:
        raise BadInput(f"{what} requires at most {ELEMENTS} elements, got {shortened(spelled(sizes))}")
    return sizes


def array_of(tensor: Any, folder: Path | None = None) -> Array:
    """Returns the value of a TensorProto; external data are memory-mapped. Raises BadInput."""
    import onnx

    name = f"tensor {shortened(tensor.name)}" if tensor.name else "the tensor"
    try:
        dtype = dtype_name(tensor.data_type)
    except BadInput as error:
        raise BadInput(f"{name}: {error.message}") from None
    dims = check_size(name, tensor.dims)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _mapped(tensor, name, dims, dtype, folder)
    if tensor.HasField("raw_data"):
        data, need = tensor.raw_data, packed_bytes(dims, dtype)
        if len(data) != need:
            raise BadInput(f"{name} of {spelled(dims)} {dtype} requires {need} bytes, got {len(data)}")
        return unpacked(np.frombuffer(data, np.uint8), dims, dtype)
    if RECORDS[dtype].wider:
        return _from_words(tensor.int32_data, name, dims, dtype)
    try:
        return np.asarray(onnx.numpy_helper.to_array(tensor)).astype(dtype, copy=False)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadInput(f"{name} requires the elements of {spelled(dims)} {dtype}: {error}") from None


def _from_words(words: Sequence[int], name: str, dims: list[int], dtype: str) -> Array:
    """Converts elements stored in integers of 16 or 8 bits, of which each may hold several elements."""
    part = np.dtype("<u2" if RECORDS[dtype].bits == 16 else "u1")
    need = packed_bytes(dims, dtype) // part.itemsize
    if len(words) != need:
        raise BadInput(f"{name} of {spelled(dims)} {dtype} requires {need} numbers, got {len(words)}")
    return unpacked(np.asarray(words, np.int32).astype(part).view(np.uint8), dims, dtype)


_files: WeakValueDictionary[tuple[Any, ...], mmap] = WeakValueDictionary()
"""The mapped files: one mapping each, for all their tensors."""


def _mapped(tensor: Any, name: str, dims: list[int], dtype: str, folder: Path | None) -> Array:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    need = packed_bytes(dims, dtype)
    path = _external_file(entries, name, folder)
    offset = _whole(entries.get("offset", "0"), "an offset", name)
    length = _whole(entries.get("length", str(need)), "a length", name)
    if length != need:
        raise BadInput(f"{name} of {spelled(dims)} {dtype} requires a length of {need} bytes, got {length}")
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if offset + need > status.st_size:
                size = f"which has {status.st_size} bytes"
                raise BadInput(f"{name} requires bytes {offset} to {offset + need} of {path.name}, {size}")
            if not need:
                return np.zeros(dims, dtype)
            key = (path, status.st_ino, status.st_size, status.st_mtime_ns)
            data = _files.get(key) or _files.setdefault(key, mmap(file.fileno(), 0, access=ACCESS_READ))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"{name}: cannot read {shortened(entries['location'])}: {reason}") from None
    return unpacked(np.frombuffer(data, np.uint8, need, offset), dims, dtype)


def _external_file(entries: dict[str, str], name: str, folder: Path | None) -> Path:
    location = entries.get("location", "")
    if folder is None or not location:
        raise BadInput(f"{name} requires external data next to the model file, got none")
    try:
        home = Path(os.path.realpath(folder))
        path = Path(os.path.realpath(home / location))
    except (OSError, ValueError) as error:
        raise BadInput(f"{name}: cannot read {shortened(location, True)}: {error}") from None
    if os.path.isabs(location) or home not in path.parents:
        raise BadInput(f"{name} requires its data in a file of the model's folder, got {shortened(location, True)}")
    return path


def _whole(words: str, what: str, name: str) -> int:
    if not words.isdecimal() or len(words) > 20:
        raise BadInput(f"{name} requires {what} in bytes, got {shortened(words, True)}")
    return int(words)
