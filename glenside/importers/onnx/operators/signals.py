"""Imports Fourier transforms as products with constant matrices, and mel filters."""

from __future__ import annotations

import numpy as np

from glenside.builder.layout import pad, reshape, slice_axis, transpose
from glenside.builder.pointwise import cast, multiply
from glenside.importers.onnx.node import Node, normal_axis, onnx_operator
from glenside.importers.onnx.tensors import dtype_name, float_dtype, require_table
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term


def _rotations(rows: int, columns: int, length: int) -> tuple[Array, Array]:
    """Returns cos and sin of 2 pi n k / length; n k is reduced first, so that long signals lose no precision."""
    require_table("the matrix of a Fourier transform", 4, rows, columns)
    angles = 2 * np.pi / length * (np.outer(np.arange(rows), np.arange(columns)) % length)
    return np.cos(angles), np.sin(angles)


def fourier(length: int, rows: int, columns: int, parts: int, inverse: bool) -> Array:
    """Returns the DFT matrix (rows, parts, columns, 2), from numbers of 1 or 2 parts (real, imaginary) to complex
    ones.
    """
    cos, sin = _rotations(rows, columns, length)
    if inverse:
        cos, sin = cos / length, -sin / length
    return np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)][:parts], 1)


def real_inverse(length: int, rows: int, parts: int) -> Array:
    """Returns the matrix (rows, parts, length, 1) from the first half of a symmetric spectrum to a real signal."""
    cos, sin = _rotations(rows, length, length)
    twice = np.where((np.arange(rows) == 0) | (2 * np.arange(rows) == length), 1, 2)[:, None] / length
    return np.stack([twice * cos, -twice * sin][:parts], 1)[..., None]


@onnx_operator("DFT")
def dft(node: Node) -> Term:
    x = node.term(0)
    if x.access.rank < 2 or x.access.dims[-1] not in (1, 2):
        raise BadInput(f"input 0 requires a last axis of 1 or 2 parts, real and imaginary, got {x.access}")
    given = node.integer("axis", 1) if node.version < 20 else node.known_int(2, -2)
    axis = normal_axis(given, x.access.rank, "attribute axis" if node.version < 20 else "input 2, axis,")
    if axis == x.access.rank - 1:
        raise BadInput(f"the axis requires one of the signal, got {given}, the parts of its numbers")
    inverse, onesided = (bool(node.integer(name, 0)) for name in ("inverse", "onesided"))
    size, parts = x.access.dims[axis], x.access.dims[-1]
    length = node.known_int(1, 2 * (size - 1) if inverse and onesided else size)
    if length < 1:
        raise BadInput(f"input 1, dft_length, requires at least 1, got {length}")
    half = length // 2 + 1
    if inverse and onesided:
        rows = min(size, half)
        matrix = real_inverse(length, rows, parts)
    else:
        rows = min(size, length)
        matrix = fourier(length, rows, half if onesided else length, parts, inverse)
    rest = [i for i in range(x.access.rank - 1) if i != axis]
    dtype = float_dtype(x)
    moved = transpose(slice_axis(cast(x, dtype), axis, 0, rows), (*rest, axis, x.access.rank - 1))
    lead = moved.access.dims.take(len(rest))
    weights = node.constant(matrix.reshape(rows * parts, -1).astype(dtype))
    y = node.builder.matmul(reshape(moved, (*lead, rows * parts)), weights, name=node.layer_name())
    back = [*range(axis), len(rest), *range(axis, len(rest)), len(rest) + 1]
    return cast(transpose(reshape(y, (*lead, *matrix.shape[2:])), back), x.access.dtype)


@onnx_operator("STFT")
def stft(node: Node) -> Term:
    x, window = node.term(0), node.optional(2)
    signal = x if x.access.rank == 3 else reshape(x, (*x.access.dims, 1))
    if signal.access.rank != 3 or signal.access.dims[-1] not in (1, 2):
        raise BadInput(f"input 0 requires (batch length parts) of 1 or 2 parts, got {x.access}")
    if window is not None and window.access.rank != 1:
        raise BadInput(f"input 2, window, requires one axis, got {window.access}")
    _, size, parts = signal.access.dims
    length = node.known_int(3, size if window is None else window.access.dims[0])
    step = node.known_int(1, 0)
    if not 1 <= length <= size or step < 1:
        raise BadInput(f"requires a frame of 1 to {size} elements and a step of at least 1, got {length} and {step}")
    bins = length // 2 + 1 if node.integer("onesided", 1) else length
    dtype = float_dtype(x)
    matrix = fourier(length, length, bins, parts, inverse=False).reshape(length, parts, bins * 2)
    weights = node.constant(matrix.transpose(2, 1, 0).astype(dtype))
    if window is not None:
        taken = slice_axis(cast(window, dtype), 0, 0, min(length, window.access.dims[0]))
        weights = multiply(weights, pad(taken, [(0, length - taken.access.dims[0])]))
    # Frames times a matrix: a convolution whose filters are the windowed waves.
    frames = transpose(cast(signal, dtype), (0, 2, 1))
    y = node.builder.conv(frames, weights, strides=step, name=node.layer_name())
    batch, _, count = y.access.dims
    return cast(transpose(reshape(y, (batch, bins, 2, count)), (0, 3, 1, 2)), x.access.dtype)


@onnx_operator("MelWeightMatrix")
def mel_weight_matrix(node: Node) -> Term:
    bands, length, rate = (node.known_int(i, 0) for i in range(3))
    low, high = (_frequency(node, i) for i in (3, 4))
    dtype = dtype_name(node.integer("output_datatype", 1))
    if min(bands, rate) < 1 or length < 0 or not 0 <= low <= high <= rate / 2:
        raise BadInput(
            "requires at least one band, a length of at least 0 and 0 <= lower edge <= upper edge <= sample rate / 2, "
            f"got {bands} bands, length {length}, edges {low} and {high}, rate {rate}"
        )
    if dtype == "bool":
        raise BadInput("attribute output_datatype requires a dtype of numbers, got bool")
    require_table("the matrix of mel filters", length // 2 + 1, bands)
    return node.constant(mel_filters(bands, length, rate, low, high).astype(dtype))


def _frequency(node: Node, i: int) -> float:
    value = node.known(i)
    if value.size != 1 or not np.isfinite(value).all():
        raise BadInput(f"input {i} requires one finite frequency, got {value.reshape(-1)[:4].tolist()}")
    return float(value.reshape(()))


def mel_filters(bands: int, length: int, rate: int, low: float, high: float) -> Array:
    """Returns (length // 2 + 1, bands): triangles over the bins of a spectrum, with corners evenly spaced in mel."""
    least, most = (2595 * np.log10(1 + hertz / 700) for hertz in (low, high))
    mel = least + np.arange(bands + 2) * ((most - least) / (bands + 2))
    corners = np.floor((length + 1) * 700 * (10 ** (mel / 2595) - 1) / rate)
    start, centre, end = corners[:-2], corners[1:-1], corners[2:]
    bins = np.arange(length // 2 + 1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        rising = np.where(centre > start, (bins - start) / (centre - start), 1)
        falling = np.where(end > centre, (end - bins) / (end - centre), 0)
    up = np.where((start <= bins) & (bins <= centre), rising, 0)
    return np.where((centre <= bins) & (bins < end) & (end > centre), falling, up)
