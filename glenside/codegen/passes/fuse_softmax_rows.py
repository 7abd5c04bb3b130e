"""Fuses matrix product, row softmax and second product (attention) into blocks of rows.

The matrix between them is never whole in memory. Results are bit-identical, because softmax needs whole rows and no
more. The cost model chooses the rows per block, and whether to fuse.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from math import prod

from glenside.codegen.cost.count_work import predicted_time_alone
from glenside.codegen.loop_ir.accesses import used_buffers
from glenside.codegen.loop_ir.affine_analysis import at, changed, coefficient, loads_in, substituted, with_loads
from glenside.codegen.loop_ir.compute_block import Block
from glenside.codegen.loop_ir.ir import (
    Buffer,
    For,
    Formula,
    Let,
    Load,
    Nest,
    Packing,
    Role,
    Statement,
    Way,
)
from glenside.codegen.loop_ir.module import Module
from glenside.codegen.loop_ir.nest_builder import around
from glenside.codegen.loop_ir.open_axes import axis_of, is_open
from glenside.codegen.loop_ir.structural_hash import alike
from glenside.codegen.loop_ir.substitute_buffers import renamed
from glenside.codegen.passes.fuse_producer_consumer import along, axes_of, in_turn, pairs
from glenside.codegen.processor.model import Machine
from glenside.codegen.scheduling.open_pieces import Piece, blocks_of
from glenside.codegen.scheduling.select_schedule import scheduled
from glenside.codegen.scheduling.softmax_template import Softmax
from glenside.codegen.scheduling.tile_partition import rows_of
from glenside.ir.index_map import Axis, Index
from glenside.ir.types import Dims

_ROWS = (16, 32, 64, 128, 256)
"""Candidate rows per block; the blocks of one nest differ by one row at most."""
_OPEN_ROWS = (32, 128)
"""The same where the number of rows is open."""
_TIE_RATIO = 1.02
"""Predicted times within this ratio of the best count as equal: then the fewest rows win, as they need least memory."""
_MIN_PARALLEL_STEPS = 4
"""Minimum steps of the loops outside the blocks of rows to parallelize them, so that several threads have work."""


@dataclass(frozen=True)
class _Chain:
    """A product that fills a matrix, the softmax of its rows, and the product that reads the softmax.

    blocks   the three blocks
    nests    their nests, after the nests that pack their operands
    matrix   the buffer between the product and the softmax
    rows     for each block the axis that is cut into blocks of rows
    others   further axes that all three blocks share, such as heads
    """

    blocks: tuple[Block, Softmax, Block]
    nests: tuple[Nest, ...]
    matrix: Buffer
    rows: tuple[Axis, Axis, Axis]
    others: tuple[tuple[Axis, Axis, Axis], ...]


def fuse_softmax_rows(module: Module, machine: Machine) -> Module:
    """Fuses a product, the softmax of its rows and the product that reads it, where this is predicted to be faster."""
    nests = module.nests
    blocks = {number: nest.block for number, nest in enumerate(nests) if isinstance(nest.block, Block)}
    softmaxes = {number: nest.block for number, nest in enumerate(nests) if isinstance(nest.block, Softmax)}
    found: dict[int, list[Nest]] = {}
    dropped: list[Packing] = []
    added: list[Packing] = []
    known: dict[Hashable, int | None] = {}
    users: dict[Buffer, list[int]] = {}
    for number, nest in enumerate(nests if softmaxes else ()):
        for buffer in {*used_buffers(nest.body)}:
            users.setdefault(buffer, []).append(number)
    for number, softmax in softmaxes.items():
        ends = _producer_and_consumer(number, softmax, users, blocks)
        if ends is None:
            continue
        matrix, first, last = ends
        old = [p for end in (first, last) for p in nests[end].packings]
        filled = {p.buffer for p in old if p.source.role is not Role.CONSTANT}
        own = [i for i, nest in enumerate(nests) if i in (first, number, last) or nest.buffer in filled]
        chain = _chain((blocks[first], softmax, blocks[last]), tuple(nests[i] for i in own), matrix)
        best = None if chain is None else _best_blocks(chain, machine, known)
        if best is None:
            continue
        found |= {i: [] for i in own} | {last: best[0]}
        dropped += old
        added += best[1]
    kept = [own for number, nest in enumerate(nests) for own in found.get(number, [nest])]
    return module.rescheduled(kept, dropped, added)


def _best_blocks(
    chain: _Chain, machine: Machine, known: dict[Hashable, int | None]
) -> tuple[list[Nest], list[Packing]] | None:
    """Returns the chain fused over the blocks of rows with the least predicted time; None if unfused is as fast.

    `known` memoizes the rows per block of structurally equal chains.
    """
    key, _ = alike([statement for nest in chain.nests for statement in nest.body])
    if key not in known:
        known[key] = _best_rows(chain, machine)
    rows = known[key]
    return None if rows is None else _blocks(chain, rows, machine)


def _best_rows(chain: _Chain, machine: Machine) -> int | None:
    """Returns the fewest rows per block within `_TIE_RATIO` of the least predicted time; None if fusing is slower."""
    whole = predicted_time_alone(chain.nests, machine)
    every = _OPEN_ROWS if is_open(chain.rows[0].size) else _ROWS
    options = [(rows, option[0]) for rows in every if (option := _blocks(chain, rows, machine)) is not None]
    predicted = {rows: predicted_time_alone(nests, machine) for rows, nests in options}
    least = min(predicted.values(), default=whole)
    return next((rows for rows, own in predicted.items() if own < whole and own <= _TIE_RATIO * least), None)


def _producer_and_consumer(
    number: int, softmax: Softmax, users: Mapping[Buffer, Sequence[int]], blocks: Mapping[int, Block]
) -> tuple[Buffer, int, int] | None:
    """Returns the operand matrix of a softmax, the nest that fills it, and the nest that reads the softmax.

    None if another nest uses either buffer, or one of the two nests is no floating-point product.
    """
    given = dict.fromkeys(load.buffer for load in loads_in(softmax.element) if load.buffer.role is Role.TEMPORARY)
    matrix = max(given, key=lambda buffer: buffer.bytes, default=None)
    if matrix is None or softmax.buffer.role is not Role.TEMPORARY:
        return None
    if len(users[matrix]) != 2 or len(users[softmax.buffer]) != 2:
        return None
    (first, second), (third, last) = users[matrix], users[softmax.buffer]
    if second != number or third != number:
        return None
    if not all(end in blocks and _is_product(blocks[end]) for end in (first, last)):
        return None
    return matrix, first, last


def _is_product(block: Block) -> bool:
    dtypes = [joined.local.dtype for joined in block.joined]
    return not block.beside and dtypes in (["float32"], ["float64"])


def _chain(blocks: tuple[Block, Softmax, Block], nests: tuple[Nest, ...], matrix: Buffer) -> _Chain | None:
    """Returns the chain with the axes that its three blocks share; None if no shared axis reuses the other operand."""
    first, softmax, last = blocks
    meets = dict(pairs(softmax, last, softmax.buffer))
    every = [(begin, own, meets[own]) for begin, own in pairs(first, softmax, matrix) if own in meets]
    rows = [axes for axes in every if _shares_an_operand(first, axes[0]) and _shares_an_operand(last, axes[2])]
    if not rows:
        return None
    most = max(rows, key=lambda axes: axes[0].size)
    return _Chain(blocks, nests, matrix, most, tuple(axes for axes in every if axes is not most))


def _shares_an_operand(block: Block, axis: Axis) -> bool:
    (joined,) = block.joined
    return any(not coefficient(load.place, axis) for load in loads_in(joined.element))


def _blocks(chain: _Chain, rows: int, machine: Machine) -> tuple[list[Nest], list[Packing]] | None:
    """Returns nests that compute a chain at most `rows` rows at a time, and their packings; None if impossible."""
    pieces = _pieces(chain.rows[0].size, rows, machine)
    if not pieces:
        return None
    numbers = count(1 + max(axis.number for block in chain.blocks for axis in axes_of(block)))
    outer = [axis_of(next(numbers), axes[0].size) for axes in chain.others]
    packings: dict[object, Packing] = {}
    loops: list[For] = []
    for piece in pieces:
        band = Axis(next(numbers), *piece[2:])
        body: list[Statement] = []
        for block in _blocks_of_step(chain, piece, band, outer, numbers):
            statements = _statements(block, numbers, machine, packings)
            if statements is None:
                return None
            body += statements
        loops.append(For(band, tuple(map(in_turn, body))))
    outer = sorted((axis for axis in outer if axis.size != 1), key=lambda axis: -axis.size)
    if outer and prod(axis.size for axis in outer) >= _MIN_PARALLEL_STEPS:
        made = [replace(loop, way=Way.PARALLEL) for loop in around(outer, loops) if isinstance(loop, For)]
    else:
        made = [replace(loop, body=tuple(around(outer, loop.body)), way=Way.PARALLEL) for loop in loops]
    terms = tuple(dict.fromkeys(term for nest in chain.nests for term in nest.terms))
    height = max(height for _, height, *_ in pieces)
    what = ", ".join(nest.what for nest in chain.nests[-3:])
    nest = Nest(f"blocks of {height} rows of {what}", chain.nests[-1].buffer, tuple(made), terms)
    own = list(packings.values())
    others = [p for p in own if p.source.role is not Role.CONSTANT]
    packed = [Nest(f"{p.source} packed", p.buffer, p.statements(), chain.nests[0].terms) for p in others]
    return [*packed, nest], own


def _pieces(size: int, rows: int, machine: Machine) -> list[Piece]:
    """Cuts an axis into blocks of at most `rows` rows; [] if they would be too few or too low."""
    if is_open(size):
        return blocks_of(size, rows, machine)
    pieces = [(*piece, 0) for piece in rows_of(size, rows)]
    return pieces if size >= 2 * rows and pieces[-1][1] >= 2 else []


def _blocks_of_step(
    chain: _Chain, piece: Piece, band: Axis, outer: Sequence[Axis], numbers: Iterator[int]
) -> Iterator[Block | Softmax | None]:
    """Yields the blocks of a chain for one step of the loops around them; the buffers between are thread-private."""
    begin, height, *_ = piece
    between, blocks = _scratch(chain, height), list[Block | Softmax](chain.blocks)
    for number, block in enumerate(blocks):
        own, others = chain.rows[number], [axes[number] for axes in chain.others]
        row = Axis(next(numbers), height)
        here = {axis: at(loop) for axis, loop in zip(others, outer, strict=True)}
        here[own] = at(band) * height + at(row) + begin
        inside = dict.fromkeys(others, Index()) | {own: at(row)}
        moved = _substituted_block(block, here, inside, between)
        axes = tuple(row if axis == own else axis for axis in block.axes if axis not in others)
        if isinstance(moved, Block):
            moved = replace(moved, around=(*outer, band))
        yield None if moved is None else replace(moved, axes=axes)


def _scratch(chain: _Chain, height: int) -> dict[Buffer, Buffer]:
    """Maps each buffer between the blocks of a chain to a scratch buffer of `height` rows.

    The softmax is stored in place over its operand if their indices and dtypes are equal.
    """
    softmax, found = chain.blocks[1], dict[Buffer, Buffer]()
    for number, buffer in enumerate((chain.matrix, softmax.buffer)):
        block, others = chain.blocks[number], [axes[number] for axes in chain.others]
        of = [along(block.place, buffer, n) for n in range(len(buffer.dims))]
        sizes = zip(of, buffer.dims, strict=True)
        dims = Dims(tuple(height if axis == chain.rows[number] else 1 if axis in others else n for axis, n in sizes))
        found[buffer] = Buffer(buffer.name, dims, buffer.dtype, Role.SCRATCH)
    scores, shares = chain.matrix, softmax.buffer
    own = {axes[1]: Index() for axes in chain.others}
    stored = substituted(softmax.place, own)
    place = _within(stored, shares, found[shares])
    loads = {load.place for load in loads_in(softmax.element) if load.buffer is scores}
    above = {_within(substituted(read, own), scores, found[scores]) for read in loads} == {place}
    alike = len(scores.dims) == len(shares.dims) and _within(stored, shares, found[scores]) == place
    if above and alike and scores.dtype == shares.dtype and found[scores].bytes >= found[shares].bytes:
        found[shares] = found[scores]
    return found


def _within(place: Index, whole: Buffer, part: Buffer) -> Index | None:
    """Rewrites an index of buffer `whole` for `part`, in which some dims are shorter; None if a term spans two dims."""
    before, after = ([prod(b.dims[n + 1 :]) for n in range(len(b.dims))] for b in (whole, part))
    terms = []
    for atom, factor in place.terms:
        number = next((n for n, stride in enumerate(before) if 0 < stride <= factor), None)
        if number is None or factor % before[number]:
            return None
        terms.append((atom, factor // before[number] * after[number]))
    return None if place.constant else Index(tuple(terms))


def _substituted_block(
    block: Block | Softmax, here: dict[Axis, Index], inside: dict[Axis, Index], scratch: Mapping[Buffer, Buffer]
) -> Block | Softmax | None:
    """Substitutes a block's axes by `here`, and by `inside` in accesses to buffers of `scratch`; None if it fails."""
    lost: list[Load | Buffer] = []

    def within(buffer: Buffer, place: Index) -> Index:
        found = _within(substituted(place, inside), buffer, scratch[buffer])
        if found is None:
            lost.append(buffer)
        return found or Index()

    def moved(load: Load) -> Load:
        if load.buffer not in scratch:
            return load
        return Load(scratch[load.buffer], within(load.buffer, load.place), load.picked)

    def change(formula: Formula) -> Formula:
        return changed(with_loads(formula, moved), partial(substituted, places=here))

    buffer = scratch.get(block.buffer, block.buffer)
    fills = block.buffer in scratch
    place = within(block.buffer, block.place) if fills else substituted(block.place, here)
    if isinstance(block, Softmax):
        made: Block | Softmax = replace(block, buffer=buffer, place=place, element=change(block.element))
    else:
        joined = tuple(replace(j, element=change(j.element), start=change(j.start)) for j in block.joined)
        made = replace(block, buffer=buffer, place=place, joined=joined, value=change(block.value))
    return None if lost else made


def _statements(
    block: Block | Softmax | None, numbers: Iterator[int], machine: Machine, packings: dict[object, Packing]
) -> list[Statement] | None:
    """Returns the loops of a block; equal packings are shared through `packings`. None if the block has no loops."""
    if block is None or isinstance(block, Softmax):
        return None if block is None else block.statements(numbers, machine)
    made = scheduled(block, numbers, machine)
    if made is None or any(isinstance(statement, Let) for statement in made.statements):
        return None
    names: dict[Buffer, Buffer] = {}
    for packing in made.packings:
        if packing.source.role is Role.SCRATCH:
            return None
        known = packings.setdefault(replace(packing, buffer=packing.source), packing)
        names[packing.buffer] = known.buffer
    return [renamed(statement, names) for statement in made.statements]
