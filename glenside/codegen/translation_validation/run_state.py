"""The state of a run: its scope, and the needed elements of the buffers that the nest writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from glenside.codegen.translation_validation.element_indices import NotSampled
from glenside.codegen.translation_validation.nest_structure import Node
from glenside.codegen.translation_validation.residue_primitives import Numbers
from glenside.ir.operand import Array


class OutOfBounds(Exception):
    """An access out of bounds, or of an element that is not written; the text says which."""


@dataclass
class Elements:
    """The needed elements of a buffer: arrays (copy)(element), one copy for each step of the loops that own the buffer.

    keys     sorted: sample * size + index
    """

    keys: Array
    values: Array
    written: Array
    known: Array
    claimed: Array

    def put(self, numbers: Numbers, name: str, rows: Array, columns: Array, new: Array, unknown: Array | None) -> None:
        """Combines numbers with elements by primitive `name`; several numbers may belong to one element."""
        flat = rows * self.keys.size + columns
        unique, inverse = np.unique(flat, return_inverse=True)
        rows, columns = np.divmod(unique, self.keys.size)
        if not self.written[rows, columns].all():
            raise OutOfBounds("an accumulator is not initialized")
        if unique.size == flat.size:
            gathered = np.empty(unique.size, new.dtype)
            gathered[inverse] = new
        elif name == "multiply":
            raise NotSampled("one element is multiplied several times")
        elif name == "add":
            kind = np.float64 if new.dtype.kind == "f" else new.dtype
            gathered = np.zeros(unique.size, kind)
            np.add.at(gathered, inverse, new)
            gathered = numbers.reduced(gathered) if new.dtype.kind == "f" else gathered
        else:
            gathered = np.full(unique.size, numbers.neutral(name, new), new.dtype)
            (np.maximum if name == "max" else np.minimum).at(gathered, inverse, new)
        self.values[rows, columns] = numbers.join(name, self.values[rows, columns], gathered)
        if unknown is not None and unknown.any():
            self.known[rows[inverse[unknown]], columns[inverse[unknown]]] = False


@dataclass
class Scope:
    """The state at a statement.

    counters  loop number -> steps, over all loops that run at once and, as last axis, all samples
    axes      the loops that run at once, innermost first, with their numbers of steps
    mask      the steps at which the statement runs; None: all
    """

    counters: dict[int, Array]
    axes: tuple[tuple[Node, int], ...]
    mask: Array | None
    locals: dict[str, tuple[Array, int, Array | None]] = field(default_factory=dict)


def both(a: Array | None, b: Array | None) -> Array | None:
    """Returns the conjunction of two masks; None: everywhere."""
    if a is None or b is None:
        return b if a is None else a
    return np.asarray(a & b)


def either(a: Array | None, b: Array | None) -> Array | None:
    """Returns the disjunction of two masks; None: nowhere."""
    if a is None or b is None:
        return b if a is None else a
    return np.asarray(a | b)


def masked(scope: Scope, held: Array) -> Scope:
    """Returns a scope restricted to a mask."""
    return Scope(scope.counters, scope.axes, both(scope.mask, held), scope.locals)


def squeezed(a: Array, axes: Sequence[int]) -> Array:
    """Returns an array without the given axes, which have one element each."""
    return a.reshape(tuple(n for i, n in enumerate(a.shape) if i not in axes))
