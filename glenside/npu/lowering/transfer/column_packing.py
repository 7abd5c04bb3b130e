"""Tiles of few columns beside each other, so that rows of parameters are of several: stores take a row of all columns.

Depthwise tiles make some places of some channels, a few columns of which each channel has its own parameters. A row of
parameters comes from DRAM with entries of all columns, so tiles that leave most of them alone take others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from glenside.analysis.element_sources import Places
from glenside.ir.operand import Array
from glenside.npu.lowering.tiling.layer_tiles import Layer
from glenside.npu.lowering.transfer.sparse_weight_loads import spreadings
from glenside.npu.machine.model import HALVES, Machine

_PARTS = 4
"""What part of the rows of parameters is taken from end to end before groups go on with others."""


def abreast(layer: Layer, parameters: Array, machine: Machine) -> Layer:
    """The layer with columns of its groups beside those of others, where that spares more beats of parameters than it
    takes of lane tables; `parameters` are numbers of those that elements have, which broadcast to (dims): equal ones
    are alike.
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
    block = max(1, min(machine.parameters // _PARTS, -(-groups // several)))
    offset = np.arange(groups) // block % several * (last - first) - first
    return _shifted(layer, offset, line // m, there)


def _differ(line: Array, entry: Array) -> bool:
    """Whether columns of a row of sums have several parameters."""
    order = np.argsort(line, kind="stable")
    line, entry = line[order], entry[order]
    return bool(((line[1:] == line[:-1]) & (entry[1:] != entry[:-1])).any())


def _best(layer: Layer, groups: int, most: int, machine: Machine) -> int:
    """Returns the number of groups that share a row of parameters; each position of their columns has its own
    permutation tables.
    """
    if most <= 1 or groups <= 1:
        return 1
    spread = spreadings(machine).of_all(layer)
    tables = len({table for own in spread if own is not None for _, table in own.steps}) + HALVES
    every = range(1, min(most, groups, max(1, machine.tables // tables)) + 1)
    return min(every, key=lambda n: -(-groups // n) * machine.parameter_beats + n * tables * machine.table_beats)


def _shifted(layer: Layer, offset: Array, group: Array, there: Array) -> Layer:
    """The layer with columns of each group that much further; `group` is that of each element that is there."""
    weights, elements = layer.product.weights, layer.elements.reshape(-1).copy()
    elements[there] += offset[group]
    moved = weights.numbers.copy()
    for number, own in enumerate(layer.groups):
        moved[list(own.tiles)] = np.roll(weights.numbers[list(own.tiles)], int(offset[number]), axis=2)
    product = replace(layer.product, weights=Places(moved, weights.first))
    return replace(layer, product=product, elements=elements.reshape(layer.elements.shape))
