"""Selects layer mappings and DRAM layouts of the tensors between them jointly, as an integer program.

The fastest mapping of one layer may be slow for the next: a layout with adjacent pixels takes few beats if the next
layer reads adjacent pixels, and a beat per byte if it reads adjacent channels. The integer program is:

    minimize the sum of t over layers, where t >= cycles of the array, and t >= cycles of DMA: weights, fills, results,
    and copies of inputs that stay in the array, which come before all layers

Each layer takes one mapping, and each tensor one innermost axis; the cost of every pair is predicted.
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
"""Optimality gap while costs are being refined; the final choice has the requested gap."""
_USES_BEFORE_ALL = 2
"""Number of uses of an unrefined cost after which it is refined for all mappings."""
_NEAR_TIME_RATIO = 1.3
"""Maximum array cycles, relative to the chosen mapping, of mappings that are tiled with it; slower ones are rarely
chosen.
"""
SPARED = 0.02
"""Weight of a DMA beat that a resident tensor saves, if the array hides it by the predicted costs."""
_PADDED = 1.15
"""Ratio of the beats of windows to those of full beats, if windows are not examined."""
Known = dict[tuple[int, str, object], Estimate]
Stays = Callable[[], Mapping[Term, Stay]]
"""Returns the tensors that may stay, according to the mappings that are tiled."""
_LATENCY = 2
"""Exposed latencies of a layer, in machine latencies."""


@dataclass(frozen=True)
class Choice:
    """A mapping for each layer by number, the innermost axis of each streamed tensor, and the resident tensors.

    cycles    predicted cost; bound: its lower bound over all choices
    stopped   True if much better choices may exist: the solver was stopped early
    where     scratchpad places of resident tensors, if any, and of others that may come by windows
    solution  the columns of the integer program, from which a later solve starts
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
        """True if both make the same choice; costs are ignored."""
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
    """Returns the best choice within a relative gap, or the best one found after the solver has polled `work` times.

    `results` maps each tensor that a layer computes to the layer's name; `stays` returns the tensors that may be
    resident; `known` holds costs, also of `windows`. If no choice costs less than `enough`, any may be returned.
    `spared` is the weight of beats that the array hides. `before` is the best choice under the same costs with more
    residency candidates: if it is still feasible, it is the best here too. The result is deterministic. Raises BadInput
    if none was found.

    Mappings are tiled and costs refined only if a choice uses them; then the choice is made again, until all costs that
    it uses are refined. This is sound because unrefined costs are lower bounds. Costs used repeatedly, with another
    mapping each time, are refined for all mappings of similar speed. Until then the gap is `first`. Before all that the
    relaxed program is solved: it needs at most a tenth of the solver's time, and uses most of the costs.
    """
    known = {} if known is None else known
    within, often = max(gap, first), Counter[object]()
    known_best = None if before is None else before.solution
    how, best = How.PARTS, None
    while True:
        may_stay, may_pass = ({} if own is None else own() for own in (stays, windows))
        model = _Model(options, results, machine, may_stay, may_pass, known, spared)
        solved = model.solved(show, work, within, known_best, how)
        if solved is None:  # the former choice turned out to be infeasible
            how = How.WHOLE
            continue
        found, used, now = solved
        often["cut"] += how is How.WHOLE and bool(model.uncut)
        cut(model.uncut if often["cut"] < _USES_BEFORE_ALL else [*model.uncut, *_near(options, found.mappings)])
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
            for estimate in (estimates if often[what] < _USES_BEFORE_ALL else model.alike(what))
        )


def _near(options: Mapping[str, Sequence[Option]], taken: Mapping[str, int]) -> Iterator[Option]:
    """Yields the candidates whose array cycles are near those of the chosen ones."""
    for name, own in options.items():
        most = _NEAR_TIME_RATIO * own[taken[name]].price.cycles
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
        """Candidates that the choice uses and that are not tiled."""
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
        """Yields the estimates of the same cost for all mappings."""
        return (own for other, _, own in self.used if other == what)

    def solved(
        self, show: Callable[[str, int, int], None], work: int, gap: float, before: Solution | None, how: How
    ) -> tuple[Choice, Mapping[object, Sequence[Estimate]], Solution] | None:
        """Returns the choice, and the unrefined costs that it uses, by subject.

        `before` is the solution under earlier costs, some of which were lower. None if the former choice is no longer
        feasible. Raises BadInput if there is no choice.
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
        """Adds the resident tensors, and the capacity of the scratchpad at each time."""
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
                for by, own_rows in zip(take[name], rows, strict=True):  # needed if both are chosen
                    need = self._now(own_rows, (tensor, name), by, column)
                    self.row(-need, infinite, [(room, 1.0), (by, -need), (column, -need)])
        for number in range(len(self.options)):
            alive = [tensor for tensor, own in self.may_stay.items() if own.since <= number <= own.until]
            if alive:
                room = self.machine.depth - 2 * rows_needed(self.machine)
                self.row(0, room, [(self.rooms[tensor], 1.0) for tensor in alive])

    def _add_others(self, tensor: Term, take: Mapping[str, Sequence[int]]) -> None:
        """Requires that rows of several tensors are streamed from the scratchpad only if all of these are resident."""
        for name, own in self.may_stay[tensor].allows.items():
            for by, may, option in zip(take[name], own, self.options[name], strict=True):
                others = [other for other in option.streams.values() if other is not None and other != tensor]
                for other in others if may and tensor in option.streams.values() else ():
                    if other not in self.may_stay:
                        self.row(-highspy.kHighsInf, 1, [(by, 1.0), (self.held[tensor], 1.0)])
                    elif other in self.held:  # once the second of a pair is added
                        here, there = (self.held[tensor], 1.0), (self.held[other], -1.0)
                        self.row(-1, highspy.kHighsInf, [(by, -1.0), here, there])
                        self.row(-highspy.kHighsInf, 1, [(by, 1.0), here, there])

    def _unless_held(self, tensor: Term) -> list[tuple[int, float]]:
        """Returns the term that replaces a tensor's way through DRAM if the tensor is resident."""
        return [(self.held[tensor], 1.0)] if tensor in self.held else []

    def _add_time(self, name: str, own: Sequence[Option], take: Sequence[int]) -> None:
        """Adds the time of a layer: the maximum of array and DMA cycles."""
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
        """Beats of DMA that belong to this layer alone: weights, and streamed constants in their best layout."""
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
        """Returns the estimated beats that load an operand."""
        return self._known(option.price, "fill", (leaf, axis), least, partial(option.price.filled, leaf, axis))

    def _read(self, tensor: Term, name: str) -> float:
        """Lower bound on the beats of a streamed tensor, valid for all mappings: each element that the layer reads,
        once.
        """
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
        """Adds for each axis a binary column: the tensor streams to this layer with that axis innermost."""
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
        """Returns the estimated cycles of DMA that load a tensor by windows; infinity unless its only reader can read
        them.
        """
        own, price = (self.may_pass or self.may_stay).get(tensor), option.price
        which = next(number for number, other in enumerate(self.options[name]) if other is option)
        if own is None or len(option.streams) > 1 or not own.is_for(name, which, self.results.get(tensor)):
            return Estimate(highspy.kHighsInf)
        if not self.may_pass:
            return Estimate(_PADDED * tensor.access.size / self.machine.bandwidth)
        find = partial(price.windowed, tuple(tensor.access.dims), axis)
        return self._known(price, "windows", (tensor, axis), least, find)

    def _add_tiles(self, tensor: Term, name: str, option: Option, own: int, take: Mapping[str, Sequence[int]]) -> None:
        """Adds the cost of writing a tensor that stays in the array as tiles."""
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
        """Returns the estimated beats that store `size` bytes of results."""
        return self._known(option.price, "empty", what, size / self.machine.bandwidth, find)
