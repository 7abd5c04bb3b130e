"""Computes single elements of operators that are neither data movement nor compute types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from glenside.codegen.translation_validation.element_indices import MOST, NotSampled, Places, flattened, unflattened
from glenside.ir.operand import Array, Operand
from glenside.ir.operators.compute import parse_compute
from glenside.ir.operators.leaves import counted
from glenside.ir.rational import exact, exact_numbers
from glenside.ir.term import Term
from glenside.ir.types import AccessType, Dims, Tensor

if TYPE_CHECKING:
    from glenside.codegen.translation_validation.term_elements import Meaning


def _tensor(meaning: Meaning, term: Term, places: Places) -> Array:
    (tensor,) = term.attributes
    assert isinstance(tensor, Tensor), "it is a tensor"
    raise NotSampled(f"tensor {tensor.name}, which is not stored")


def _number(meaning: Meaning, term: Term, places: Places) -> Array:
    value = meaning.field.constant(exact(str(term.attributes[-2])) or 0, term.access.dtype)
    return np.broadcast_to(value, np.shape(places[0]) if places else ())


def _listed(meaning: Meaning, term: Term, places: Places) -> Array:
    numbers = exact_numbers(str(term.attributes[1])) or ()
    values = np.asarray([meaning.field.constant(value, term.access.dtype) for value in numbers])
    return np.asarray(values[flattened(places, term.access.dims)])


def _iota(meaning: Meaning, term: Term, places: Places) -> Array:
    return counted(meaning.field, np.ascontiguousarray(places[0]), term.access.dtype)


def _eye(meaning: Meaning, term: Term, places: Places) -> Array:
    one, zero = (meaning.field.constant(n, term.access.dtype) for n in (1, 0))
    return np.where(places[0] == places[1], one, zero)


def _states(meaning: Meaning, term: Term, places: Places) -> Array:
    """Returns elements of the initial state; a loop's body is compared by itself."""
    if np.any(places[0]):
        raise NotSampled("a state of a loop")
    return meaning.at(term.children[0], places[1:])


def _cast(meaning: Meaning, term: Term, places: Places) -> Array:
    value = np.ascontiguousarray(meaning.at(term.children[0], places))
    change = meaning.field.cast if term.operator.name == "cast" else meaning.field.reinterpret
    return np.asarray(change(value, term.access.dtype)).reshape(np.shape(places[0]) if places else ())


def _position(indices: Array, size: int) -> Array:
    """Converts computed indices to positions, modulo the size, because random indices may be out of bounds."""
    if indices.dtype == np.uint64:
        indices = np.minimum(indices, np.uint64(np.iinfo(np.int64).max))
    return indices.astype(np.int64) % max(1, size)


def _gathered(meaning: Meaning, term: Term, places: Places) -> Array:
    a, indices, axis = term.arguments()
    end = axis + indices.access.rank
    shape = np.shape(places[0]) if places else ()
    picked = _position(meaning.at(indices, places[axis:end]), a.access.dims[axis])
    return meaning.at(a, (*places[:axis], np.broadcast_to(picked, shape), *places[end:]))


def _gathered_nd(meaning: Meaning, term: Term, places: Places) -> Array:
    a, indices, shared = term.arguments()
    lead, count = indices.access.rank - 1, indices.access.dims[-1]
    shape = np.shape(places[0]) if places else ()
    picked = []
    for number in range(count):
        last = np.broadcast_to(np.int64(number), shape)
        own = meaning.at(indices, (*places[:lead], last))
        picked.append(np.broadcast_to(_position(own, a.access.dims[shared + number]), shape))
    return meaning.at(a, (*places[:shared], *picked, *places[lead:]))


def _scattered(meaning: Meaning, term: Term, places: Places) -> Array:
    """Applies, for each element, the updates of that element in order."""
    a, indices, updates, shared, reduction = term.arguments()
    lead, count = indices.access.rank - 1, indices.access.dims[-1]
    shape = np.shape(places[0]) if places else ()
    flat = tuple(np.reshape(place, -1) for place in places)
    rows = indices.access.dims.take(lead)
    if rows.product() * prod(shape) > MOST:
        raise NotSampled(f"access-scatter-nd of {rows.product():,} updates")
    every = unflattened(np.arange(rows.product()), rows)
    meets = np.ones((rows.product(), prod(shape)), bool)
    for axis in range(shared):
        meets &= every[axis][:, None] == flat[axis][None]
    for number in range(count):
        own = meaning.at(indices, (*every, np.full(rows.product(), number)))
        position = _position(own, a.access.dims[shared + number])
        meets &= position[:, None] == flat[shared + number][None]
    result = np.array(meaning.at(a, flat) if flat else np.reshape(meaning.at(a, ()), -1))
    update, element = np.nonzero(meets)
    order = np.lexsort((update, element))
    update, element = update[order], element[order]
    turn = np.arange(len(element)) - np.searchsorted(element, element)
    for number in range(int(turn.max(initial=-1)) + 1):
        own_update, own = update[turn == number], element[turn == number]
        behind = tuple(place[own] for place in flat[shared + count :])
        new = meaning.at(updates, (*(e[own_update] for e in every), *behind))
        result[own] = _combined(meaning, str(reduction), result[own], new)
    return result.reshape(shape)


def _combined(meaning: Meaning, reduction: str, old: Array, new: Array) -> Array:
    if reduction == "add":
        return meaning.field.add(old, new)
    if reduction == "mul":
        return meaning.field.multiply(old, new)
    return new if reduction == "replace" else np.minimum(old, new) if reduction == "min" else np.maximum(old, new)


def _mapped(meaning: Meaning, term: Term, places: Places) -> Array:
    """Multiplies a row of a constant matrix with the elements along an axis."""
    child, axis, rows, coefficients = term.arguments()
    columns = child.access.dims[axis]
    flat = tuple(np.reshape(place, (-1, 1)) for place in places)
    every = (flat[0].shape[0], columns)
    at = [np.broadcast_to(f, every) for f in flat]
    at[axis] = np.broadcast_to(np.arange(columns)[None], every)
    values = exact_numbers(coefficients) or ()
    matrix = [values[row * columns : (row + 1) * columns] for row in range(rows)]
    found = meaning.field.linear_map(np.ascontiguousarray(meaning.at(child, tuple(at))), 1, matrix)
    return np.asarray(found[np.arange(every[0]), flat[axis][:, 0]].reshape(np.shape(places[0])))


def _overlapped(meaning: Meaning, term: Term, places: Places) -> Array:
    """Adds the elements of all windows that overlap an element: windows begin at multiples of the stride."""
    child, out, strides = term.arguments()
    axes, dims = len(out), child.access.dims
    lead = len(dims) - 2 * axes
    counts, window = dims[lead : lead + axes], dims[lead + axes :]
    flat = tuple(np.reshape(place, (-1, *(1 for _ in window))) for place in places)
    within = np.ogrid[tuple(slice(0, n) for n in window)]
    every = (flat[0].shape[0], *window)
    held = np.ones(every, bool)
    begins, offsets = [], []
    for i in range(axes):
        start = flat[lead + i] - within[i][None]
        begin, rest = np.divmod(start, strides[i])
        held &= (rest == 0) & (begin >= 0) & (begin < counts[i])
        begins.append(begin)
        offsets.append(np.broadcast_to(within[i][None], every))
    at = [np.broadcast_to(f, every) for f in flat[:lead]]
    at += [np.where(held, begin, 0) for begin in begins]
    found = meaning.at(child, (*at, *offsets))
    found = np.where(held, found, found.dtype.type(0))
    return _total(meaning, found, len(window)).reshape(np.shape(places[0]))


def _overlapped_product(meaning: Meaning, term: Term, places: Places) -> Array:
    """(G, A, positions)(I) x (G, B, window)(I): adds each product to element position * stride + window."""
    a, b, shared, out, strides, dilations, starts, _ = term.arguments()
    axes, rows = len(out), a.access.split
    item, window = a.access.item, b.access.shape.drop(b.access.split - axes)
    positions = a.access.shape.drop(rows - axes)
    inner = (*window, *item)
    flat = tuple(np.reshape(place, (-1, *(1 for _ in inner))) for place in places)
    every = (flat[0].shape[0], *inner)
    grid = [g[None] for g in np.ogrid[tuple(slice(0, n) for n in inner)]] if inner else []
    if prod(every) > MOST:
        raise NotSampled(f"overlap-add-product of {prod(inner):,} products")
    held = np.ones(every, bool)
    begins = []
    for i in range(axes):
        start = flat[len(flat) - axes + i] + starts[i] - grid[i] * dilations[i]
        begin, rest = np.divmod(start, strides[i])
        held &= (rest == 0) & (begin >= 0) & (begin < positions[i])
        begins.append(np.where(held, begin, 0))
    whole = [np.broadcast_to(g, every) for g in grid]
    groups = [np.broadcast_to(f, every) for f in flat[: len(flat) - axes]]
    own, others = groups[: rows - axes], groups[rows - axes :]
    left = (*own, *(np.broadcast_to(b, every) for b in begins), *whole[axes:])
    right = (*own[:shared], *others, *whole)
    one, two = (np.ascontiguousarray(meaning.at(x, at)) for x, at in ((a, left), (b, right)))
    wide = AccessType(Dims(every), 1, a.access.dtype).widened().dtype
    product = meaning.field.multiply(meaning.field.cast(one, wide), meaning.field.cast(two, wide))
    product = np.where(held, product, product.dtype.type(0))
    return _total(meaning, product, len(inner)).astype(product.dtype).reshape(np.shape(places[0]))


def _total(meaning: Meaning, items: Array, axes: int) -> Array:
    """Returns the sum over the last axes, in the dtype of the summands."""
    return meaning.field.sum(items, tuple(range(-axes, 0))).astype(items.dtype) if axes else items


def _products(meaning: Meaning, term: Term, places: Places) -> Array:
    """(G, A)(I) x (G, B)(I) -> (G, A, B)."""
    a, b, shared, *_ = term.arguments()
    split = a.access.split
    left, right = places[:split], (*places[:shared], *places[split:])
    return _contracted(meaning, (a, b), a.access.item, lambda k, of: [(*of(left), *k), (*of(right), *k)])


def _array_products(meaning: Meaning, term: Term, places: Places) -> Array:
    """(G, M)(K) x (G)(K, N) -> (G, M, N), or (G)(K) -> (G, N)."""
    a, b = term.children
    left, group, column = places[:-1], places[: b.access.split], places[-1:]
    return _contracted(meaning, (a, b), a.access.item, lambda k, of: [(*of(left), *k), (*of(group), *k, *of(column))])


def _contracted(
    meaning: Meaning,
    operands: Sequence[Term],
    item: Dims,
    read: Callable[[Places, Callable[[Places], Places]], Sequence[Places]],
) -> Array:
    """Returns the sums over an item of products of operands.

    `read` maps the steps of the item to indices of each operand; its second argument broadcasts indices to the steps.
    """
    shape: tuple[int, ...] = ()

    def of(own: Places) -> Places:
        nonlocal shape
        shape = np.shape(own[0]) if own else shape
        every = (*shape, *item)
        return tuple(np.broadcast_to(np.reshape(p, (*shape, *(1 for _ in item))), every) for p in own)

    read(tuple(np.zeros(0) for _ in item), of)  # finds the shape
    if prod(shape) * item.product() > MOST:
        raise NotSampled(f"a product of items of {item.product():,} elements")
    every = (*shape, *item)
    steps = tuple(
        np.broadcast_to(np.arange(n).reshape(tuple(n if i == j else 1 for j in range(len(item)))), every)
        for i, n in enumerate(item)
    )
    parts = [meaning.at(x, at) for x, at in zip(operands, read(steps, of), strict=True)]
    kind, _ = parse_compute("dot-product")
    pairs = np.stack(parts, len(shape))
    type_ = AccessType(Dims(pairs.shape), len(shape), operands[0].access.dtype)
    assert kind.evaluate is not None, "a compute type has a meaning"
    return np.asarray(kind.evaluate(meaning.field, Operand(type_, pairs)))


RULES: dict[str, Callable[[Meaning, Term, Places], Array]] = {
    "access-tensor": _tensor,
    "access-literal": _number,
    "full": _number,
    "numbers": _listed,
    "iota": _iota,
    "eye": _eye,
    "cast": _cast,
    "bitcast": _cast,
    "access-gather": _gathered,
    "access-gather-nd": _gathered_nd,
    "access-scatter-nd": _scattered,
    "linear-map": _mapped,
    "scan": _states,
    "access-overlap-add": _overlapped,
    "overlap-add-product": _overlapped_product,
    "tiled-product": _products,
    "systolic-array": _array_products,
    "systolic-array-output-stationary": _array_products,
    "systolic-array-with-blocking": _array_products,
}
