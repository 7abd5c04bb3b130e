"""Represents moved integers, and the leaves that they are moved from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod

import numpy as np

from glenside.analysis.element_sources import places
from glenside.builder.layout import split_at
from glenside.ir.dtypes import FLOATS
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.operators.compute import name_of
from glenside.ir.term import Term, build, make, postorder, tensors, weave
from glenside.ir.types import Dims, Tensor
from glenside.quantization.layers import Normalised
from glenside.semantics.interpreter import evaluate

BYTES = ("int8", "uint8")


@dataclass(frozen=True, eq=False)
class Bytes:
    """int8 values of the network minus a zero point, between low and high."""

    term: Term
    zero: int = 0
    low: int = -128
    high: int = 127


@dataclass(frozen=True, eq=False)
class Known:
    """Known integers: weights, and the name of the tensor that holds them."""

    values: Array
    name: str


@dataclass(frozen=True, eq=False)
class Real:
    """An input of floats, before it is quantized."""

    tensor: Tensor


@dataclass(frozen=True, eq=False)
class Moved:
    """Moved elements: a term of moves over stand-ins, one per leaf; `filled` if zeros are filled in."""

    term: Term
    leaves: Mapping[Term, Leaf]
    filled: bool = False

    @property
    def dims(self) -> tuple[int, ...]:
        return tuple(self.term.access.dims)

    def with_leaves(self, leaves: Mapping[Term, Leaf]) -> Moved:
        """Returns the same movement of other leaves."""
        return replace(self, leaves=leaves)


@dataclass(frozen=True, eq=False)
class Product:
    """Sums of products of two operands, or with `greatest` their maxima.

    `summed`: the second operand is ones; `name`: of the layer; `normalised`: the normalization of the sums.
    """

    a: Moved
    b: Moved
    shared: int
    name: str
    summed: bool = False
    normalised: Normalised | None = None
    greatest: bool = False

    @property
    def bytes(self) -> Mapping[Term, Leaf]:
        """The leaves of the summed operand."""
        return self.a.leaves

    @property
    def count(self) -> int:
        """The number of products in each sum."""
        return self.a.term.access.item.product()


@dataclass(frozen=True, eq=False)
class Summed:
    """Sums of bytes, each over `count` elements."""

    bytes: Mapping[Term, Leaf]
    count: int
    summed: bool = True


Leaf = Bytes | Known | Real | Product | Summed


_count = iter(range(1 << 62))


def standing_for(leaf: Leaf, dims: Sequence[int]) -> Moved:
    """Returns a leaf without movement, ()(dims)."""
    term = build("access-tensor", Tensor(f"leaf {next(_count)}", Dims(dims), "int32"))
    return Moved(term, {term: leaf})


def name_in(stand_in: Term) -> str:
    """Returns the name of a stand-in, or of another tensor."""
    (tensor,) = stand_in.attributes
    assert isinstance(tensor, Tensor)
    return tensor.name


def place_of(term: Term, layers: Mapping[Term, str], constant: Mapping[Term, bool], node: str = "") -> str:
    """Describes a term by its file's node, if known, and by the layer whose operand or result it is."""
    if node:
        return f"{node}, {place_of(term, layers, constant)}"
    names = [layers[t] for t in postorder(term) if t in layers]
    if term in layers:
        return f"the layer {layers[term]}"
    if names:
        return f"{name_of(term)} after the layer {names[-1]}"
    inputs = [name_in(t) for t in tensors(term) if not constant[t]]
    whose = f"the input {', '.join(inputs)}"
    return whose if term.operator.name == "access-tensor" else f"{name_of(term)} of {whose}"


def largest_tensor(term: Term) -> str:
    """Returns the name of the largest tensor on which a term depends, or "weight"."""
    leaves = sorted(tensors(term), key=lambda leaf: -leaf.access.size)
    return name_in(leaves[0]) if leaves else "weight"


def joined(by: Term, parts: Sequence[Moved]) -> Moved:
    """Moves operands as a term does."""
    children = [split_at(part.term, c.access.split) for part, c in zip(parts, by.children, strict=True)]
    term = make(by.operator, weave(by.operator, children, by.attributes))
    map_ = by.index_map
    filled = any(part.filled for part in parts) or (map_ is not None and map_.fill is not None)
    return Moved(term, {stand_in: leaf for part in parts for stand_in, leaf in part.leaves.items()}, filled)


def narrow(numbers: Array) -> Array:
    """Returns the numbers with size 1 along each axis along which they are constant; ()() if they are all equal."""
    every = numbers
    for axis, size in enumerate(numbers.shape):
        if size < 2:
            continue
        before = (slice(None),) * axis
        first, last = numbers[*before, :1], numbers[*before, -1:]  # most arrays that change differ in these
        if numbers.strides[axis] == 0 or bool((first == last).all() and (numbers == first).all()):
            numbers = first
    if numbers.size == 1:
        return numbers.reshape(()).copy()
    return numbers if numbers is every else numbers.copy()  # a view would keep the whole array alive


def moved_numbers(by: Term, parts: Sequence[tuple[Array, Sequence[int]]], fill: float | None) -> Array:
    """Moves numbers per element as a term moves elements; `fill` is the number of filled zeros."""
    map_ = by.index_map
    fills = map_ is not None and map_.fill is not None
    first = parts[0][0]
    if all(x.ndim == 0 and x == first for x, _ in parts) and (not fills or fill is None or first == fill):
        return first
    none_repeat = not fills and all(x.size == prod(dims) for x, dims in parts)
    if none_repeat or (fills and fill is None):
        whole = {c: np.broadcast_to(x, tuple(dims)) for c, (x, dims) in zip(by.children, parts, strict=True)}
        (found,) = evaluate([by], {}, given=whole)
        return narrow(np.asarray(found))
    # Move small indices of the distinct numbers instead; index 0 is the fill.
    every = np.concatenate([[fill or 0], *(x.reshape(-1) for x, _ in parts)])
    begins = accumulate((x.size for x, _ in parts), initial=1)
    numbers = np.arange(len(every), dtype=np.min_scalar_type(len(every)))
    which = {
        c: np.broadcast_to(numbers[begin : begin + x.size].reshape(x.shape), tuple(dims))
        for c, (x, dims), begin in zip(by.children, parts, begins, strict=False)
    }
    (found,) = evaluate([by], {}, given=which)
    return narrow(every[narrow(np.asarray(found))])


def pulled_back(moved: Moved, numbers: Sequence[Array], what: str) -> list[dict[Term, Array]]:
    """Maps numbers per element to numbers per leaf element. Raises BadInput if an element has several."""
    if all(x.ndim == 0 for x in numbers):
        return [dict.fromkeys(moved.leaves, x) for x in numbers]
    found = places(moved.term)
    made: list[dict[Term, Array]] = []
    sizes = [leaf.access.size for leaf in found.first]
    in_order = sizes == [found.numbers.size] and np.array_equal(found.numbers.reshape(-1), np.arange(1, sizes[0] + 1))
    for x in numbers:
        if in_order:  # usual: elements are in their order, so broadcasts need not be expanded
            own = np.broadcast_to(x, moved.dims)
            made.append({leaf: narrow(own.reshape(tuple(leaf.access.dims))) for leaf in found.first})
            continue
        wanted = np.broadcast_to(x, moved.dims)
        own = np.full(1 + sum(leaf.access.size for leaf in found.first), np.nan)
        own[found.numbers] = wanted
        own[0] = 0
        same = (own[found.numbers] == wanted) | (found.numbers == 0)
        if not same.all():
            raise BadInput(f"{what} of one element differ between its uses")
        made.append({leaf: _of_leaf(own, leaf, first, wanted) for leaf, first in found.first.items()})
    return made


def _of_leaf(every: Array, leaf: Term, first: int, wanted: Array) -> Array:
    """Returns the numbers of a leaf; unread elements get another element's number."""
    own = every[first : first + leaf.access.size]
    unread = np.isnan(own)
    if unread.any():
        read = own[~unread]
        own = np.where(unread, read[0] if read.size else wanted.flat[0], own)
    return narrow(own.reshape(tuple(leaf.access.dims)))


def bytes_of_weights(root: Term) -> set[Term]:
    """Returns the constants that hold or become bytes, except zero points and quantized ones."""
    order, apart, found = [*postorder(root)], set[Term](), set[Term]()
    for term in order:
        below = term.children[0] if term.children else term
        if name_of(term) == "subtract" and below.operator.name == "access-product":
            apart.update(postorder(below.children[1]))
        elif term.operator.name == "cast" and term.access.dtype in BYTES and below.access.dtype in FLOATS:
            apart.update(postorder(below))
            found.add(term)
        elif any(isinstance(own, Tensor) and own.dtype in BYTES for own in term.attributes) and term.access.rank:
            found.add(term)
    return found - apart
