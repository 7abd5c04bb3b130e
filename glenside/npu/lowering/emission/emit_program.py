"""Emits networks as int8 programs of the machine, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from glenside.analysis.element_sources import leaves_of
from glenside.analysis.layers import product_sizes
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.program import Program, is_product
from glenside.ir.stopwatch import stage
from glenside.ir.term import Term, build, constants_under, nearest, rebuild_all
from glenside.ir.types import Dims, Tensor
from glenside.npu.isa.fields import Wait
from glenside.npu.lowering.emission.emit_int32_results import SumsOut
from glenside.npu.lowering.emission.emit_layer import Feed, Writer
from glenside.npu.lowering.emission.infer_synchronization_forked import ForkedWaits
from glenside.npu.lowering.emission.row_sources import Copied
from glenside.npu.lowering.tiling.layer_tiles import Layer
from glenside.npu.lowering.tiling.tile_order import Order
from glenside.npu.lowering.transfer.dram_operands import Tiles, arranged
from glenside.npu.machine.model import Machine
from glenside.npu.model.cycle_model import times
from glenside.npu.model.infer_synchronization import replaced, waiting
from glenside.npu.program.program import NpuProgram, Place, Stretch

Filled = list[tuple[Place, Array]]
"""Initial contents of DRAM, beside weights, tables and parameters: places and values."""


def lowered(
    mapped: Program,
    written: Program,
    machine: Machine,
    seed: int = 0,
    show: Callable[[str, int, int], None] = lambda *_: None,
) -> NpuProgram:
    """Emits each layer of a mapped program on operands of its own: int8, drawn by the seed; sums are int32.

    written the program before mapping, whose layers define what those of `mapped` compute

    A layer without elements, of empty sums, or of constants alone has no instructions.

    Raises BadInput for a layer that the machine cannot run, with its name and the reason.
    """
    writer, draw = Writer(machine), np.random.default_rng(seed)
    stretches, filled = list[Stretch](), Filled()
    constant = constants_under(*mapped.layers.values())
    for number, (name, term) in enumerate(mapped.layers.items()):
        show(name, number, len(mapped.layers))
        if not product_sizes(written.layers[name]).macs or constant[term]:
            continue
        begin = counted(writer)
        try:
            layer = Layer.of(term, machine, {*mapped.layers.values()} - {term})
            stretch, own = _alone(writer, layer, mapped, written, name, draw)
        except BadInput as error:
            raise BadInput(f"the layer {name}: {error}") from error
        macs = product_sizes(written.layers[name]).macs
        stretches.append(replace(stretch, name=name, begin=begin, end=counted(writer), macs=macs))
        filled += own
    return finished(writer, stretches, filled)


def finished(
    writer: Writer,
    stretches: list[Stretch],
    filled: Filled,
    inputs: Mapping[str, Place] | None = None,
    outputs: Mapping[str, Place] | None = None,
    beside: ForkedWaits | None = None,
) -> NpuProgram:
    """Builds the program from the emitted instructions: infers its waits, unless they are known, and predicts its
    cycles.
    """
    dram = writer.image.bytes()
    for place, values in filled:
        place.write(dram, values)
    made = NpuProgram(writer.machine, {}, dram, inputs or {}, outputs or {}, tuple(stretches))
    with stage("infer synchronization"):
        queues = None if beside is None else beside.queues()
        made = replace(made, queues=queues or waiting(made, [*writer.written]))
    with stage("predict"):
        return replace(made, predicted=times(made).cycles)


def counted(writer: Writer) -> dict[str, int]:
    """Returns the number of instructions of each unit so far."""
    return dict(writer.counts)


def _alone(
    writer: Writer, layer: Layer, mapped: Program, written: Program, name: str, draw: np.random.Generator
) -> tuple[Stretch, Filled]:
    """Emits a layer on operands of its own. Returns its stretch and the operands' values."""
    rows, weights = layer.product.rows, layer.product.weights
    machine = writer.machine
    order = Order(layer, machine, machine.half_depth, (0, machine.half_depth))
    leaves = [*dict.fromkeys((*rows.first, *weights.first))]
    values = {leaf: draw.integers(-128, 128, tuple(leaf.access.dims)).astype(np.int8) for leaf in leaves}
    tiles = Tiles.known(writer.image, layer, values)
    addresses = np.full(1 + sum(leaf.access.size for leaf in rows.first), -1)
    places, filled = {leaf: Place.of(tiles.of(leaf), "int8") for leaf in weights.first}, Filled()
    for leaf, first in rows.first.items():
        own = arranged(order, leaf)
        own = writer.image.room(int(own.max(initial=-1)) + 1) + own
        addresses[first : first + leaf.access.size] = own.ravel()
        places[leaf] = Place.of(own, "int8")
        filled.append((places[leaf], values[leaf]))
    sums = SumsOut(writer, layer)
    feed = Feed(tiles.brought)
    writer.layer(layer, Copied(writer, order, feed, addresses), feed, sums)
    names = {leaf: f"operand{n}" for n, leaf in enumerate(leaves)}
    meaning = _meaning(mapped, written, name, names)
    operands = {names[leaf]: place for leaf, place in places.items()}
    return Stretch("", {}, {}, meaning, operands, Place.of(sums.addresses, "int32")), filled


def _meaning(mapped: Program, written: Program, name: str, names: Mapping[Term, str]) -> str:
    """Returns the text of a program: the integer product of a layer as written; `names` are of its mapped operands."""
    product = written.layers[name]
    if not is_product(product):
        raise BadInput("it is not a product in the unmapped program")
    leaves = leaves_of(product.children[0], {*written.layers.values()} - {product})
    pairs = _pairs(_operands(leaves, written), _operands([*names], mapped))
    stand_ins = {leaf: stand_in(names[other], leaf) for leaf, other in pairs.items()}
    (term,) = rebuild_all([product], lambda _, __: None, stand_ins)
    return str(Program(term))


def stand_in(name: str, leaf: Term, dtype: str = "int8") -> Term:
    """Returns a tensor in place of a term."""
    return build("access", build("access-tensor", Tensor(name, leaf.access.dims, dtype)), leaf.access.split)


Operands = Mapping[Term, tuple[Sequence[str], Dims]]
"""The operands of a product: the names of the layers and tensors that each is computed from, and its dims."""


def _operands(leaves: Sequence[Term], program: Program) -> Operands:
    names = {term: name for name, term in program.layers.items()}

    def key(leaf: Term) -> tuple[Sequence[str], Dims]:
        below = nearest(leaf, stops=lambda term: term in names or not term.children)
        return sorted(names.get(term, str(term)) for term in below), leaf.access.dims

    return {leaf: key(leaf) for leaf in leaves}


def _pairs(written: Operands, mapped: Operands) -> dict[Term, Term]:
    """Pairs the operands of a product with those of its mapped form, which may have them in another order.

    Pairs equal terms, then operands computed from the same layers, then others of the same dims, in order. Raises
    BadInput if they do not match.
    """
    found: dict[Term, Term] = {}
    ways: Sequence[Callable[[Term, Term], bool]] = (
        lambda leaf, other: leaf == other,
        lambda leaf, other: written[leaf] == mapped[other],
        lambda leaf, other: leaf.access.dims == other.access.dims,
    )
    for is_same in ways:
        for leaf in [own for own in written if own not in found]:
            rest = (other for other in mapped if other not in found.values() and is_same(leaf, other))
            if (other := next(rest, None)) is not None:
                found[leaf] = other
    if not len(found) == len(written) == len(mapped):
        raise BadInput("its mapped form has other operands")
    return found


def without_dma(program: NpuProgram, stretch: Stretch) -> int:
    """Returns the cycles of a layer's loads and streams without waits."""
    queues = {unit: tuple(replaced(own, Wait()) for own in stretch.of(program, unit)) for unit in ("load", "stream")}
    return times(NpuProgram(program.machine, queues, program.dram)).cycles
