"""Decodes blocks of GGUF's types to integers, scales and minima; floats keep their type.

    Q4_0  32 steps: d (q - 8)            Q4_K  256 steps in 8 blocks: d s q - e m, with s and m of 6 bits
    Q8_0  32 steps: d q                  Q6_K  256 steps in 16 blocks: d s (q - 32), with s of 8 bits

d and e are float16. As in the format's description, the low halves of bytes come before the high ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from glenside.ir.dtypes import RECORDS
from glenside.ir.operand import Array


@dataclass(frozen=True)
class Blocks:
    """A type of blocks.

    dtype     of the integers; `block` of them have a scale
    scale     dtype of the scales; that of the minima, which are subtracted, is float32
    steps     of a block of the file, in `bytes` bytes
    integers  bytes (.., bytes) -> (.., steps); `scales` and `minima`: -> (.., steps / block)
    """

    dtype: str
    block: int
    scale: str
    steps: int
    bytes: int
    integers: Callable[[Array], Array]
    scales: Callable[[Array], Array]
    minima: Callable[[Array], Array] | None = None


def _halves(codes: Array) -> Array:
    """Returns the low halves of bytes (.., n), then the high ones: (.., 2 n)."""
    found: Array = np.concatenate([codes & 15, codes >> 4], -1)
    return found


def _float16(data: Array) -> Array:
    """Returns a float16 in each two bytes."""
    return np.ascontiguousarray(data).view(np.float16)


def _k4_scales(data: Array) -> tuple[Array, Array]:
    """Returns the scales and minima of 6 bits: 8 of each in bytes 4 to 15."""
    packed = data[..., 4:16]
    low, high, both = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = np.concatenate([low & 63, (both & 15) | (low >> 6) << 4], -1)
    return scales, np.concatenate([high & 63, both >> 4 | (high >> 6) << 4], -1)


def _k4_integers(data: Array) -> Array:
    codes = data[..., 16:].reshape(*data.shape[:-1], 4, 32)
    return _halves(codes).reshape(*data.shape[:-1], 256)


def _k6_integers(data: Array) -> Array:
    low = data[..., :128].reshape(*data.shape[:-1], 2, 2, 32)
    low = np.concatenate([low & 15, low >> 4], -2)  # (.., 2, 4, 32)
    high = data[..., 128:192].reshape(*data.shape[:-1], 2, 1, 32)
    high = high >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    return np.asarray((low | high << 4).astype(np.int8) - 32).reshape(*data.shape[:-1], 256)


BLOCKS = {
    "Q4_0": Blocks(
        "int4", 32, "float16", 32, 18,
        lambda data: _halves(data[..., 2:]).astype(np.int8) - 8,
        lambda data: _float16(data[..., :2]),
    ),
    "Q8_0": Blocks(
        "int8", 32, "float16", 32, 34,
        lambda data: np.ascontiguousarray(data[..., 2:]).view(np.int8),
        lambda data: _float16(data[..., :2]),
    ),
    "Q4_K": Blocks(
        "uint4", 32, "float32", 256, 144,
        _k4_integers,
        lambda data: _float16(data[..., :2]).astype(np.float32) * _k4_scales(data)[0],
        lambda data: _float16(data[..., 2:4]).astype(np.float32) * _k4_scales(data)[1],
    ),
    "Q6_K": Blocks(
        "int8", 16, "float32", 256, 210,
        _k6_integers,
        lambda data: _float16(data[..., 208:]).astype(np.float32)
        * np.ascontiguousarray(data[..., 192:208]).view(np.int8),
    ),
}  # fmt: skip
_AT_ONCE = 1 << 20
"""The bytes that are decoded at a time, as intermediate results are several times as large."""
FLOATS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def floats(kind: str, data: Array, dims: tuple[int, ...]) -> Array:
    """Returns the elements of a tensor of floats, in its own type."""
    own = data.view(ml_dtypes.bfloat16) if kind == "BF16" else data
    return own.reshape(dims)


def integers(kind: str, data: Array, rows: Array | None = None) -> Array:
    """Returns the integers of a matrix ()(N bytes), (N)(blocks)(steps), of the given rows or all."""
    own, cut = BLOCKS[kind], _cut(BLOCKS[kind], data, rows)
    found = np.empty((cut.shape[0], cut.shape[1] * own.steps // own.block, own.block), RECORDS[own.dtype].numpy)
    for part in range(0, len(found), step := max(1, _AT_ONCE // max(1, cut[0].size if len(cut) else 1))):
        rows_of = slice(part, part + step)
        found[rows_of] = own.integers(cut[rows_of]).reshape(-1, *found.shape[1:])
    return found


def scales(kind: str, data: Array, rows: Array | None = None) -> Array:
    """Returns the scales of the blocks of a matrix, (N)(blocks)(1)."""
    cut = _cut(BLOCKS[kind], data, rows)
    return BLOCKS[kind].scales(cut).reshape(cut.shape[0], -1, 1)


def minima(kind: str, data: Array, rows: Array | None = None) -> Array:
    """Returns what is subtracted in the blocks of a matrix, (N)(blocks)."""
    cut, own = _cut(BLOCKS[kind], data, rows), BLOCKS[kind].minima
    assert own is not None, "the type has minima"
    return own(cut).reshape(cut.shape[0], -1)


def _cut(found: Blocks, data: Array, rows: Array | None) -> Array:
    """Returns the bytes of each block of the file: (N)(blocks)(bytes)."""
    own = np.asarray(data if rows is None else data[rows])
    return own.reshape(own.shape[0], -1, found.bytes)
