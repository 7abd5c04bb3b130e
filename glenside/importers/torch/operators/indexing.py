"""Imports gathers and scatters, embeddings, sorting, and masks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glenside.builder.indexing import gather_elements, gather_nd, iota, scatter_elements, scatter_nd
from glenside.builder.layout import broadcast, common_dims, gather, reshape, slice_axis, transpose, untransposed
from glenside.builder.layout import stack as stacked
from glenside.builder.pointwise import add, cast, combine, compare, divide, filled, select, subtract
from glenside.builder.reductions import reduce_axes, running
from glenside.importers.torch.node import Node, Operand, Refused, aten, axis_of, register, with_axis
from glenside.importers.torch.operators.reductions import lowest
from glenside.ir.dtypes import FLOATS
from glenside.ir.term import Term, build

Indices = Sequence[Term | None]


def integers(node: Node, indices: Indices) -> list[Term | None]:
    """Returns indices as integers: a mask that is known is the positions of its true elements. Raises Refused."""
    found: list[Term | None] = []
    for index in indices:
        if index is None or index.access.dtype not in ("bool", "uint8"):
            found.append(index)
            continue
        value = node.known(index)
        if value is None:
            raise Refused(
                "requires integer indices, or a mask that is known at export: the result's size would depend on it"
            )
        found += [node.constant(places.astype(np.int64), "places") for places in np.nonzero(value)]
    return found


def _parts(x: Term, indices: Indices) -> tuple[list[int], list[Term], bool]:
    """Returns the indexed axes, their indices in common dims, and True if the axes are adjacent."""
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    dims = common_dims("index", *(index.access.dims for index in given))
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    return axes, [broadcast(index, dims) for index in given], adjacent


@aten("index", "Tensor", but="masks that are not known at export")
def index(node: Node, self: Term, indices: Indices) -> Term:
    given = integers(node, indices)
    axes, found, adjacent = _parts(self, given)
    if len(axes) == 1:
        return gather(self, found[0], axes[0])
    rank = self.access.rank
    order = [*axes, *(axis for axis in range(rank) if axis not in axes)]
    y = gather_nd(transpose(self, order), stacked(found, found[0].access.rank))
    if not adjacent:
        return y
    lead, first = found[0].access.rank, axes[0]
    return transpose(y, [*range(lead, lead + first), *range(lead), *range(lead + first, y.access.rank)])


@aten("index_put", but="masks that are not known at export, with values of more than one element")
def index_put(node: Node, self: Term, indices: Indices, values: Term, accumulate: bool = False) -> Term:
    mask = indices[0] if len(indices) == 1 else None
    if mask is not None and mask.access.dtype == "bool" and values.access.size == 1 and not accumulate:
        dims = (*mask.access.dims, *(1,) * (self.access.rank - mask.access.rank))
        return select(reshape(mask, dims), reshape(values, ()), self)
    axes, found, adjacent = _parts(self, integers(node, indices))
    rank, lead = self.access.rank, found[0].access.rank
    rest = [axis for axis in range(rank) if axis not in axes]
    order = [*axes, *rest]
    if node.dtype == "bool":  # adding truth values is `or`
        self, values, kind = cast(self, "int32"), cast(values, "int32"), "max" if accumulate else "replace"
    else:
        kind = "add" if accumulate else "replace"
    sizes = found[0].access.dims
    first = axes[0] if adjacent else 0
    before = [self.access.dims[axis] for axis in rest[:first]]
    after = [self.access.dims[axis] for axis in rest[first:]]
    updates = broadcast(values, (*before, *sizes, *after))
    if first:
        updates = transpose(
            updates, [*range(first, first + lead), *range(first), *range(first + lead, lead + len(rest))]
        )
    written = scatter_nd(transpose(self, order), stacked(found, lead), cast(updates, self.access.dtype), 0, kind)
    return cast(untransposed(written, order), node.dtype)


@aten("index_select")
def index_select(node: Node, self: Term, dim: int, index: Term) -> Term:
    return reshape(gather(with_axis(self), with_axis(index), axis_of(dim, self.access.rank)), node.dims)


@aten("embedding")
def embedding(
    node: Node,
    weight: Term,
    indices: Term,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Term:
    return gather(weight, indices, 0)


@aten("embedding_dense_backward")
def embedding_backward(
    node: Node, grad_output: Term, indices: Term, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Term:
    if scale_grad_by_freq:
        raise Refused("requires scale_grad_by_freq to be false")
    count, depth = indices.access.size, grad_output.access.dims[-1]
    places, rows = reshape(indices, (count, 1)), reshape(grad_output, (count, depth))
    if padding_idx >= 0:
        kept = compare("ne", places, build("full", (), padding_idx, places.access.dtype))
        rows = select(kept, rows, node.filled((), 0, node.dtype))
    return scatter_nd(node.filled((num_weights, depth), 0, node.dtype), places, rows, 0, "add")


@aten("_embedding_bag")
def embedding_bag(
    node: Node,
    weight: Term,
    indices: Term,
    offsets: Term,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Term | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Term | None, ...]:
    """Reduces the rows of each bag; `mode` is 0 for sums, 1 for means, 2 for maxima. Bags begin at the offsets."""
    if include_last_offset:  # the last one is the end of the last bag
        offsets = slice_axis(offsets, 0, 0, offsets.access.dims[0] - 1)
    count, bags = indices.access.size, offsets.access.dims[0]
    at, begin = iota(count, 0, 2, "int64"), reshape(cast(offsets, "int64"), (1, bags))
    started = cast(compare("le", begin, at), "int64")
    own = reduce_axes("reduce-sum", started, [1], keep=True) if count else reshape(at, (0, 1))
    member = compare("eq", subtract(own, build("full", (), 1, "int64")), iota(bags, 1, 2, "int64"))
    if padding_idx >= 0:
        used = compare("ne", reshape(indices, (count, 1)), build("full", (), padding_idx, indices.access.dtype))
        member = combine("logical-and", member, used)
    rows = gather(weight, indices, 0)
    dtype, depth = weight.access.dtype, weight.access.dims[1]
    rows = (
        rows
        if per_sample_weights is None
        else combine("elementwise-mul", rows, reshape(per_sample_weights, (count, 1)))
    )
    mask, wide = reshape(member, (count, bags, 1)), reshape(rows, (count, 1, depth))
    sizes = reshape(reduce_axes("reduce-sum", cast(member, dtype), [0]), (bags, 1))
    empty = compare("eq", sizes, filled(sizes, 0))
    if mode == 2:
        found = reduce_axes("reduce-max", select(mask, wide, node.filled((), lowest(dtype, -1), dtype)), [0])
        return select(empty, node.filled((), 0, dtype), found), None, None, None
    found = reduce_axes("reduce-sum", select(mask, wide, node.filled((), 0, dtype)), [0])
    if mode == 1:
        found = divide(found, select(empty, filled(sizes, 1), sizes))
    return found, None, None, None


register("_embedding_bag_forward_only", embedding_bag, ("default",), "", __name__)


@aten("gather")
def gathered(node: Node, self: Term, dim: int, index: Term, sparse_grad: bool = False) -> Term:
    if not index.access.size:
        return node.filled(node.dims, 0, node.dtype)
    x, places = with_axis(self), with_axis(index)
    return reshape(gather_elements(x, places, axis_of(dim, self.access.rank)), node.dims)


def _scattered(node: Node, self: Term, dim: int, index: Term, src: Operand, kind: str = "replace") -> Term:
    if not index.access.size:
        return self
    if node.dtype == "bool":  # sums of truth values are `or`, products `and`
        x, kind = cast(self, "int32"), {"add": "max", "mul": "min"}.get(kind, kind)
        updates = cast(src, "int32") if isinstance(src, Term) else src
        return cast(_scattered(node.of_result(x), x, dim, index, updates, kind), "bool")
    x, places = with_axis(self), with_axis(index)
    updates = with_axis(src) if isinstance(src, Term) else node.filled(places.access.dims, src, node.dtype)
    for axis, size in enumerate(places.access.dims):
        updates = slice_axis(updates, axis, 0, size)
    return reshape(scatter_elements(x, places, updates, axis_of(dim, self.access.rank), kind), node.dims)


@aten("scatter", "src", "value", "reduce", "value_reduce")
def scatter(
    node: Node,
    self: Term,
    dim: int,
    index: Term,
    src: Operand | None = None,
    reduce: str | None = None,
    value: Operand | None = None,
) -> Term:
    kind = {None: "replace", "add": "add", "multiply": "mul"}[reduce]
    given = src if src is not None else value
    assert given is not None
    return _scattered(node, self, dim, index, given, kind)


@aten("scatter_add")
def scatter_add(node: Node, self: Term, dim: int, index: Term, src: Term) -> Term:
    return _scattered(node, self, dim, index, src, "add")


@aten("scatter_reduce", "two")
def scatter_reduce(
    node: Node, self: Term, dim: int, index: Term, src: Term, reduce: str, include_self: bool = True
) -> Term:
    kinds: dict[str, tuple[str, float]] = {"sum": ("add", 0), "mean": ("add", 0), "prod": ("mul", 1)}
    kinds |= {"amax": ("max", lowest(node.dtype, -1)), "amin": ("min", lowest(node.dtype, 1))}
    kind, neutral = kinds[reduce]
    if not include_self:
        self = _scattered(node, self, dim, index, neutral)
    found = _scattered(node, self, dim, index, src, kind)
    if reduce != "mean":
        return found
    start = filled(self, 1)
    start = start if include_self else _scattered(node, start, dim, index, 0)
    counts = _scattered(node, start, dim, index, 1, "add")
    counts = combine("maximum", counts, filled(counts, 1))
    if node.dtype in FLOATS:
        return divide(found, counts)
    return divide(subtract(found, combine("(mod floor)", found, counts)), counts)


@aten("masked_scatter")
def masked_scatter(node: Node, self: Term, mask: Term, source: Term) -> Term:
    """Replaces masked elements by those of the source in order: a running count of the mask is their position."""
    count = self.access.size
    flags = reshape(cast(broadcast(mask, self.access.dims), "int64"), (count,))
    if not count or not source.access.size:
        return self
    order = subtract(running(add, flags, 0, "0"), build("full", (), 1, "int64"))
    last = source.access.size - 1
    places = combine("minimum", combine("maximum", order, filled(order, 0)), filled(order, last))
    found = gather(reshape(source, (source.access.size,)), places, 0)
    return select(broadcast(mask, self.access.dims), reshape(found, self.access.dims), self)


@aten("masked_fill", "Scalar", "Tensor")
def masked_fill(node: Node, self: Term, mask: Term, value: Operand) -> Term:
    return broadcast(select(mask, node.operand(value, node.dtype), self), node.dims)


@aten("nonzero", but="tensors that are not known at export")
def nonzero(node: Node, self: Term) -> Term:
    value = node.known(self)
    if value is None:
        raise Refused("requires a tensor that is known at export: the size of the result depends on data")
    return node.constant(np.argwhere(value).astype(np.int64))


@aten("take", "default")
def take(node: Node, self: Term, index: Term) -> Term:
    return gather(reshape(self, (self.access.size,)), index, 0)


@aten("diagonal_scatter", "default")
def diagonal_scatter(node: Node, self: Term, src: Term, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Term:
    """Replaces one diagonal of two axes."""
    rank = self.access.rank
    rows, columns = axis_of(dim1, rank), axis_of(dim2, rank)
    mask = np.eye(self.access.dims[rows], self.access.dims[columns], offset, np.bool_)
    dims = [1] * rank
    dims[rows], dims[columns] = mask.shape
    shown = mask if rows < columns else mask.T
    kept = broadcast(reshape(node.constant(np.ascontiguousarray(shown), "diagonal"), dims), self.access.dims)
    first = np.cumsum(mask.any(1)) - 1  # the element of the diagonal that is in each row
    places = node.constant(np.maximum(first, 0).astype(np.int64), "places")
    if not src.access.dims[-1]:
        return self
    spread = gather(src, places, src.access.rank - 1)  # ()(others.. rows)
    order = [axis for axis in range(rank) if axis not in (rows, columns)]
    whole = reshape(spread, (*spread.access.dims, 1))
    target = [*order, rows, columns]
    back = sorted(range(rank), key=target.__getitem__)
    return select(kept, broadcast(transpose(whole, back), self.access.dims), self)
