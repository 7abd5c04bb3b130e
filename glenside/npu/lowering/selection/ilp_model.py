"""Which mapping each layer of a network takes, and in which order tensors are in DRAM between them: together.

What is quick for one layer may be slow for the next: sums of pixels side by side are few beats where the next layer
wants pixels side by side, and a beat for each byte where it wants channels. The choice is an integer program:

    least sum of t over layers, where t >= cycles of the array, and t >= cycles of DMA: weights, fills and results,
    and of copies of inputs that stay in the array, which come before all layers

Each layer takes one mapping and each tensor one axis innermost; what they take together is priced for every pair.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import highspy
import numpy as np

from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.stopwatch import stage
from glenside.ir.term import Term
from glenside.npu.lowering.emission.emit_results import rows_needed
from glenside.npu.lowering.selection.candidate_cost import Priced
from glenside.npu.lowering.selection.candidates import (
    Option,
    axes_of,
    best_filled,
    bytes_of_tiles,
    copied,
    copied_at_least,
    cut,
)
from glenside.npu.lowering.selection.lazy_bounds import Estimate, close_all
from glenside.npu.lowering.selection.mip_builder import WORK, How, Solution, WholeNumbers
from glenside.npu.lowering.selection.residency_candidates import Stay
from glenside.npu.lowering.selection.tensor_placement import Where
from glenside.npu.lowering.transfer.dram_operands import Tiles
from glenside.npu.lowering.util.fast_unique import ordered
from glenside.npu.machine.model import Machine

_HALF, _EPSILON = 0.5, 1e-6
FIRST = 0.05
"""Within which gap it is chosen as long as prices are found: the last choices are within the one that is asked for."""
_OFTEN = 2
"""How often something is used of which nobody knows the price, until it is found for all mappings."""
_NEAR = 1.3
"""Of these, those that take the array so many times as long as the one that is chosen, at most: others seldom come."""
SPARED = 0.02
"""What beats are worth that a tensor spares which stays, where the array hides them by these prices."""
_PADDED = 1.15
"""How many beats windows take for one that is full, where nobody looked."""
Known = dict[tuple[int, str, object], Estimate]
Stays = Callable[[], Mapping[Term, Stay]]
"""Tensors that may stay, as far as the mappings tell that are cut into tiles."""
_LATENCY = 2
"""Latencies of a layer that nothing hides."""


@dataclass(frozen=True)
class Choice:
    """A mapping for each layer, by number, the axis that is innermost of each tensor that streams, and the tensors that
    stay in the lanes.

    cycles  what that takes by these prices; bound  what none takes less than
    stopped whether there may be much better ones: it took too long to find out
    where   where those are, if any are, and which others may come by parts
    solution  the columns that say so, for a choice of which less is possible
    """

    mappings: Mapping[str, int]
    axes: Mapping[Term, int]
    cycles: float
    bound: float
    stopped: bool = False
    held: frozenset[Term] = frozenset()
    where: Where | None = None
    solution: Solution | None = field(default=None, repr=False, compare=False)

    def is_like(self, other: Choice) -> bool:
        """True if both choose the same, whatever the cost."""
        return (self.mappings, self.axes, self.held) == (other.mappings, other.axes, other.held)


@stage("select")
def chosen(
    options: Mapping[str, Sequence[Option]],
    results: Mapping[Term, str],
    machine: Machine,
    show: Callable[[str, int, int], None] = lambda *_: None,
    work: int = WORK,
    gap: float = 1e-3,
    stays: Stays | None = None,
    known: Known | None = None,
    enough: float = highspy.kHighsInf,
    spared: float = SPARED,
    first: float = FIRST,
    windows: Stays | None = None,
    before: Choice | None = None,
) -> Choice:
    """The best choice, within a gap of it, or the best that was found until the solver looked `work` times whether to
    go on; `results` are the tensors that layers make, of which each is one's, by name; `stays` those that may stay in
    the lanes; `known` prices, also of `windows`. Where none takes less than `enough` it is any. `spared` is what beats
    are worth that the array hides. `before` is the best by the same prices, of more that may stay: where it is possible
    still, it is the best of these. The same each time, however long it takes. Raises BadInput: none was found.

    Mappings are cut into tiles, and prices looked at, where a choice makes use of them, and then it is chosen again,
    until nothing is left to look at: the others take no less than what they were taken for. Of what comes again and
    again, of another mapping each time, all are cut that are about as quick, and the prices of all are looked at. Until
    then it is the best within a gap of `first`. Before all that, parts of mappings are chosen: a program without whole
    numbers takes a tenth of the solver's time or less, and makes use of most prices that the choice does.
    """
    known = {} if known is None else known
    within, often = max(gap, first), Counter[object]()
    known_best = None if before is None else before.solution
    how, best = How.PARTS, None
    while True:
        may_stay, may_pass = ({} if own is None else own() for own in (stays, windows))
        model = _Model(options, results, machine, may_stay, may_pass, known, spared)
        solved = model.solved(show, work, within, known_best, how)
        if solved is None:  # what was chosen is not possible, as turned out
            how = How.WHOLE
            continue
        found, used, now = solved
        often["cut"] += how is How.WHOLE and bool(model.uncut)
        cut(model.uncut if often["cut"] < _OFTEN else [*model.uncut, *_near(options, found.mappings)])
        if best is not None and best.cycles <= (1 + gap) * found.bound:
            known_best = None if best.solution is None else replace(best.solution, bound=found.bound)
            return replace(best, bound=found.bound, solution=known_best)
        is_open = bool(used or model.uncut)
        if found.bound > enough or not (is_open or how is not How.WHOLE or within > gap):
            return found
        if how is How.PARTS:
            how = How.PARTS if is_open else How.WHOLE
            close_all(estimate for estimates in used.values() for estimate in estimates)
            continue
        if not is_open:
            best = found if best is None else min(best, found, key=lambda own: own.cycles)
        if how is How.WHOLE:
            known_best = now
            within = within if is_open else gap
        how = How.AGAIN if is_open else How.WHOLE
        often.update(used.keys())
        close_all(
            estimate
            for what, estimates in used.items()
            for estimate in (estimates if often[what] < _OFTEN else model.alike(what))
        )


def _near(options: Mapping[str, Sequence[Option]], taken: Mapping[str, int]) -> Iterator[Option]:
    """Yields the candidates whose array cycles are near those of the chosen ones."""
    for name, own in options.items():
        most = _NEAR * own[taken[name]].price.cycles
        yield from (option for option in own if option.price.cycles <= most)


@dataclass
class _Model(WholeNumbers):
    options: Mapping[str, Sequence[Option]]
    results: Mapping[Term, str]
    machine: Machine
    may_stay: Mapping[Term, Stay]
    may_pass: Mapping[Term, Stay]
    known: Known
    spared: float = SPARED

    def __post_init__(self) -> None:
        super().__init__()
        self.dma: dict[str, list[tuple[int, float]]] = {name: [] for name in self.options}
        self.used: list[tuple[object, tuple[int, ...], Estimate]] = []
        self.uncut: list[Option] = []
        """What the choice takes and nobody has cut into tiles."""
        self.copies = defaultdict[int, float](float)
        self.held: dict[Term, int] = {}
        self.rooms: dict[Term, int] = {}
        self.readers: dict[Term, dict[str, None]] = {}
        for name, own in self.options.items():
            for tensor in (tensor for option in own for tensor in option.operands.values() if tensor is not None):
                self.readers.setdefault(tensor, {})[name] = None

    def _now(self, estimate: Estimate, what: object, *columns: int) -> float:
        """Returns the current value of an estimate.

        Records open estimates, which are refined if a solution uses their columns.
        """
        if estimate.is_open:
            self.used.append((what, columns, estimate))
        return estimate.value

    def alike(self, what: object) -> Iterator[Estimate]:
        """Prices of the same of all mappings."""
        return (own for other, _, own in self.used if other == what)

    def solved(
        self, show: Callable[[str, int, int], None], work: int, gap: float, before: Solution | None, how: How
    ) -> tuple[Choice, Mapping[object, Sequence[Estimate]], Solution] | None:
        """The choice, and the prices that it makes use of and nobody has looked at, by what they are of; `before` is
        that of prices of which some were lower. None: the same as before is not possible any more. Raises BadInput:
        there is no choice.
        """
        take = {name: [self.column(whole=True) for _ in own] for name, own in self.options.items()}
        for name, columns in take.items():
            possible = zip(columns, self.options[name], strict=True)
            self.row(1, 1, [(column, 1.0) for column, option in possible if option.price.refused is None])
            for column, option in zip(columns, self.options[name], strict=True):
                if option.price.refused is not None:
                    self.row(0, 0, [(column, 1.0)])
        self._add_stays(take)
        inner = {tensor: [self.column(whole=True) for _ in axes_of(tensor)] for tensor in self.readers}
        for number, (tensor, columns) in enumerate(inner.items()):
            show(f"tensor {number + 1}", len(inner) + number, 2 * len(inner))
            self.row(1, 1, [(column, 1.0) for column in columns])
            self._add_tensor(tensor, columns, take)
        for name, own in self.options.items():
            self._add_time(name, own, take[name])
        found = self.solution(gap, work, before, how)
        if found is None and how is How.AGAIN:
            return None
        if found is None:
            raise BadInput("no mappings of the layers were found that go together with any orders of tensors")
        values = found.values
        mappings = {name: int(np.argmax(values[columns])) for name, columns in take.items()}
        axes = {tensor: axes_of(tensor)[int(np.argmax(values[columns]))] for tensor, columns in inner.items()}
        self.uncut = [
            option
            for name, columns in take.items()
            for column, option in zip(columns, self.options[name], strict=True)
            if values[column] > _EPSILON and not option.price.is_cut
        ]
        there = frozenset(tensor for tensor, column in self.held.items() if values[column] > _HALF)
        used = defaultdict[object, list[Estimate]](list)
        for what, by, estimate in self.used:
            if (values[[*by]] > _EPSILON).all():
                used[what].append(estimate)
        return Choice(mappings, axes, found.cost, found.bound, found.stopped, there, solution=found), used, found

    def _add_stays(self, take: Mapping[str, Sequence[int]]) -> None:
        """Tensors that stay in the lanes, of which there is room for so many at a time."""
        infinite = highspy.kHighsInf
        for tensor, own in self.may_stay.items():
            beats = tensor.access.size / self.machine.bandwidth
            comes = -self.spared * beats if tensor in self.results else beats
            column = self.held[tensor] = self.column(comes, whole=True)
            for name, allows in own.allows.items():
                for by, may in zip(take[name], allows, strict=True):
                    if not may:
                        self.row(-infinite, 1, [(by, 1.0), (column, 1.0)])
            for (first, i), (second, j) in own.apart:
                self.row(-infinite, 2, [(take[first][i], 1.0), (take[second][j], 1.0), (column, 1.0)])
            self._add_others(tensor, take)
            room = self.rooms[tensor] = self.column(most=infinite)
            for name, rows in own.rows.items():
                for by, own_rows in zip(take[name], rows, strict=True):  # as many as this one needs, if both are chosen
                    need = self._now(own_rows, (tensor, name), by, column)
                    self.row(-need, infinite, [(room, 1.0), (by, -need), (column, -need)])
        for number in range(len(self.options)):
            alive = [tensor for tensor, own in self.may_stay.items() if own.since <= number <= own.until]
            if alive:
                room = self.machine.depth - 2 * rows_needed(self.machine)
                self.row(0, room, [(self.rooms[tensor], 1.0) for tensor in alive])

    def _add_others(self, tensor: Term, take: Mapping[str, Sequence[int]]) -> None:
        """Rows of several tensors stream from the lanes where all of these are there."""
        for name, own in self.may_stay[tensor].allows.items():
            for by, may, option in zip(take[name], own, self.options[name], strict=True):
                others = [other for other in option.streams.values() if other is not None and other != tensor]
                for other in others if may and tensor in option.streams.values() else ():
                    if other not in self.may_stay:
                        self.row(-highspy.kHighsInf, 1, [(by, 1.0), (self.held[tensor], 1.0)])
                    elif other in self.held:  # of two, when the second one comes
                        here, there = (self.held[tensor], 1.0), (self.held[other], -1.0)
                        self.row(-1, highspy.kHighsInf, [(by, -1.0), here, there])
                        self.row(-highspy.kHighsInf, 1, [(by, 1.0), here, there])

    def _unless_held(self, tensor: Term) -> list[tuple[int, float]]:
        """Returns the term that replaces a tensor's way through DRAM if the tensor is resident."""
        return [(self.held[tensor], 1.0)] if tensor in self.held else []

    def _add_time(self, name: str, own: Sequence[Option], take: Sequence[int]) -> None:
        """The time of a layer: of the array, or of DMA."""
        time = self.column(1.0, most=highspy.kHighsInf)
        infinite = highspy.kHighsInf
        self.row(0, infinite, [(time, 1.0), *((c, -float(o.price.cycles)) for c, o in zip(take, own, strict=True))])
        for tensor, held in self.held.items():
            for by, option, slower in zip(take, own, self.may_stay[tensor].slower.get(name, ()), strict=False):
                more = self._now(slower, ("slower", tensor, name), by, held)
                self.row(-more, infinite, [(time, 1.0), (by, -(option.price.cycles + more)), (held, -more)])
        always = [(c, -self._constant(name, o, c)) for c, o in zip(take, own, strict=True)]
        moved = [(column, -cost) for column, cost in self.dma[name]]
        self.row(_LATENCY * self.machine.latency, infinite, [(time, 1.0), *always, *moved])

    def _constant(self, name: str, option: Option, column: int) -> float:
        """DMA that no other layer has a part in: weights, and constants that stream, as they stream best."""
        price, once = option.price, sum(leaf.access.size for leaf in option.stays) / self.machine.bandwidth
        weights = self._known(price, "weights", None, once, lambda: price.weights)
        found = self._now(weights, ("weights", name), column)
        for leaf in (leaf for leaf, tensor in option.streams.items() if tensor is None):
            find = partial(best_filled, price, leaf)
            found += self._now(self._known(price, "constant", leaf, 0.0, find), ("constant", name), column)
        return found

    def _known(self, price: Priced, what: str, of: object, least: float, find: Callable[[], float]) -> Estimate:
        """Returns the memoized estimate of a mapping; the lower bound alone if it is not tiled."""
        if not price.is_cut:
            return Estimate(least)
        key = id(price), what, of
        if key not in self.known:
            self.known[key] = Estimate(least, find, id(price))
        return self.known[key]

    def _filled(self, option: Option, leaf: Term, axis: int, least: float) -> Estimate:
        """Beats that bring an operand."""
        return self._known(option.price, "fill", (leaf, axis), least, partial(option.price.filled, leaf, axis))

    def _read(self, tensor: Term, name: str) -> float:
        """Beats of what a layer reads of a tensor that streams, each element once, whatever its mapping is."""
        key = id(self.options[name][0].price), "read", tensor
        if key not in self.known:
            options = [o for o in self.options[name] if tensor in o.streams.values() and o.price.is_cut]
            if not options:
                return 0.0
            option = min(options, key=lambda own: own.price.layer.product.rows.numbers.size)
            rows = option.price.layer.product.rows
            seen = np.zeros(1 + sum(leaf.access.size for leaf in rows.first), bool)
            seen[rows.numbers] = True
            own = [seen[rows.first[leaf] :][: leaf.access.size] for leaf, of in option.streams.items() if of == tensor]
            self.known[key] = Estimate(float(np.any(own, axis=0).sum()) / self.machine.bandwidth)
        return self.known[key].value

    def _add_tensor(self, tensor: Term, inner: Sequence[int], take: Mapping[str, Sequence[int]]) -> None:
        """Adds the cost of writing a tensor in the layout that its readers want, and of reading it."""
        maker = self.results.get(tensor)
        asked = [self._add_reader(tensor, name, inner, take) for name in self.readers[tensor]]
        if maker is None:
            return
        dims = tuple(tensor.access.dims)
        for number, axis in enumerate(axes_of(tensor)):
            written = [self.column() for _ in take[maker]]
            for taken, column, option in zip(take[maker], written, self.options[maker], strict=True):
                self.row(-1, 0, [(column, 1.0), (taken, -1.0)])
                find = partial(option.price.emptied_in_order, dims, axis)
                emptied = self._emptied(option, ("axis", axis, dims), find, tensor.access.size)
                self.dma[maker].append((column, self._now(emptied, (tensor, axis), column, taken)))
            for streamed in asked:
                self.row(0, 1, [*((column, 1.0) for column in written), (streamed[number], -1.0)])

    def _add_reader(
        self, tensor: Term, name: str, inner: Sequence[int], take: Mapping[str, Sequence[int]]
    ) -> list[int]:
        """For each axis a column that says whether it streams to that layer so."""
        streamed = [self.column() for _ in inner]
        for column, axis in zip(streamed, inner, strict=True):
            self.row(-1, 0, [(column, 1.0), (axis, -1.0)])
        streams = list[int]()
        for option, own in zip(self.options[name], take[name], strict=True):
            leaves = [leaf for leaf, other in option.streams.items() if other == tensor]
            if leaves:
                streams.append(own)
                parts = [self.column() for _ in inner]
                infinite = highspy.kHighsInf
                self.row(0, infinite, [*((part, 1.0) for part in parts), (own, -1.0), *self._unless_held(tensor)])
                for part, column, axis in zip(parts, streamed, axes_of(tensor), strict=True):
                    self.row(-1, 0, [(part, 1.0), (column, -1.0)])
                    beats = self._read(tensor, name) if len(leaves) == 1 else 0.0
                    fills = [self._filled(option, leaf, axis, beats) for leaf in leaves]
                    windows = self._windowed(tensor, name, option, axis, beats)
                    filled = sum(each.value for each in fills)
                    if filled < (windowed := windows.value):
                        filled = sum(self._now(each, (tensor, axis, name), part, own) for each in fills)
                    else:
                        windowed = self._now(windows, (tensor, axis, name, "windows"), part, own)
                    self.dma[name].append((part, min(filled, windowed)))
            if tensor in option.stays.values():
                self._add_tiles(tensor, name, option, own, take)
        least = [*((column, 1.0) for column in streamed), *((own, -1.0) for own in streams)]
        self.row(0, highspy.kHighsInf, [*least, *self._unless_held(tensor)])
        return streamed

    def _windowed(self, tensor: Term, name: str, option: Option, axis: int, least: float) -> Estimate:
        """Cycles of DMA that bring a tensor by windows, where its only reader may read these."""
        own, price = (self.may_pass or self.may_stay).get(tensor), option.price
        which = next(number for number, other in enumerate(self.options[name]) if other is option)
        if own is None or len(option.streams) > 1 or not own.is_for(name, which, self.results.get(tensor)):
            return Estimate(highspy.kHighsInf)
        if not self.may_pass:
            return Estimate(_PADDED * tensor.access.size / self.machine.bandwidth)
        find = partial(price.windowed, tuple(tensor.access.dims), axis)
        return self._known(price, "windows", (tensor, axis), least, find)

    def _add_tiles(self, tensor: Term, name: str, option: Option, own: int, take: Mapping[str, Sequence[int]]) -> None:
        """A tensor that stays is written as tiles."""
        maker = self.results.get(tensor)
        if maker is None:

            def find() -> float:
                alone = len(self.readers[tensor]) == 1
                return copied(option, tensor, self._tiled(option, tensor), alone, self.machine)

            copy = self._known(option.price, "copy", tensor, copied_at_least(option, tensor, self.machine), find)
            self.copies[own] += self._now(copy, ("copy", tensor), own)
            self.set_cost(own, self.copies[own])
            return
        written = [self.column() for _ in take[maker]]
        self.row(0, 0, [*((column, 1.0) for column in written), (own, -1.0)])
        for other, column, by in zip(self.options[maker], written, take[maker], strict=True):
            self.row(-1, 0, [(column, 1.0), (by, -1.0)])
            find = partial(self._emptied_to_tiles, other, option, tensor)
            if option.price.is_cut:
                emptied = self._emptied(other, ("tiles", id(option.price)), find, bytes_of_tiles(option, tensor))
            else:
                emptied = Estimate(tensor.access.size / self.machine.bandwidth)
            self.dma[maker].append((column, self._now(emptied, ("tiles", tensor, id(option.price)), column, by)))

    def _tiled(self, option: Option, tensor: Term, some: Array | None = None) -> Array:
        """Returns the positions of a tensor's elements in tiles, all or some of them: pairs sorted by element."""
        layer = option.price.layer
        leaves = [leaf for leaf, other in option.stays.items() if other == tensor]
        found = Tiles.pairs(layer, self.machine, leaves, some)
        return found[ordered(found[:, 0])]

    def _emptied_to_tiles(self, maker: Option, reader: Option, tensor: Term) -> float:
        return maker.price.emptied(self._tiled(reader, tensor, maker.price.first_to_leave))

    def _emptied(self, option: Option, what: object, find: Callable[[], float], size: int) -> Estimate:
        """Beats that take results away, as so many bytes."""
        return self._known(option.price, "empty", what, size / self.machine.bandwidth, find)
