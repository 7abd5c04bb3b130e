"""Imports matrix products and convolutions, which are the layers of a program, and transposed convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from glenside.builder.windows import overlap_add
from glenside.importers.onnx.node import Node, onnx_operator
from glenside.importers.onnx.windows import AUTO_PADS, cropped, halves, kernel_of, pads_of, per_axis, windows_of
from glenside.ir.dtypes import FLOATS
from glenside.ir.errors import BadInput
from glenside.ir.term import Term


@onnx_operator("MatMul")
def matmul(node: Node) -> Term:
    return node.builder.matmul(node.term(0), node.term(1), name=node.layer_name())


@onnx_operator("Gemm")
def gemm(node: Node) -> Term:
    a, b, c = node.term(0), node.term(1), node.optional(2)
    if a.access.rank != 2 or b.access.rank != 2:
        raise BadInput(f"inputs 0 and 1 require two axes, got {a.access} and {b.access}")
    x = node.builder.transpose(a, (1, 0)) if node.integer("transA", 0) else a
    w = b if node.integer("transB", 0) else node.builder.transpose(b, (1, 0))
    y = scaled(node, "alpha", node.builder.linear(x, w, name=node.layer_name()))
    if c is None or node.number("beta", 1) == 0:
        return y
    return node.builder.add(y, node.builder.broadcast(scaled(node, "beta", c), y.access.dims))


def scaled(node: Node, name: str, x: Term) -> Term:
    """Returns x times the attribute of that name. Raises BadInput for integers and a fraction."""
    factor = node.number(name, 1)
    if factor == 1:
        return x
    dtype = x.access.dtype
    if dtype not in FLOATS and not factor.is_integer():
        raise BadInput(f"attribute {name} requires a whole number for {dtype}, got {factor}")
    return node.builder.multiply(x, node.scope.filled(x.access.dims, np.array([factor]).astype(dtype)[0]))


@onnx_operator("Conv")
def conv(node: Node) -> Term:
    x, w = node.term(0), node.term(1)
    windows = windows_of(node, x.access.dims[2:], w.access.dims[2:])
    x, padding = cropped(x, windows)
    return node.builder.conv(
        x,
        w,
        node.optional(2),
        strides=windows.strides,
        padding=padding,
        dilations=windows.dilations,
        groups=node.integer("group", 1),
        name=node.layer_name(),
    )


@onnx_operator("ConvTranspose")
def conv_transpose(node: Node) -> Term:
    x, w = node.term(0), node.term(1)
    axes = x.access.rank - 2
    if axes < 1 or w.access.rank != axes + 2:
        raise BadInput(f"inputs 0 and 1 require the same number of axes, at least 3, got {x.access} and {w.access}")
    kernel = kernel_of(node, axes, w.access.dims[2:])
    strides, dilations = per_axis(node, "strides", axes), per_axis(node, "dilations", axes)
    more = per_axis(node, "output_padding", axes, least=0)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    return node.builder.conv_transpose(
        x,
        w,
        node.optional(2),
        strides=strides,
        padding=padding_of_transposed(node, x.access.dims[2:], spans, strides, more),
        output_padding=more,
        dilations=dilations,
        groups=node.integer("group", 1),
        name=node.layer_name(),
    )


def padding_of_transposed(
    node: Node, sizes: Sequence[int], spans: Sequence[int], strides: Sequence[int], more: Sequence[int]
) -> list[tuple[int, int]]:
    """Returns the crop of a transposed convolution's result, for these input sizes and window spans. Raises BadInput.

    Padding is never negative. If windows are smaller than strides, auto_pad gives less than its name says, as in ONNX's
    shape inference and in onnxruntime; elements beyond it that output_shape requests are zeros at the end.
    """
    whole = [t * (n - 1) + k + extra for n, k, t, extra in zip(sizes, spans, strides, more, strict=True)]
    axes, auto = len(whole), node.text("auto_pad", "NOTSET", *AUTO_PADS)
    given = node.integers("output_shape")
    if given is None and not auto.startswith("SAME"):
        return pads_of(node, axes) if auto == "NOTSET" else [(0, 0)] * axes
    wanted = [min(n, m * t) for n, m, t in zip(whole, sizes, strides, strict=True)] if given is None else given
    if len(wanted) not in (axes, axes + 2):  # some files count the batch and the channels too
        raise BadInput(f"attribute output_shape requires {axes} numbers, got {wanted}")
    padding, most = [], [n * t + k - 1 for n, k, t in zip(sizes, spans, strides, strict=True)]
    for n, size, end in zip(whole, wanted[-axes:], most, strict=True):
        if size > end:
            raise BadInput(f"attribute output_shape requires at most {most}, got {wanted}: more windows fit in")
        before, after = halves(max(0, n - size), auto == "SAME_UPPER")
        padding.append((before, after - max(0, size - n)))
    return padding


@onnx_operator("Col2Im")
def col2im(node: Node) -> Term:
    x, image, block = node.term(0), node.known_ints(1) or [], node.known_ints(2) or []
    axes = len(image)
    if axes < 1 or len(block) != axes or min(block) < 1:
        raise BadInput(f"inputs 1 and 2 require as many sizes of at least 1, got {image} and {block}")
    strides, dilations = per_axis(node, "strides", axes), per_axis(node, "dilations", axes)
    padding = pads_of(node, axes)
    whole = [n + before + after for n, (before, after) in zip(image, padding, strict=True)]
    spans = [(k - 1) * d + 1 for k, d in zip(block, dilations, strict=True)]
    counts = [(n - k) // t + 1 for n, k, t in zip(whole, spans, strides, strict=True)]
    dims = x.access.dims
    if len(dims) != 3 or dims[1] % prod(block) or dims[2] != prod(counts):
        raise BadInput(f"input 0 requires blocks of {block} at {counts} positions, got {x.access}")
    channels = dims[1] // prod(block)
    order = (0, 1, *range(2 + axes, 2 + 2 * axes), *range(2, 2 + axes))
    blocks = node.builder.transpose(node.builder.reshape(x, (dims[0], channels, *block, *counts)), order)
    added = overlap_add(blocks, whole, strides, dilations)
    return node.builder.pad_or_crop(added, [(0, 0), (0, 0), *((-before, -after) for before, after in padding)])
