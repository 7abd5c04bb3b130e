"""Imports operators that make tensors from numbers, and sizes of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glenside.builder.indexing import iota
from glenside.builder.pointwise import add, multiply
from glenside.importers.torch.node import Node, aten, register
from glenside.importers.torch.promotion import Number
from glenside.ir.dtypes import FLOATS, RECORDS
from glenside.ir.term import Term, build


@aten("full")
def full(node: Node, size: Sequence[int], fill_value: Number, dtype: str | None = None) -> Term:
    return node.filled(node.dims, fill_value, node.dtype)


@aten("full_like")
def full_like(node: Node, self: Term, fill_value: Number, dtype: str | None = None) -> Term:
    return node.filled(node.dims, fill_value, node.dtype)


@aten("scalar_tensor")
def scalar_tensor(node: Node, s: Number, dtype: str | None = None) -> Term:
    return node.number(s, node.dtype)


def zeros(node: Node, *_: object, dtype: str | None = None) -> Term:
    """Returns zeros, also for a tensor whose elements PyTorch leaves undefined."""
    return node.filled(node.dims, 0, node.dtype)


for _name, _overloads in {
    "zeros": ("default",),
    "zeros_like": ("default",),
    "empty": ("memory_format",),
    "empty_like": ("default",),
    "empty_strided": ("default",),
    "new_zeros": ("default",),
    "new_empty": ("default",),
    "empty_permuted": ("default",),
}.items():
    register(_name, zeros, _overloads, "", __name__)


def ones(node: Node, *_: object, dtype: str | None = None) -> Term:
    return node.filled(node.dims, 1, node.dtype)


for _name in ("ones", "ones_like", "new_ones"):
    register(_name, ones, ("default",), "", __name__)


@aten("arange", "default", "start", "start_step")
def arange(node: Node, *bounds: Number, dtype: str | None = None, **named: Number) -> Term:
    """Computes start + i * step; floats are computed in float64 and rounded, as PyTorch does."""
    start = named.get("start", bounds[0] if len(bounds) > 1 else 0)
    step = named.get("step", bounds[2] if len(bounds) > 2 else 1)
    (count,) = node.dims
    if node.dtype in FLOATS:
        return node.constant((start + np.arange(count) * step).astype(RECORDS[node.dtype].numpy))
    numbers = iota(count, dtype=node.dtype)
    if int(step) != 1:
        numbers = multiply(numbers, build("full", (), int(step), node.dtype))
    return add(numbers, build("full", (), int(start), node.dtype)) if int(start) else numbers


@aten("sym_size", "int")
def sym_size(node: Node, self: Term, dim: int) -> int:
    return self.access.dims[dim % self.access.rank]


@aten("sym_numel")
def sym_numel(node: Node, self: Term) -> int:
    return self.access.size


@aten("eye", "default", "m")
def eye(node: Node, n: int, m: int | None = None, dtype: str | None = None) -> Term:
    if node.dims[0] == node.dims[1]:
        return build("eye", n, node.dtype)
    return node.constant(np.eye(node.dims[0], node.dims[1]).astype(RECORDS[node.dtype].numpy))
