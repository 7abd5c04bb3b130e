"""Imports operators that keep elements under other dims: reshapes, transposes, repetitions, concatenations."""

from __future__ import annotations

from math import prod

from glenside.builder.layout import broadcast, common_dims, concatenate, rearrange, reshape, tile, transpose
from glenside.importers.onnx.node import Node, distinct_axes, normal_axis, onnx_operator
from glenside.ir.errors import BadInput
from glenside.ir.term import Term


def numbers(node: Node, i: int, name: str, since: int) -> list[int] | None:
    """Returns the numbers that versions from `since` on take as input i, and earlier ones as an attribute; or None."""
    return node.integers(name) if node.version < since else node.known_ints(i)


def required(values: list[int] | None, what: str) -> list[int]:
    """Requires numbers that are given. Raises BadInput."""
    if values is None:
        raise BadInput(f"{what} requires whole numbers, got none")
    return values


@onnx_operator("Reshape")
def reshaped(node: Node) -> Term:
    x = node.term(0)
    dims = x.access.dims
    target = required(numbers(node, 1, "shape", 5), "shape")
    if not node.integer("allowzero", 0):
        if any(n == 0 and i >= len(dims) for i, n in enumerate(target)):
            raise BadInput(f"shape requires each 0 at one of the {len(dims)} axes of the input, got {target}")
        target = [dims[i] if n == 0 else n for i, n in enumerate(target)]
    if min(target, default=0) < -1 or (-1 not in target and prod(target) != x.access.size):
        raise BadInput(f"shape requires sizes of {x.access.size} elements, got {target}")
    return reshape(x, target)


@onnx_operator("Transpose")
def transposed(node: Node) -> Term:
    x = node.term(0)
    rank = x.access.rank
    order = node.integers("perm", range(rank)[::-1])
    if sorted(order) != list(range(rank)):
        raise BadInput(f"attribute perm requires an order of {rank} axes, got {order}")
    return transpose(x, order)


@onnx_operator("Squeeze")
def squeezed(node: Node) -> Term:
    x = node.term(0)
    dims = x.access.dims
    given = numbers(node, 1, "axes", 13)
    axes = [i for i, n in enumerate(dims) if n == 1] if given is None else distinct_axes(given, len(dims))
    if any(dims[axis] != 1 for axis in axes):
        raise BadInput(f"axes requires axes of size 1 of {tuple(dims)}, got {given}")
    return reshape(x, [n for i, n in enumerate(dims) if i not in axes])


@onnx_operator("Unsqueeze")
def unsqueezed(node: Node) -> Term:
    x = node.term(0)
    given = required(numbers(node, 1, "axes", 13), "axes")
    rank = x.access.rank + len(given)
    axes, rest = distinct_axes(given, rank), iter(x.access.dims)
    return reshape(x, [1 if i in axes else next(rest) for i in range(rank)])


@onnx_operator("Flatten")
def flattened(node: Node) -> Term:
    x = node.term(0)
    rank, axis = x.access.rank, node.integer("axis", 1)
    if not -rank <= axis <= rank:
        raise BadInput(f"attribute axis requires a number from {-rank} to {rank}, got {axis}")
    first = axis + rank if axis < 0 else axis
    return reshape(x, (x.access.dims.take(first).product(), x.access.dims.drop(first).product()))


@onnx_operator("Expand")
def expanded(node: Node) -> Term:
    x, target = node.term(0), required(node.known_ints(1), "shape")
    return broadcast(x, common_dims("Expand", x.access.dims, target))


@onnx_operator("Tile")
def tiled(node: Node) -> Term:
    x, rank = node.term(0), node.term(0).access.rank
    if node.version < 6:  # one number of tiles and one axis, in the dtype of x
        tiles, axis = (int(node.known(i).item()) for i in (1, 2))
        repeats = [tiles if i == normal_axis(axis, rank, "input 2") else 1 for i in range(rank)]
    else:
        repeats = required(node.known_ints(1), "repeats")
    if len(repeats) != rank or min(repeats, default=0) < 0:
        raise BadInput(f"repeats requires {rank} numbers of at least 0, got {repeats}")
    return tile(x, repeats)


@onnx_operator("Concat")
def concatenated(node: Node) -> Term:
    parts = node.terms()
    if not parts:
        raise BadInput("requires at least one input, got none")
    if node.version >= 4 and "axis" not in node.attributes:
        raise BadInput("attribute axis requires a whole number, got nothing")
    return concatenate(parts, node.axis("axis", 1, parts[0].access.rank))


def _image(node: Node) -> tuple[Term, int, list[int]]:
    """Returns an input ()(N C H W), the size of its blocks, and its dims."""
    x, block = node.term(0), node.integer("blocksize", 0)
    if x.access.rank != 4:
        raise BadInput(f"input 0 requires a tensor ()(N C H W), got {x.access}")
    if block < 1:
        raise BadInput(f"attribute blocksize requires a number of at least 1, got {block}")
    return x, block, list(x.access.dims)


@onnx_operator("DepthToSpace")
def depth_to_space(node: Node) -> Term:
    x, block, (n, c, h, w) = _image(node)
    if c % block**2:
        raise BadInput(f"attribute blocksize requires one whose square divides {c} channels, got {block}")
    depth = c // block**2
    dims = (n, depth, h * block, w * block)
    if node.text("mode", "DCR", "DCR", "CRD") == "DCR":
        return rearrange(x, (n, block, block, depth, h, w), (0, 3, 4, 1, 5, 2), dims)
    return rearrange(x, (n, depth, block, block, h, w), (0, 1, 4, 2, 5, 3), dims)


@onnx_operator("SpaceToDepth")
def space_to_depth(node: Node) -> Term:
    x, block, (n, c, h, w) = _image(node)
    if h % block or w % block:
        raise BadInput(f"attribute blocksize requires one that divides {h} and {w}, got {block}")
    parts, dims = (n, c, h // block, block, w // block, block), (n, c * block**2, h // block, w // block)
    blocks_first = node.text("mode", "DCR", "DCR", "CRD") == "DCR"
    return rearrange(x, parts, (0, 3, 5, 1, 2, 4) if blocks_first else (0, 1, 3, 5, 2, 4), dims)
