"""Tensors of ONNX as arrays. What lies in other files is mapped into memory, not read."""

from __future__ import annotations

import os
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.types import DTYPES


def dtype_name(element_type: int) -> str:
    """Our name of an ONNX element type. Raises BadInput for one that we do not have."""
    import onnx

    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(element_type)
    except KeyError:
        raise BadInput(f"an element type requires a number that ONNX knows, got {element_type}") from None
    if element_type == onnx.TensorProto.STRING or dtype.name not in DTYPES:
        name = onnx.TensorProto.DataType.Name(element_type).lower()
        raise BadInput(f"an element type is one of {', '.join(DTYPES)}, got {name}")
    return str(dtype.name)


def element_type(dtype: str) -> int:
    """ONNX's number of one of our dtypes."""
    import onnx

    return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def array_of(tensor: Any, folder: Path | None = None) -> Array:
    """The value of a TensorProto; one whose data lie beside the file is mapped from there. Raises BadInput."""
    import onnx

    name = tensor.name or "of an attribute"
    dtype = np.dtype(dtype_name(tensor.data_type))
    if min(tensor.dims, default=0) < 0:
        raise BadInput(f"tensor {name} requires sizes of at least 0, got {list(tensor.dims)}")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _mapped(tensor, name, dtype, folder)
    if tensor.HasField("raw_data") and len(tensor.raw_data) != prod(tensor.dims) * dtype.itemsize:
        need = prod(tensor.dims) * dtype.itemsize
        raise BadInput(f"tensor {name} requires {need} bytes, got {len(tensor.raw_data)}")
    try:
        return np.asarray(onnx.numpy_helper.to_array(tensor)).astype(dtype, copy=False)
    except (ValueError, TypeError) as error:
        raise BadInput(f"tensor {name} requires {list(tensor.dims)} elements of {dtype.name}: {error}") from None


def _mapped(tensor: Any, name: str, dtype: np.dtype[Any], folder: Path | None) -> Array:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if folder is None or "location" not in entries:
        raise BadInput(f"tensor {name} requires a file of its data beside the model, got none")
    location = entries["location"]
    path = Path(os.path.realpath(folder / location))
    if os.path.isabs(location) or not path.is_relative_to(os.path.realpath(folder)):
        raise BadInput(f"tensor {name} requires its data in the folder of the model, got {location!r}")
    count = prod(tensor.dims)
    try:
        offset, length = (int(entries.get(key, standard)) for key, standard in (("offset", 0), ("length", -1)))
    except ValueError:
        raise BadInput(f"tensor {name} requires an offset and a length that are numbers, got {entries}") from None
    need = count * dtype.itemsize
    if offset < 0 or length not in (-1, need):
        raise BadInput(f"tensor {name} requires {need} bytes from an offset of at least 0, got {length} from {offset}")
    try:
        size = path.stat().st_size
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"tensor {name}: cannot read {location}: {reason}") from None
    if not path.is_file() or offset + need > size:
        raise BadInput(f"tensor {name} requires bytes {offset} to {offset + need} of {location}, which has {size}")
    if not need:
        return np.zeros(tuple(tensor.dims), dtype)
    little = np.memmap(path, dtype.newbyteorder("<"), "r", offset, tuple(tensor.dims))
    return little.view(dtype) if dtype.isnative else little
