"""Where a run is, and the elements of a nest's own buffers that it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from glenside.codegen.translation_validation.element_indices import NotSampled
from glenside.codegen.translation_validation.nest_structure import Node
from glenside.codegen.translation_validation.residue_primitives import Numbers
from glenside.ir.operand import Array


class OutOfBounds(Exception):
    """An access outside of its buffer, or of what is not written; the text says which."""


@dataclass
class Elements:
    """Of a buffer those that are needed, by their keys in order, for each step of loops that have it for themselves."""

    keys: Array
    values: Array
    written: Array
    known: Array
    claimed: Array

    def put(self, numbers: Numbers, name: str, rows: Array, columns: Array, new: Array, unknown: Array | None) -> None:
        """Join numbers to elements; some of them are of one element."""
        flat = rows * self.keys.size + columns
        unique, inverse = np.unique(flat, return_inverse=True)
        rows, columns = np.divmod(unique, self.keys.size)
        if not self.written[rows, columns].all():
            raise OutOfBounds("sums begin with what is not written")
        if unique.size == flat.size:
            gathered = np.empty(unique.size, new.dtype)
            gathered[inverse] = new
        elif name == "multiply":
            raise NotSampled("products at one place")
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
    """Where a statement is.

    counters  number -> where a loop is: for all steps that are taken at once, and all samples, which are the last axis
    axes      the loops taken at once, the innermost first, and how many of their steps
    mask      where something is done; None is everywhere
    """

    counters: dict[int, Array]
    axes: tuple[tuple[Node, int], ...]
    mask: Array | None
    locals: dict[str, tuple[Array, int, Array | None]] = field(default_factory=dict)


def both(a: Array | None, b: Array | None) -> Array | None:
    """Where both hold; None is everywhere."""
    if a is None or b is None:
        return b if a is None else a
    return np.asarray(a & b)


def either(a: Array | None, b: Array | None) -> Array | None:
    """Where one of them holds; None is nowhere."""
    if a is None or b is None:
        return b if a is None else a
    return np.asarray(a | b)


def masked(scope: Scope, held: Array) -> Scope:
    """The same, only where something holds."""
    return Scope(scope.counters, scope.axes, both(scope.mask, held), scope.locals)


def squeezed(a: Array, axes: Sequence[int]) -> Array:
    """An array without axes that have one element."""
    return a.reshape(tuple(n for i, n in enumerate(a.shape) if i not in axes))
