"""Computes single elements of terms for sampled checks: by index maps, scalar meanings, `evaluate` on gathered items.

It uses operator records alone and shares nothing with lowering. A stored element has the value of `Values` at its index
in the term's layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from glenside.codegen.loop_ir.ir import Layout
from glenside.codegen.translation_validation.buffer_values import Values
from glenside.codegen.translation_validation.element_indices import MOST, NotSampled, Places, flattened, lies_at
from glenside.codegen.translation_validation.operator_elements import RULES
from glenside.ir.index_map import Fill
from glenside.ir.operand import Array, Operand, in_memory
from glenside.ir.operator import Category
from glenside.ir.operators.compute import compute_of, name_of
from glenside.ir.term import Term, weave
from glenside.ir.types import AccessType, Dims

_WHOLE = 1 << 14
"""Maximum elements of a term that is evaluated whole, if its operator has no rule for single elements."""


class Meaning:
    """Elements of terms at the time when one nest runs.

    stored  term -> its layout if it is stored before the nest runs, else None
    """

    def __init__(self, values: Values, stored: Callable[[Term], Layout | None]) -> None:
        self.values, self.field, self.stored = values, values.field, stored
        self.known: dict[tuple[Term, tuple[int, ...]], tuple[Places, Array]] = {}

    def at(self, term: Term, places: Places) -> Array:
        """Returns the elements of a term at indices of one shape. Raises NotSampled."""
        key = term, tuple(map(id, places))
        if places and key in self.known:
            return self.known[key][1]
        layout = self.stored(term)
        if layout is not None:
            found = self.values.at(layout.buffer, np.asarray(lies_at(layout, places)))
        else:
            found = self.made(term, places)
        self.known[key] = places, found  # keeps the objects of these ids alive
        return found

    def made(self, term: Term, places: Places) -> Array:
        """Computes the elements of a term at indices, even if the term is stored. Raises NotSampled."""
        shape = np.shape(places[0]) if places else ()
        if prod(shape) > MOST:
            raise NotSampled(f"{name_of(term)} of {prod(shape):,} elements")
        name = term.operator.name
        if name == "compute":
            return self._computed(term, places)
        if name in RULES:
            return RULES[name](self, term, places)
        if term.index_map is not None and term.operator.moves:
            return self._moved(term, places)
        return self._whole(term)[places]

    def _moved(self, term: Term, places: Places) -> Array:
        map_ = term.index_map
        assert map_ is not None, "it moves elements"
        shape = np.shape(places[0]) if places else ()
        dtype = term.access.dtype
        zero = self.field.constant(0, dtype)
        fill = self.field.lowest(dtype) if map_.fill is Fill.LOWEST else zero
        if len(map_.pieces) == 1 and map_.fill is None and not map_.pieces[0].guards:
            (piece,) = map_.pieces
            found = self.at(term.children[piece.operand], _evaluated(piece.indices, places, shape))
            return np.broadcast_to(found, shape) if np.shape(found) != shape else found  # of an operand without axes
        flat = tuple(np.reshape(place, -1) for place in places)
        result = np.full(prod(shape), fill, zero.dtype)
        for piece in map_.pieces:
            held = np.ones(prod(shape), bool)
            for guard in piece.guards:
                held = held & guard.evaluate(flat)
            if held.all():
                chosen: Any = slice(None)
            elif held.any():
                chosen = np.flatnonzero(held)
            else:
                continue
            own = tuple(place[chosen] for place in flat)
            count = (int(held.sum()),)
            result[chosen] = self.at(term.children[piece.operand], _evaluated(piece.indices, own, count))
        return result.reshape(shape)

    def _computed(self, term: Term, places: Places) -> Array:
        kind, parameters = compute_of(term)
        assert kind.evaluate is not None, "a compute type has a meaning"
        (child,) = term.children
        type_, shape = child.access, np.shape(places[0]) if places else ()
        if kind.category is Category.POINTWISE:
            return self._of_items(kind, parameters, self.at(child, places), type_, len(shape))
        tail = places[type_.split :] if kind.category is Category.FOLD else ()
        item = type_.item.take(1) if kind.category is Category.FOLD else type_.item
        own, which = _distinct((*places[: type_.split], *tail), shape)
        count = int(which.max(initial=-1)) + 1
        found = self._of_places(term, own, item, count)
        if kind.category is Category.NORMALIZATION:
            within = flattened(places[type_.split :], type_.item).reshape(-1)
            return np.asarray(found.reshape(count, -1)[which, within].reshape(shape))
        return np.asarray(found[which].reshape(shape))

    def _of_places(self, term: Term, places: Places, item: Dims, count: int) -> Array:
        """Applies a compute to whole items, at `count` indices of all other axes."""
        kind, parameters = compute_of(term)
        (child,) = term.children
        split = child.access.split
        if count * item.product() > MOST:
            raise NotSampled(f"{name_of(term)} of items of {item.product():,} elements")
        every, ones = (count, *item), tuple(1 for _ in item)
        spread = [np.broadcast_to(p.reshape(count, *ones), every) for p in places]
        within = [np.broadcast_to(g[None], every) for g in np.ogrid[tuple(slice(0, n) for n in item)]] if item else []
        found = self.at(child, (*spread[:split], *within, *spread[split:]))
        items = np.broadcast_to(found, every)  # an operand without axes has no places
        return self._of_items(kind, parameters, items, child.access.with_dims(Dims(every)), 1)

    def _of_items(self, kind: Any, parameters: Sequence[str], items: Array, type_: AccessType, split: int) -> Array:
        own = AccessType(Dims(items.shape), split, type_.dtype)
        return np.asarray(in_memory(kind.evaluate(self.field, Operand(own, items), *parameters)))

    def _whole(self, term: Term) -> Array:
        """Evaluates all elements of a term from all elements of its operands."""
        arrays = [self.all_of(child) for child in term.children]
        typed = [Operand(c.type, a) for c, a in zip(term.children, arrays, strict=True)]
        arguments = weave(term.operator, typed if term.operator.typed else arrays, term.attributes)
        return np.asarray(in_memory(term.operator.evaluate(self.field, *arguments)))

    def all_of(self, term: Term, most: int = _WHOLE) -> Array:
        """Returns all elements of a term. Raises NotSampled if there are more than `most`."""
        dims = term.access.dims
        if dims.product() > most:
            raise NotSampled(f"{name_of(term)} whole, of {dims.product():,} elements")
        key = term, (-1,)
        if key not in self.known:
            grid = tuple(np.broadcast_to(g, dims) for g in np.ogrid[tuple(slice(0, n) for n in dims)]) if dims else ()
            self.known[key] = (), np.asarray(self.at(term, grid)).reshape(tuple(dims))
        return self.known[key][1]


def _distinct(places: Places, shape: tuple[int, ...]) -> tuple[Places, Array]:
    """Returns the distinct indices, and for each element the number of its index among them."""
    flat = [np.reshape(place, -1) for place in places]
    if not flat:
        return (), np.zeros(prod(shape), np.int64)
    key = flattened(flat, [int(place.max(initial=0)) + 1 for place in flat])
    order = np.argsort(key, kind="stable")
    new = np.ones(key.size, bool)
    new[1:] = key[order][1:] != key[order][:-1]
    which = np.empty(key.size, np.int64)
    which[order] = np.cumsum(new) - 1
    return tuple(place[order][new] for place in flat), which


def _evaluated(indices: Sequence[Any], places: Places, shape: tuple[int, ...]) -> Places:
    return tuple(np.broadcast_to(np.asarray(index.evaluate(places), np.int64), shape) for index in indices)
