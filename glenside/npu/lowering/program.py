"""Networks as programs of the machine, layer by layer, on integers of 8 bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from dataclasses import replace
from typing import Any

import numpy as np

from glenside.analysis.places import leaves_of
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, build, rebuild_all
from glenside.ir.types import Tensor
from glenside.npu.instructions import UNITS, Instruction, Wait
from glenside.npu.lowering.filling import steps
from glenside.npu.lowering.layers import Writer
from glenside.npu.lowering.runs import Rows
from glenside.npu.lowering.tiles import Layer
from glenside.npu.machine import Machine
from glenside.npu.program import NpuProgram, Place, Stretch
from glenside.npu.timing import times
from glenside.npu.waits import waiting

_SOME = 1 << 16
"""Elements of rows by which the order of an operand in DRAM is chosen."""


def lowered(
    mapped: Program,
    written: Program,
    machine: Machine,
    seed: int = 0,
    show: Callable[[str, int, int], None] = lambda *_: None,
) -> NpuProgram:
    """The layers of a mapped program, each on operands of its own: int8, drawn by the seed; their sums are int32.

    written  the program that was mapped, whose layers say what those of `mapped` compute

    Raises BadInput: a layer that the machine does not run, by its name and why.
    """
    writer, draw = Writer(machine), np.random.default_rng(seed)
    stretches, filled = list[Stretch](), list[tuple[Place, Array]]()
    for number, (name, term) in enumerate(mapped.layers.items()):
        show(name, number, len(mapped.layers))
        begin = _counted(writer)
        try:
            layer = Layer.of(term, machine, {*mapped.layers.values()} - {term})
            stretch, own = _layer(writer, layer, written, name, draw)
        except BadInput as error:
            raise BadInput(f"the layer {name}: {error}") from error
        stretches.append(replace(stretch, name=name, begin=begin, end=_counted(writer)))
        filled += own
    dram = writer.image.bytes()
    for place, values in filled:
        place.write(dram, values)
    made = NpuProgram(machine, {}, dram, stretches=tuple(stretches))
    made = replace(made, queues=waiting(made, writer.written))
    return replace(made, predicted=times(made).cycles)


def _counted(writer: Writer) -> dict[str, int]:
    """Instructions of each unit until now."""
    found = Counter(instruction.unit for instruction in writer.written)
    return {unit: found[unit] for unit in UNITS}


def _layer(
    writer: Writer, layer: Layer, written: Program, name: str, draw: np.random.Generator
) -> tuple[Stretch, list[tuple[Place, Array]]]:
    """A layer's instructions, and what its operands hold."""
    rows, weights = layer.product.rows, layer.product.weights
    constant = {leaf: draw.integers(-128, 128, leaf.access.size).astype(np.int8) for leaf in weights.first}
    addresses = np.full(1 + sum(leaf.access.size for leaf in rows.first), -1)
    filled = []
    for leaf, first in rows.first.items():
        size, dims = leaf.access.size, tuple(leaf.access.dims)
        own = _arranged(layer, leaf, writer.image.room(size), writer.machine)
        addresses[first : first + size] = own.ravel()
        filled.append((Place.of(own, "int8"), draw.integers(-128, 128, dims).astype(np.int8)))
    result = writer.layer(layer, constant, addresses)
    leaves = [*rows.first, *weights.first]
    where = [place for place, _ in filled] + _weights(writer, layer)
    names = [f"operand{n}" for n in range(len(leaves))]
    others = {*written.layers.values()} - {written.layers[name]}
    meaning = _meaning(written.layers[name], others, leaves, names)
    return Stretch("", {}, {}, meaning, dict(zip(names, where, strict=True)), Place.of(result, "int32")), filled


def _arranged(layer: Layer, leaf: Term, base: int, machine: Machine) -> Array:
    """The addresses of an operand's elements, (dims), with that axis innermost for which lanes fill soonest."""
    dims = tuple(leaf.access.dims)
    elements = layer.product.rows.numbers
    first = layer.product.rows.first[leaf]
    some = Rows(layer).numbers[: max(1, _SOME // elements.shape[-1])]
    row, lane = np.nonzero((some >= first) & (some < first + leaf.access.size))
    wanted = some[row, lane] - first

    def arranged(axis: int) -> Array:
        order = [*(other for other in range(len(dims)) if other != axis), axis]
        found = np.arange(leaf.access.size).reshape([dims[each] for each in order])
        return base + found.transpose(np.argsort(order))

    def taken(axis: int) -> int:
        return steps(arranged(axis).ravel()[wanted], lane, row, machine.bandwidth)

    axes = [axis for axis, size in enumerate(dims) if size > 1]
    return arranged(min(reversed(axes), key=taken)) if axes else base + np.zeros(dims, np.int64)


def _weights(writer: Writer, layer: Layer) -> list[Place]:
    """Where the elements of what stays are: in a row of some tile; -1 of those that no tile has."""
    numbers, first = layer.product.weights.numbers, layer.product.weights.first
    found = np.full(1 + sum(leaf.access.size for leaf in first), -1)
    width = writer.machine.weight_beats * writer.machine.bandwidth
    for tile, (base, count) in writer.tiles.items():
        rows = numbers[tile, :count]
        place = base + np.arange(rows.shape[0])[:, None] * width + np.arange(rows.shape[1])
        found[rows] = place
    return [
        Place.of(found[begin : begin + leaf.access.size].reshape(tuple(leaf.access.dims)), "int8")
        for leaf, begin in first.items()
    ]


def _meaning(product: Term, others: Container[Term], leaves: list[Term], names: list[str]) -> str:
    """The product as it was written, of integers: the text of a program."""
    if not is_product(product):
        raise BadInput("it was no product before it was mapped")
    stand_ins: dict[Term, Term] = {}
    for leaf, other in _same(leaves_of(product.children[0], others), leaves):
        tensor = Tensor(names[leaves.index(other)], leaf.access.dims, "int8")
        stand_ins[leaf] = build("access", build("access-tensor", tensor), leaf.access.split)
    (term,) = rebuild_all([product], lambda _, __: None, stand_ins)
    return str(Program(term))


def _same(written: list[Term], mapped: list[Term]) -> list[tuple[Term, Term]]:
    """The operands of a product, and those of what it became: the same terms, others in their order. Raises BadInput
    where they are not.
    """
    others = [[leaf for leaf in own if leaf not in rest] for own, rest in ((written, mapped), (mapped, written))]
    if [leaf.access.dims for leaf in others[0]] != [leaf.access.dims for leaf in others[1]]:
        raise BadInput("it reads other operands than before it was mapped")
    return [(leaf, leaf) for leaf in written if leaf in mapped] + list(zip(*others, strict=True))


def without_dma(program: NpuProgram, stretch: Stretch) -> int:
    """Cycles of a layer's tiles where all that they read is there, and nobody waits for what they write."""
    queues = {unit: tuple(map(_alone, stretch.of(program, unit))) for unit in ("load", "stream")}
    return times(NpuProgram(program.machine, queues, program.dram)).cycles


def _alone(instruction: Any) -> Instruction:
    return replace(instruction, wait=Wait())  # type: ignore[no-any-return]
