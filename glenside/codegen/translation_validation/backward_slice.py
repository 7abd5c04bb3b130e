"""Backward slice of a nest: the loop steps that sampled elements need, found backwards from the last statement.

The index of a store is solved for the counters at which it writes a needed element. The elements that the statement
then reads of the nest's own buffers are needed too. Several samples are sliced at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import prod

import numpy as np

from glenside.codegen.loop_ir.ir import (
    Buffer,
    For,
    Let,
    Load,
    Local,
    Sort,
    Store,
    When,
)
from glenside.codegen.translation_validation.element_indices import MOST, NotSampled
from glenside.codegen.translation_validation.nest_structure import Node, Structure, axes_of, loads_of, read_by
from glenside.ir.index_map import Divided, Index
from glenside.ir.operand import Array

_MAX_ROUNDS = 4
"""Maximum passes over the nest, while needs still grow."""


@lru_cache(maxsize=1 << 12)
def _digits(place: Index, sizes: tuple[tuple[int, int], ...]) -> tuple[list[tuple[int, int, int]], list[int], Array]:
    """Splits the counters of an index for solving.

    Returns the counters that division determines, as (number, size, factor), larger factors first; the numbers of the
    other counters, which are enumerated; and the index for each combination of the enumerated counters.
    """
    size_of, bare, tried = dict(sizes), dict[int, int](), set[int]()
    for atom, factor in place.terms:
        if isinstance(atom, Divided):
            tried |= {axis.number for axis in axes_of(atom.expression)}
        else:
            bare[atom.number] = bare.get(atom.number, 0) + factor
    if not {*bare, *tried} <= size_of.keys():
        raise NotSampled("an index whose counter has no loop around it")
    found: list[tuple[int, int, int]] = []
    span = 0
    for number, factor in sorted(bare.items(), key=lambda item: abs(item[1])):
        if number in tried:
            continue
        if abs(factor) <= span:
            tried.add(number)
        else:
            found.append((number, size_of[number], factor))
            span += abs(factor) * (size_of[number] - 1)
    order = sorted(tried)
    count = prod(size_of[n] for n in order)
    if count > MOST:
        raise NotSampled(f"an index with {count:,} combinations of counters")
    counters = dict(zip(order, _grid([size_of[n] for n in order]), strict=True)) | {n: 0 for n, *_ in found}
    return found[::-1], order, np.broadcast_to(np.asarray(place.evaluate(counters), np.int64), (count,))


def merged(*keys: Array) -> Array:
    """Returns the distinct integers of arrays, sorted."""
    found = np.sort(np.concatenate([k.reshape(-1) for k in keys]))
    return found[np.concatenate([[True], found[1:] != found[:-1]])] if found.size else found


def _grid(sizes: Sequence[int]) -> list[Array]:
    flat, found = np.arange(prod(sizes)), []
    for size in reversed(sizes):
        flat, index = np.divmod(flat, max(1, size))
        found.append(index)
    return found[::-1]


def solutions(place: Index, sizes: Mapping[int, int], wanted: Array) -> tuple[Array, dict[int, Array]]:
    """Solves `place` in `wanted`: returns for each solution the position in `wanted`, and number -> counter.

    Raises NotSampled.
    """
    divided, tried, given = _digits(place, tuple(sorted(sizes.items())))
    if wanted.size * given.size > MOST:
        raise NotSampled(f"{wanted.size:,} indices with {given.size:,} combinations of counters each")
    rest = wanted[:, None] - given[None]
    for _, size, factor in divided:
        rest = rest - min(0, factor * (size - 1))
    held = rest >= 0
    counters: dict[int, Array] = {}
    for number, size, factor in divided:
        digit, rest = np.divmod(rest, abs(factor))
        held &= digit < size
        counters[number] = digit if factor > 0 else size - 1 - digit
    held &= rest == 0
    which, how = np.nonzero(held)
    found = {number: digit[which, how] for number, digit in counters.items()}
    for number, values in zip(tried, _grid([sizes[n] for n in tried]), strict=True):
        found[number] = values[how]
    return which, found


def unmoved(places: Array, moves: Array) -> Array:
    """Returns for each index the indices from which each move leads to it. Raises NotSampled."""
    if places.size * moves.size > MOST:
        raise NotSampled(f"{places.size:,} elements with {moves.size:,} computed offsets each")
    return (places[:, None] - moves[None]).reshape(-1)


class Demand:
    """The elements and loop steps of a nest that samples need.

    needs  buffer -> sorted keys of the needed elements: sample * size + index
    steps  loop -> sorted keys of the needed steps: sample * size + step
    whole  loop -> mask of the samples that need all its steps
    """

    def __init__(self, structure: Structure, samples: int, wanted: Mapping[Buffer, tuple[Array, Array]]) -> None:
        self.structure, self.samples = structure, samples
        self.needs: dict[Buffer, Array] = {}
        self.steps: dict[Node, Array] = {}
        self.whole: dict[Node, Array] = {}
        self._claims: dict[Buffer, Array] = {}
        self._seen: dict[Buffer, set[Node]] = {}
        self._again = False
        for buffer, (sample, places) in wanted.items():
            self._need(buffer, sample, places)
        for _ in range(_MAX_ROUNDS):
            before = sum(needed.size for needed in self.needs.values())
            self._seen, self._again = {}, False
            for node in reversed(structure.nodes):
                self._visit(node)
            if not self._again or before == sum(needed.size for needed in self.needs.values()):
                break
        self.claimed = {buffer: np.zeros(needed.size, bool) for buffer, needed in self.needs.items()}
        for buffer, keys in self._claims.items():
            found = self.needs[buffer]
            self.claimed[buffer][np.searchsorted(found, keys)] = True

    @property
    def products(self) -> int:
        """The maximum, over statements, of needed elements times steps of sums."""
        found = 0
        for node in self.structure.every:
            if isinstance(node.statement, Store) and (needed := self.needs.get(node.statement.buffer)) is not None:
                whole = [loop.axis.size for loop in node.loops if loop in self.whole and loop not in self.steps]
                found = max(found, needed.size * prod(whole))
        return found

    def active(self, loops: Sequence[Node]) -> Array:
        """Returns the mask of samples that run the body of the innermost of `loops`."""
        found = np.ones(self.samples, bool)
        for loop in loops[-1:]:
            found = self.whole.get(loop, np.zeros(self.samples, bool)).copy()
            found[self.steps.get(loop, np.zeros(0, np.int64)) // max(1, loop.axis.size)] = True
        return found

    def _need(self, buffer: Buffer, sample: Array, places: Array, loops: Sequence[Node] = ()) -> None:
        size = buffer.dims.product()
        inside = (places >= 0) & (places < size)
        keys = merged((sample * size + places)[inside])
        known = self.needs.get(buffer)
        if known is not None:
            every = merged(known, keys)
            if every.size != known.size and self._seen.get(buffer, set()) & {*loops[:1]}:
                self._again = True
            keys = every
        if keys.size > MOST:
            raise NotSampled(f"{keys.size:,} elements of {buffer}")
        self.needs[buffer] = keys

    def _visit(self, node: Node) -> None:
        statement = node.statement
        if isinstance(statement, For):
            self._enter(node)
            for inner in reversed(node.inner):
                self._visit(inner)
        elif isinstance(statement, When):
            for inner in reversed(node.inner):
                self._visit(inner)
            self._evaluate(node)
        elif isinstance(statement, Let):
            self._evaluate(node)
        elif isinstance(statement, Store):
            self._store(node, statement)
        elif isinstance(statement, Sort):
            self._sort(node, statement)

    def _enter(self, loop: Node) -> None:
        """Marks a loop as needed whole if it changes variables that are defined before it."""
        lets = [n.statement for n in loop.every() if isinstance(n.statement, Let)]
        made = {let.local.name for let in lets if not let.known}
        if any(let.known and let.local.name not in made for let in lets):
            self._whole(loop, self.active(loop.loops))

    def _whole(self, loop: Node, active: Array) -> None:
        self.whole[loop] = self.whole.get(loop, np.zeros(self.samples, bool)) | active

    def _evaluate(self, node: Node) -> None:
        """Adds the elements of the nest's own buffers that a variable or condition reads, at all needed steps."""
        loads = [load for load in loads_of(*read_by(node.statement)) if load.buffer in self.structure.written]
        if not loads:
            return
        axes = {axis.number for load in loads for axis in axes_of(load.place)}
        around = [loop for loop in node.loops if loop.axis.number in axes]
        self._reads(loads, *self._joined(around, np.flatnonzero(self.active(node.loops)), {}), (), node.loops)

    def taken(self, loop: Node) -> tuple[Array, Array]:
        """Returns the needed steps of a loop: samples, and steps."""
        size = max(1, loop.axis.size)
        keys = self.steps.get(loop, np.zeros(0, np.int64))
        if loop in self.whole:
            every = np.flatnonzero(self.whole[loop])[:, None] * size + np.arange(loop.axis.size)
            keys = merged(keys, every.reshape(-1))
        return np.divmod(keys, size)

    def _reads(
        self,
        loads: Iterable[Load],
        sample: Array,
        counters: Mapping[int, Array],
        free: Sequence[Node],
        loops: Sequence[Node],
    ) -> None:
        """Adds the elements that loads read at `counters`, and at all steps of `free` loops."""
        for load in {load: None for load in loads}:
            numbers = {axis.number for axis in axes_of(load.place)}
            own = [loop for loop in free if loop.axis.number in numbers]
            at: dict[int, Array] = {n: c.reshape(-1, *(1 for _ in own)) for n, c in counters.items()}
            for i, loop in enumerate(own):
                at[loop.axis.number] = np.arange(loop.axis.size).reshape(-1, *(1 for _ in own[i + 1 :]))
            moves = self.picks(load.picked)
            if sample.size * prod(loop.axis.size for loop in own) * moves.size > MOST:
                raise NotSampled(f"reads of too many elements of {load.buffer}")
            if not numbers <= at.keys():
                raise NotSampled("an index whose counter has no loop around it")
            places = np.asarray(load.place.evaluate(at), np.int64)
            shape = (sample.size, *(loop.axis.size for loop in own))
            places = np.broadcast_to(places, shape)[..., None] + moves
            of = np.broadcast_to(sample.reshape(-1, *(1 for _ in shape)), places.shape)
            self._need(load.buffer, of.reshape(-1), places.reshape(-1), loops)

    def picks(self, picked: Sequence[tuple[Local, int]]) -> Array:
        """Returns all offsets that computed indices may add to an access. Raises NotSampled if one has no bound."""
        moves = np.zeros(1, np.int64)
        for local, step in picked:
            size = self.structure.sizes.get(local.name)
            if size is None or size * moves.size > MOST:
                raise NotSampled(f"accesses at computed index {local}")
            moves = merged(moves[:, None] + np.arange(size)[None] * step)
        return moves

    def _store(self, node: Node, store: Store) -> None:
        self._writes(node, store.buffer, store.place, self.picks(store.picked) if store.picked else np.zeros(1, int))

    def _sort(self, node: Node, sort: Sort) -> None:
        self._writes(node, sort.positions, sort.place, np.arange(sort.count))

    def _writes(self, node: Node, buffer: Buffer, place: Index, moves: Array) -> None:
        """Adds the steps at which a statement writes needed elements, and the elements that it reads there."""
        self._seen.setdefault(buffer, set()).update(node.loops[:1])
        needed = self.needs.get(buffer)
        if needed is None or not needed.size:
            return
        size = buffer.dims.product()
        sample, places = np.divmod(needed, size)
        sizes = {loop.axis.number: loop.axis.size for loop in node.loops}
        which, counters = solutions(place, sizes, unmoved(places, moves))
        for guard in node.guards:
            if {axis.number for axis in axes_of(guard.index)} <= counters.keys():
                held = np.broadcast_to(guard.evaluate(counters), which.shape)
                which, counters = which[held], {n: c[held] for n, c in counters.items()}
        if not which.size:
            return
        claimed = needed[which // moves.size]
        known = self._claims.get(buffer, np.zeros(0, np.int64))
        self._claims[buffer] = merged(known, claimed)
        own = sample[which // moves.size]
        present = np.zeros(self.samples, bool)
        present[own] = True
        same = self.structure.around.get(buffer, ())
        statement, free = node.statement, []
        for loop in node.loops:
            if loop.axis.number in counters:
                keys = merged(own * loop.axis.size + counters[loop.axis.number])
                self.steps[loop] = merged(self.steps.get(loop, np.zeros(0, np.int64)), keys)
            elif loop not in same:  # a reader is at the same step of those
                self._whole(loop, present)
                free.append(loop)
        loads = [load for load in loads_of(*read_by(statement)) if load.buffer in self.structure.written]
        if isinstance(statement, Sort) and statement.items in self.structure.written:
            loads += [Load(statement.items, statement.place + i) for i in range(statement.count)]
        if loads:
            asked = {axis.number for load in loads for axis in axes_of(load.place)} - counters.keys()
            around = [loop for loop in same if loop.axis.number in asked]
            self._reads(loads, *self._joined(around, own, counters), free, node.loops)

    def _joined(
        self, loops: Iterable[Node], sample: Array, counters: dict[int, Array]
    ) -> tuple[Array, dict[int, Array]]:
        """Extends counters by the needed steps of loops, joined by sample."""
        for loop in loops:
            own, step = self.taken(loop)
            here, there = np.nonzero(sample[:, None] == own[None])
            sample, counters = sample[here], {n: c[here] for n, c in counters.items()}
            counters[loop.axis.number] = step[there]
        return sample, counters
