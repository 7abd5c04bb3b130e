"""Reads the windows of convolutions and pools, for an input of given sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from glenside.builder.layout import pad_or_crop
from glenside.importers.onnx.node import Node
from glenside.ir.errors import BadInput
from glenside.ir.term import Term

AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


@dataclass(frozen=True)
class Windows:
    """Window sizes, strides, dilations and (before, after) padding of each spatial axis; negative padding crops.

    ceil  True if a last window may reach beyond the padding; never if ONNX computes the padding
    """

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    padding: list[tuple[int, int]]
    ceil: bool


def windows_of(node: Node, sizes: Sequence[int], kernel: Sequence[int] | None = None) -> Windows:
    """Returns the windows over axes of these sizes; `kernel` are the sizes of weights. Raises BadInput, with the
    attribute.
    """
    axes = len(sizes)
    if axes < 1:
        raise BadInput("input 0 requires at least one axis after (N C), got none")
    given = kernel_of(node, axes, kernel)
    strides, dilations = per_axis(node, "strides", axes), per_axis(node, "dilations", axes)
    auto = node.text("auto_pad", "NOTSET", *AUTO_PADS)
    spans = [(k - 1) * d + 1 for k, d in zip(given, dilations, strict=True)]
    if auto == "NOTSET":
        padding = pads_of(node, axes)
    elif auto == "VALID":
        padding = [(0, 0)] * axes
    else:
        missing = [max(0, (-(-n // t) - 1) * t + k - n) for n, k, t in zip(sizes, spans, strides, strict=True)]
        padding = [halves(n, auto == "SAME_UPPER") for n in missing]
    return Windows(given, strides, dilations, padding, bool(node.integer("ceil_mode", 0)) and auto == "NOTSET")


def kernel_of(node: Node, axes: int, kernel: Sequence[int] | None) -> list[int]:
    """Returns the attribute kernel_shape, or the sizes of the weights. Raises BadInput if they disagree."""
    given = node.integers("kernel_shape")
    if given is None and kernel is None:
        raise BadInput("attribute kernel_shape is required, got nothing")
    if kernel is not None and len(kernel) != axes:
        raise BadInput(f"weights require {axes} axes after the first two, as input 0 has, got {len(kernel)}")
    if given is None or (kernel is not None and list(kernel) == given):
        return list(kernel or [])
    if kernel is not None:
        raise BadInput(f"attribute kernel_shape requires the sizes of the weights, {list(kernel)}, got {given}")
    return per_axis(node, "kernel_shape", axes)


def per_axis(node: Node, name: str, count: int, least: int = 1) -> list[int]:
    """Returns an attribute of `count` numbers of at least `least`, which is the default. Raises BadInput."""
    value = node.integers(name, [least] * count)
    if len(value) != count or min(value, default=least) < least:
        raise BadInput(f"attribute {name} requires {count} numbers of at least {least}, got {value}")
    return value


def pads_of(node: Node, axes: int) -> list[tuple[int, int]]:
    """Returns the attribute pads as (before, after) pairs. Raises BadInput."""
    pads = node.integers("pads", [0] * 2 * axes)
    if len(pads) != 2 * axes:
        raise BadInput(f"attribute pads requires {2 * axes} numbers, got {pads}")
    return list(zip(pads[:axes], pads[axes:], strict=True))


def halves(total: int, more_after: bool) -> tuple[int, int]:
    """Splits a number into halves; the larger half of an odd one comes second, or first."""
    less = total // 2
    return (less, total - less) if more_after else (total - less, less)


def cropped(x: Term, windows: Windows) -> tuple[Term, list[tuple[int, int]]]:
    """Crops x, ()(N C d..), by negative padding; returns it with the remaining padding."""
    taken = [(min(before, 0), min(after, 0)) for before, after in windows.padding]
    left = [(max(before, 0), max(after, 0)) for before, after in windows.padding]
    return pad_or_crop(x, [(0, 0), (0, 0), *taken]), left
