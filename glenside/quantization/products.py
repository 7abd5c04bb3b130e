"""Manipulates products of moved integers: numbers per column, in their weights, and their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from glenside.builder.layout import split_at
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term, build, rebuild_all
from glenside.quantization.affine import Affine
from glenside.quantization.values import Known, Moved, Product, name_in, pulled_back
from glenside.semantics.interpreter import evaluate


def columns(product: Product, numbers: Array) -> Array:
    """Reduces numbers given per sum of a product to one per column, (G, B). Raises BadInput if rows differ."""
    rank = len(product.a.dims) - product.a.term.access.item.length
    if numbers.ndim and any(n != 1 for n in numbers.shape[product.shared : rank]):
        raise BadInput("factors that differ from row to row of a product cannot be folded into its weights")
    if not numbers.ndim:
        return numbers
    kept = [axis for axis in range(numbers.ndim) if not product.shared <= axis < rank]
    return numbers.reshape([numbers.shape[axis] for axis in kept])


def with_weights(product: Product, numbers: Array, function: np.ufunc) -> Product:
    """Applies a function to the known operand of a product and numbers of the sums."""
    own = columns(product, numbers)
    b = product.b
    own = own.reshape((*own.shape, *(1 for _ in b.term.access.item))) if own.ndim else own
    (back,) = pulled_back(b, [own], "weights")
    leaves = {}
    for stand_in, leaf in b.leaves.items():
        if not isinstance(leaf, Known):
            raise BadInput("factors that differ from column to column require known weights")
        leaves[stand_in] = replace(leaf, values=function(leaf.values, back[stand_in].astype(np.int64)))
    return replace(product, b=b.with_leaves(leaves))


def value_of(value: Affine, given: Mapping[str, Array]) -> Array:
    """Returns the integers and their shift, int64, from values of the stand-ins of bytes minus their zero point, by
    name.
    """
    values = dict(given)
    done: dict[Term, Term] = {}
    for stand_in, leaf in value.moved.leaves.items():
        if isinstance(leaf, Product):
            values |= {t: v for moved in (leaf.a, leaf.b) for t, v in known_values(moved).items()}
            dot = build("compute", "dot-product", build("access-product", leaf.a.term, leaf.b.term, leaf.shared))
            done[stand_in] = split_at(dot, 0)
    (term,) = rebuild_all([value.moved.term], lambda *_: None, done)
    (found,) = evaluate([term], values)
    made: Array = np.asarray(found).astype(np.int64) + np.rint(value.shift).astype(np.int64)
    return made


def known_values(moved: Moved) -> dict[str, Array]:
    """Returns the values of known stand-ins, by name."""
    return {
        name_in(stand_in): leaf.values.astype(np.int32, copy=False)
        for stand_in, leaf in moved.leaves.items()
        if isinstance(leaf, Known)
    }
