"""Imports rotary position embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from glenside.builder.indexing import iota
from glenside.builder.layout import concatenate, element, gather, reshape, slice_axis, stack
from glenside.builder.pointwise import (
    add,
    multiply,
    subtract,
)
from glenside.importers.onnx.node import Node
from glenside.importers.onnx.operators.com_microsoft import runtime_operator
from glenside.importers.onnx.operators.com_microsoft.attention import (
    in_heads,
    joined,
    refuse,
)
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term


@dataclass(frozen=True)
class Rotation:
    """The rotation of pairs within a head: tables (positions, pairs) of cosines and sines, and which elements are
    pairs.
    """

    cos: Term
    sin: Term
    interleaved: bool

    def rotated(self, x: Term, positions: Term, owners: Array | None = None) -> Term:
        """Rotates the first pairs of ()(N heads S H) by the angles of positions, (N or 1, S); other elements stay.

        owners  positions are (3 N S), and this selects one of the three for each pair
        """
        batch, length = positions.access.dims[-2:]
        pairs, last = self.cos.access.dims[-1], x.access.rank - 1
        if 2 * pairs > x.access.dims[last]:
            raise BadInput(f"rotary tables require at most {x.access.dims[last] // 2} pairs, got {pairs}")
        tables = [gather(t, positions) for t in (self.cos, self.sin)]
        if owners is not None:
            tables = [_owned(table, owners) for table in tables]
        cos, sin = (reshape(table, (batch, 1, length, pairs)) for table in tables)
        head, rest = slice_axis(x, last, 0, 2 * pairs), slice_axis(x, last, 2 * pairs, x.access.dims[last])
        dims = head.access.dims
        apart = (*dims[:last], pairs, 2) if self.interleaved else (*dims[:last], 2, pairs)
        axis = last + 1 if self.interleaved else last
        real, imaginary = (element(reshape(head, apart), axis, i) for i in range(2))
        rotated = [
            subtract(multiply(real, cos), multiply(imaginary, sin)),
            add(multiply(real, sin), multiply(imaginary, cos)),
        ]
        head = reshape(stack(rotated, axis), dims)
        return head if not rest.access.size else concatenate([head, rest], last)


def _owned(table: Term, owners: Array) -> Term:
    """Selects each pair from one of three tables: ()(3 N S P) -> ()(N S P)."""
    pieces, last = [], table.access.rank - 1
    starts = [0, *(np.flatnonzero(np.diff(owners)) + 1), len(owners)]
    for start, stop in pairwise(map(int, starts)):
        pieces.append(slice_axis(element(table, 0, int(owners[start])), last - 1, start, stop))
    return concatenate(pieces, -1)


def _on_heads(node: Node, owners: Array | None = None) -> Term:
    """Rotates the input, given as (N S heads*H) or in heads; positions may be the first one alone."""
    refuse(node, "is_packed_batching")
    x, positions, cos = node.term(0), node.term(1), node.term(2)
    flat = x.access.rank == 3
    heads = node.integer("num_heads", 0)
    if flat:
        heads = heads or x.access.dims[2] // max(2 * cos.access.dims[-1], 1)
    y = in_heads(x, heads) if flat else x
    if positions.access.size == 1 and positions.access.rank < 2:
        positions = add(reshape(positions, (1, 1)), iota(y.access.dims[2], 1, 2))
    if node.number("scale", 1.0) != 1:
        raise BadInput(f"attribute scale requires 1, got {node.number('scale', 1.0)}")
    rotation = Rotation(cos, node.term(3), bool(node.integer("interleaved", 0)))
    rotated = rotation.rotated(y, positions, owners)
    return joined(rotated) if flat else rotated


@runtime_operator("RotaryEmbedding")
def rotary_embedding(node: Node) -> Term:
    return _on_heads(node)


@runtime_operator("MRotaryEmbedding")
def multimodal_rotary_embedding(node: Node) -> Term:
    """Rotates by three positions per token, for sections of consecutive pairs, or interleaved."""
    pairs, sections = node.term(2).access.dims[-1], node.integers("mrope_section") or []
    if node.term(1).access.rank != 3 or len(sections) != 3 or min(sections) < 0 or sum(sections) != pairs:
        raise BadInput(f"requires positions of (3 batch sequence) and three sections of {pairs} pairs, got {sections}")
    if node.integer("mrope_layout", 0):
        places = np.arange(pairs)
        owners = np.zeros(pairs, int)
        for i in (1, 2):
            owners[(places % 3 == i) & (places < 3 * sections[i])] = i
    else:
        owners = np.repeat(np.arange(3), sections)
    return _on_heads(node, owners)
