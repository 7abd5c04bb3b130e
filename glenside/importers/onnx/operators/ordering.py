"""Imports operators that order elements: top-k, unique, and non-maximum suppression."""

from __future__ import annotations

import numpy as np

from glenside.builder.indexing import top
from glenside.importers.onnx.node import Node, onnx_operator
from glenside.importers.onnx.operators.layout import required
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term


@onnx_operator("TopK")
def largest(node: Node) -> tuple[Term, Term]:
    x = node.term(0)
    axis = node.axis("axis", -1, x.access.rank)
    counts = [node.integer("k", -1)] if node.version < 10 else required(node.known_ints(1), "k")
    if len(counts) != 1 or not 0 <= counts[0] <= x.access.dims[axis]:
        raise BadInput(f"k requires one number from 0 to {x.access.dims[axis]}, got {counts}")
    return top(x, counts[0], axis, largest=bool(node.integer("largest", 1)))


@onnx_operator("Unique")
def unique(node: Node) -> list[Term]:
    value = node.known(0)
    axis = node.axis("axis", 0, value.ndim) if "axis" in node.attributes else None
    rows = np.moveaxis(value, axis, 0).reshape(value.shape[axis], -1) if axis is not None else value.reshape(-1, 1)
    _, first, inverse, counts = np.unique(rows, True, True, True, axis=0)
    inverse = inverse.reshape(-1)
    if not node.integer("sorted", 1):  # in order of appearance
        order = np.argsort(first)
        first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
    found = value.reshape(-1)[first] if axis is None else np.take(value, first, axis)
    places = [np.asarray(a).astype(np.int64) for a in (first, inverse, counts)]
    return [node.constant(found), *map(node.constant, places)]


@onnx_operator("NonMaxSuppression")
def suppressed(node: Node) -> Term:
    boxes, scores = node.known(0), node.known(1)
    if boxes.ndim != 3 or scores.ndim != 3 or boxes.shape != (scores.shape[0], scores.shape[2], 4):
        raise BadInput(f"requires boxes (B N 4) and scores (B C N), got {boxes.shape} and {scores.shape}")
    most, overlap, least = (_one(node, i, standard) for i, standard in ((2, 0), (3, 0.0), (4, -np.inf)))
    centred = node.integer("center_point_box", 0)
    if centred not in (0, 1):
        raise BadInput(f"attribute center_point_box is 0 or 1, got {centred}")
    found = []
    for batch, klass in np.ndindex(*scores.shape[:2]):
        corners = _corners(boxes[batch].astype(np.float64), bool(centred))
        for box in _kept(corners, scores[batch, klass], int(most), overlap, least):
            found.append((batch, klass, box))
    return node.constant(np.array(found, np.int64).reshape(-1, 3))


def _one(node: Node, i: int, standard: float) -> float:
    if node.optional(i) is None:
        return standard
    value = node.known(i)
    if value.size != 1:
        raise BadInput(f"input {i} requires one number, got {value.size}")
    return float(value.item())


def _corners(boxes: Array, centred: bool) -> Array:
    """Returns boxes as (low, low, high, high): from centres and sizes, or from any two opposite corners."""
    if centred:
        return np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1)
    return np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], 1)


def _kept(corners: Array, scores: Array, most: int, overlap: float, least: float) -> list[int]:
    """Returns the best boxes, best first, whose overlap with each better one is at most a share of their union."""
    kept: list[int] = []
    areas = np.prod(corners[:, 2:] - corners[:, :2], 1)
    for box in np.argsort(-scores, kind="stable"):
        if len(kept) >= most or not scores[box] > least:
            break
        others = corners[kept]
        sides = np.minimum(corners[box, 2:], others[:, 2:]) - np.maximum(corners[box, :2], others[:, :2])
        common = np.prod(np.maximum(sides, 0), 1)
        union = areas[box] + areas[kept] - common
        if not (common > overlap * union).any():
            kept.append(int(box))
    return kept
