"""Packs requantization parameters into rows with one parameter for each column."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from glenside.ir.operand import Array
from glenside.npu.lowering.util.fast_unique import placed
from glenside.npu.machine.model import HALVES, Machine
from glenside.npu.program import requantization


def distinct_parameters(every: Array) -> tuple[Array, Array]:
    """Returns the distinct parameters, and the number of each. Axes along which all are equal have size 1."""
    few = every
    for axis, size in enumerate(every.shape):
        first = few[(slice(None),) * axis + (slice(0, 1),)]
        if size > 1 and all((few[name] == first[name]).all() for name in _COUNTING):
            few = first
    found, which = _distinct(few.reshape(-1))
    return found, which.reshape(few.shape)


def as_seen(entry: Array) -> tuple[Array, Array]:
    """Renumbers entries in order of appearance, so that similar layers have equal numbers; also returns each new
    number's old one.
    """
    _, first, which = placed(entry.reshape(-1))
    order = np.argsort(first)
    new = np.empty_like(order)
    new[order] = np.arange(len(order))
    return new[which].reshape(entry.shape), order


_COUNTING = tuple(name for name in requantization.PARAMETER.names or () if name != "unused")


def _distinct(parameters: Array) -> tuple[Array, Array]:
    """Returns distinct records and the number of each, as `numpy.unique` does, field by field."""
    first, found = np.zeros(1, np.int64), np.zeros(len(parameters), np.int64)
    for name in _COUNTING:
        own = parameters[name]
        if len(own) and (own != own[0]).any():
            values, which = np.unique(own, return_inverse=True)
            _, first, found = placed(found * len(values) + which)
    return parameters[first], found


def ends_of(entry: Array, begins: Array) -> tuple[Array, Array]:
    """Returns the least and the greatest entry of each item; items begin at `begins`."""
    return np.minimum.reduceat(entry, begins), np.maximum.reduceat(entry, begins)


def rows_of(entry: Array, count: int, column: Array, begins: Array, machine: Machine) -> tuple[Array, Array, Array]:
    """Packs the entries of items into rows of parameters; item i begins at `begins[i]`.

    Returns for each item the column whose entry all its columns use, or -1, and its row; and the entries of all rows,
    (rows)(C). `count` is the number of distinct entries.
    """
    width = machine.columns
    low, high = ends_of(entry, begins)
    alike = np.where(low == high, low % width, -1)
    found, known = _Rows(width, machine.parameters // HALVES), dict[object, int]()
    content = np.zeros(len(begins), int)
    for item, (begin, end) in enumerate(pairwise([*begins.tolist(), len(entry)])):
        which: object = int(low[item]) // width
        if alike[item] < 0:
            which = entry[begin:end].tobytes(), column[begin:end].tobytes()
        if which in known:
            content[item] = known[which]
            continue
        if alike[item] < 0:
            own = found.any(column[begin:end], entry[begin:end])
        else:
            first = low[item] // width * width
            every = np.arange(first, min(first + width, count))
            own = found.new(every - first, every)
        content[item] = known[which] = own
    return alike, content, np.array(found.rows, np.int64).reshape(-1, width)


class _Rows:
    """Rows of parameters, as the number of the entry in each column, -1 for a free column. A row is shared by items
    whose columns agree; only the last `most` rows are searched.
    """

    def __init__(self, width: int, most: int) -> None:
        self.width, self.most = width, max(1, most)
        self.rows: list[Array] = []

    def any(self, columns: Array, entries: Array) -> int:
        """Returns a row in which these columns have these entries."""
        first = max(0, len(self.rows) - self.most)
        if len(self.rows) > first:
            there = np.stack(self.rows[first:])[:, columns]
            fits = ((there == entries) | (there < 0)).all(axis=1)
            if fits.any():
                found = first + int(fits.argmax())
                self.rows[found][columns] = entries
                return found
        return self.new(columns, entries)

    def new(self, columns: Array, entries: Array) -> int:
        """Adds a row of its own."""
        row = np.full(self.width, -1)
        row[columns] = entries
        self.rows.append(row)
        return len(self.rows) - 1
