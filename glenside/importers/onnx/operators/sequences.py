"""Imports sequences of a known number of elements, and optional values."""

from __future__ import annotations

import numpy as np

from glenside.builder.layout import concatenate, reshape
from glenside.importers.onnx.node import Items, Node, Value, normal_axis, onnx_operator
from glenside.importers.onnx.operators.slicing import PARTS, parts_of
from glenside.importers.onnx.tensors import dtype_name, require_table
from glenside.ir.errors import BadInput
from glenside.ir.term import Term


def _place(node: Node, standard: int) -> int:
    """Returns a position in input 0, which is input 1. Raises BadInput."""
    return normal_axis(node.known_int(1, standard, "position"), len(node.items(0).values), "input 1")


@onnx_operator("SequenceConstruct")
def construct(node: Node) -> Items:
    terms = node.terms()
    if not terms or any(t.access.dtype != terms[0].access.dtype for t in terms):
        got = " and ".join(t.access.dtype for t in terms) or "none"
        raise BadInput(f"requires tensors of one dtype, got {got}")
    return Items(tuple(terms), terms[0].access.dtype)


@onnx_operator("SequenceEmpty")
def empty(node: Node) -> Items:
    wanted = node.integer("dtype")
    return Items((), "float32" if wanted is None else dtype_name(wanted))


@onnx_operator("SequenceAt")
def at(node: Node) -> Value:
    return node.items(0).values[_place(node, 0)]


@onnx_operator("SequenceInsert")
def insert(node: Node) -> Items:
    items, tensor = node.items(0), node.term(1)
    if tensor.access.dtype != items.dtype:
        raise BadInput(f"input 1 requires a tensor of {items.dtype}, got {tensor.access}")
    count = len(items.values)
    place = node.known_int(2, count, "position")
    if place != count:
        place = normal_axis(place, count, "input 2")
    return Items((*items.values[:place], tensor, *items.values[place:]), items.dtype)


@onnx_operator("SequenceErase")
def erase(node: Node) -> Items:
    items, place = node.items(0), _place(node, -1)
    return Items((*items.values[:place], *items.values[place + 1 :]), items.dtype)


@onnx_operator("SequenceLength")
def length(node: Node) -> Term:
    return node.constant(np.array(len(node.items(0).values), np.int64))


@onnx_operator("SplitToSequence")
def split_to_sequence(node: Node) -> Items:
    x = node.term(0)
    axis = node.axis("axis", 0, x.access.rank)
    size, given = x.access.dims[axis], node.known_ints(1)
    if given is None:
        require_table("the list of parts", size, most=PARTS)
        parts = parts_of(x, axis, [1] * size)
        if not node.integer("keepdims", 1):
            parts = [reshape(part, part.access.dims.remove(axis)) for part in parts]
    elif node.term(1).access.rank:
        parts = parts_of(x, axis, given)
    elif len(given) == 1 and given[0] >= 1:
        require_table("the list of parts", -(-size // given[0]), most=PARTS)
        parts = parts_of(x, axis, [min(given[0], size - start) for start in range(0, size, given[0])])
    else:
        raise BadInput(f"input 1 requires sizes of at least 1, got {given}")
    return Items(tuple(parts), x.access.dtype)


@onnx_operator("ConcatFromSequence")
def concatenated(node: Node) -> Term:
    parts = [value for value in node.items(0).values if isinstance(value, Term)]
    new = node.integer("new_axis", 0)
    if not parts or "axis" not in node.attributes or new not in (0, 1):
        raise BadInput("requires at least one tensor, an attribute axis, and an attribute new_axis of 0 or 1")
    axis = node.axis("axis", 0, parts[0].access.rank + new)
    if new:
        parts = [reshape(part, part.access.dims.insert(axis, 1)) for part in parts]
    return concatenate(parts, axis)


@onnx_operator("OptionalHasElement")
def has_element(node: Node) -> Term:
    return node.constant(np.array(node.value(0) is not None))


@onnx_operator("OptionalGetElement")
def get_element(node: Node) -> Value:
    if node.value(0) is None:
        raise BadInput("input 0 requires an optional value that is present, got nothing")
    return node.value(0)
