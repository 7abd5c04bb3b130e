"""Packs elements of less than a byte as ONNX does: the first in the lowest bits, the last byte padded with zeros."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from glenside.ir.dtypes import RECORDS, bits_dtype
from glenside.ir.operand import Array


def packed_bytes(dims: Sequence[int], dtype: str) -> int:
    """Returns the bytes of an array in an ONNX file."""
    return -(-prod(dims) * RECORDS[dtype].bits // 8)


def packed(array: Array) -> Array:
    """Returns the bytes of an array in row-major order, little-endian, with small elements packed into bytes."""
    dtype = array.dtype.name
    bits = RECORDS[dtype].bits
    if not RECORDS[dtype].wider:
        return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)
    flat = np.ascontiguousarray(array).reshape(-1).view(bits_dtype(dtype))
    if bits >= 8:
        return flat.astype(flat.dtype.newbyteorder("<"), copy=False).view(np.uint8)
    count = 8 // bits
    groups = np.zeros((packed_bytes(array.shape, dtype), count), np.uint8)
    groups.reshape(-1)[: flat.size] = flat & np.uint8((1 << bits) - 1)
    together: Array = np.bitwise_or.reduce(groups << (bits * np.arange(count, dtype=np.uint8)), axis=1)
    return together.astype(np.uint8, copy=False)


def unpacked(data: Array, dims: Sequence[int], dtype: str) -> Array:
    """Returns the array of packed bytes; a view of them if their layout is that of memory."""
    bits = RECORDS[dtype].bits
    if bits >= 8:
        known = RECORDS[dtype].numpy
        little = bits_dtype(dtype).newbyteorder("<") if RECORDS[dtype].wider else known.newbyteorder("<")
        found = data.view(little)
        return found.astype(little.newbyteorder("="), copy=False).view(known).reshape(dims)
    steps = bits * np.arange(8 // bits, dtype=np.uint8)
    apart = (data[:, np.newaxis] >> steps) & np.uint8((1 << bits) - 1)
    return apart.reshape(-1)[: prod(dims)].view(RECORDS[dtype].numpy).reshape(dims)
