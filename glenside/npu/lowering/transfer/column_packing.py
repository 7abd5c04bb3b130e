"""Packs tiles of few columns side by side, so that they share rows of parameters: a store reads a row for all columns.

A depthwise tile computes some positions of some channels, in few columns, and each channel has its own parameters. A
row of parameters in DRAM has entries for all columns, so tiles that leave most of them unused share a row.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from glenside.analysis.element_sources import Places
from glenside.ir.operand import Array
from glenside.npu.lowering.tiling.layer_tiles import Layer
from glenside.npu.lowering.transfer.sparse_weight_loads import spreadings
from glenside.npu.machine.model import HALVES, Machine

_ROW_SHARE = 4
"""Groups are shifted after they have used 1/4 of the rows of parameters."""


def abreast(layer: Layer, parameters: Array, machine: Machine) -> Layer:
    """Returns the layer with columns of several groups side by side, if that saves more beats of parameters than it
    costs beats of permutation tables. `parameters` are the parameter numbers of elements, which broadcast to (dims).
    """
    every = np.broadcast_to(parameters, layer.elements.shape)
    line, column, entry = (own.reshape(-1) for own in (*layer.lines(), every))
    there = layer.elements.reshape(-1) > 0
    line, column, entry = line[there], column[there], entry[there]
    m, groups = layer.product.rows.numbers.shape[1], len(layer.groups)
    if not len(line) or not _differ(line, entry):
        return layer
    first, last = int(column.min()), int(column.max()) + 1
    several = _best(layer, groups, machine.columns // (last - first), machine)
    if several == 1:
        return layer
    block = max(1, min(machine.parameters // _ROW_SHARE, -(-groups // several)))
    offset = np.arange(groups) // block % several * (last - first) - first
    return _shifted(layer, offset, line // m, there)


def _differ(line: Array, entry: Array) -> bool:
    """True if columns of a row of sums have different parameters."""
    order = np.argsort(line, kind="stable")
    line, entry = line[order], entry[order]
    return bool(((line[1:] == line[:-1]) & (entry[1:] != entry[:-1])).any())


def _best(layer: Layer, groups: int, most: int, machine: Machine) -> int:
    """Returns the best number of groups that share a row of parameters; each shared position requires its own
    permutation tables.
    """
    if most <= 1 or groups <= 1:
        return 1
    spread = spreadings(machine).of_all(layer)
    tables = len({table for own in spread if own is not None for _, table in own.steps}) + HALVES
    every = range(1, min(most, groups, max(1, machine.tables // tables)) + 1)
    return min(every, key=lambda n: -(-groups // n) * machine.parameter_beats + n * tables * machine.table_beats)


def _shifted(layer: Layer, offset: Array, group: Array, there: Array) -> Layer:
    """Shifts the columns of each group by its offset; `group` has the group of each element in `there`."""
    weights, elements = layer.product.weights, layer.elements.reshape(-1).copy()
    elements[there] += offset[group]
    moved = weights.numbers.copy()
    for number, own in enumerate(layer.groups):
        moved[list(own.tiles)] = np.roll(weights.numbers[list(own.tiles)], int(offset[number]), axis=2)
    product = replace(layer.product, weights=Places(moved, weights.first))
    return replace(layer, product=product, elements=elements.reshape(layer.elements.shape))
