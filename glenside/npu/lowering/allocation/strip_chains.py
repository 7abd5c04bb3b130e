"""Builds chains of strip-mined layers, whose intermediate tensors do not fit the scratchpad."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from glenside.ir.term import Term
from glenside.ir.threads import in_parallel, processors
from glenside.npu.lowering.allocation.scratchpad_allocation import Held, Passing, Wanted, held
from glenside.npu.lowering.tiling.layer_tiles import Layer
from glenside.npu.lowering.tiling.strip_mining import Part, strips
from glenside.npu.lowering.tiling.strip_slices import Cut
from glenside.npu.machine.model import Machine

_STRIP_COUNTS = (2, 3, 4, 6, 8, 12, 16)
"""Numbers of strips that are tried, fewest first."""
_MAX_EARLIER_LAYERS = 2
"""Number of earlier layers that may join a chain, since their results need less capacity then."""
_MAX_TIME_RATIO = 1.5
"""Maximum array cycles of strips, relative to whole layers."""


@dataclass(frozen=True)
class Chain:
    """The layers from number `begin` to before `end`, the parts of each strip, and for each layer but the last the
    slice of its result that each strip needs.
    """

    begin: int
    end: int
    parts: Sequence[Sequence[Part]]
    cuts: Sequence[tuple[Cut, ...]]

    @staticmethod
    def of(layers: Sequence[Layer], begin: int, dims: Sequence[int], axis: int, count: int) -> Chain:
        """Builds a chain from layers, the first of which has number `begin`. Memoized with the last layer."""
        known, key = layers[-1].known, (Chain, *map(id, layers), *dims, axis, count)
        if key not in known:
            parts = strips(layers, dims, axis, count)
            cuts = [
                tuple(Cut(strip[place].elements, strip[place + 1].streaming()) for strip in parts)
                for place in range(len(layers) - 1)
            ]
            known[key] = parts, cuts, tuple(layers)  # keeps the layers alive, whose ids are in the key
        return Chain(begin, begin + len(layers), *known[key][:2])

    @property
    def has_idle_strips(self) -> bool:
        """True if a layer computes nothing for some strip, whose reader reads padding alone."""
        return any(not part.elements.size for strip in self.parts for part in strip)

    def cycles(self, machine: Machine) -> int:
        """Returns the cycles of the array."""
        return sum(part.cycles(machine) for strip in self.parts for part in strip)


@dataclass(frozen=True)
class Candidates:
    """The layers that may form chains: in order, with their results and the tensors that their rows read.

    wanted  tensors that may be in the scratchpad
    whole   numbers of layers that are not cut, since their results are normalized
    rows    available scratchpad rows
    """

    layers: Sequence[Layer]
    results: Sequence[Term]
    sources: Sequence[Term | None]
    wanted: Mapping[Term, Wanted]
    whole: Container[int]
    machine: Machine
    rows: range

    def chains(
        self, stay: Container[Term], there: dict[Term, Held], passing: dict[Term, Passing]
    ) -> tuple[dict[Term, Held], dict[Term, Passing], list[Chain]]:
        """Returns the resident tensors, the others, and the chains, where strips of tensors fit that did not."""
        wanted, found = dict(self.wanted), list[Chain]()
        for begin, end in self._gaps(stay, there):
            all_there = {*there, *self.results[begin : end - 1]}
            best: tuple[int, Chain, dict[Term, Wanted]] | None = None
            tried = sorted(self._tried(begin, end, there, found), key=lambda each: each[0])
            for place, (cycles, start, axis, count) in enumerate(tried):
                if best is not None and cycles >= best[0]:
                    break
                if not place % processors():
                    self._find(end, tried[place : place + processors()])
                chain = Chain.of(self.layers[start:end], start, self._dims(end), axis, count)
                if chain.has_idle_strips:
                    continue
                own = self._cut(chain, wanted)
                near = {term: each for term, each in own.items() if each.begin < end and each.end >= start}
                more, _ = held(near, self.machine, self.rows, all_there)
                if more.keys() >= near.keys() & all_there:
                    cycles = chain.cycles(self.machine)
                    best = min(best or (cycles, chain, own), (cycles, chain, own), key=lambda each: each[0])
            if best is not None:
                _, chain, own = best
                more, others = held(own, self.machine, self.rows, all_there)
                if more.keys() >= all_there:
                    wanted, there, passing = own, more, others
                    found.append(chain)
        return there, passing, found

    def _find(self, end: int, tried: Sequence[tuple[int, int, int, int]]) -> None:
        """Computes chains on all processors; they are memoized."""

        def work(each: tuple[int, int, int, int], _: None) -> None:
            start, axis, count = each[1:]
            Chain.of(self.layers[start:end], start, self._dims(end), axis, count)

        in_parallel(work, tried, lambda _: None)

    def _gaps(self, stay: Container[Term], there: Container[Term]) -> Iterator[tuple[int, int]]:
        """Yields ranges of layers between which tensors could be resident and are not: the first, and the one behind
        the last.
        """
        begin: int | None = None
        for number, result in enumerate(self.results):
            if result in stay and result not in there and self._passes(number):
                begin = number if begin is None else begin
            elif begin is not None:
                if self.sources[begin] in there:
                    yield begin, number + 1
                begin = None

    def _passes(self, number: int) -> bool:
        """True if the next layer is the only reader of a layer's result, and streams it from the scratchpad."""
        own = self.wanted.get(self.results[number])
        alone = own is not None and len(own.reads) == 1 and own.end == number + 1 and own.begin == number
        return alone and self.sources[number + 1] is not None

    def _dims(self, end: int) -> tuple[int, ...]:
        return tuple(self.results[end - 1].access.dims)

    def _tried(
        self, begin: int, end: int, there: Container[Term], others: Sequence[Chain]
    ) -> Iterator[tuple[int, int, int, int]]:
        """Yields candidate chains: a lower bound on cycles, the number of the first layer, the axis of the cut, the
        number of strips. Stops at the first strip count of an axis that is too slow.
        """
        first = max((chain.end for chain in others), default=0)
        for start in range(begin, max(first, begin - _MAX_EARLIER_LAYERS) - 1, -1):
            if start < begin and not (self._passes(start) and self.results[start] in there):
                return
            if self.sources[start] not in there or any(number in self.whole for number in range(start, end)):
                continue
            cycles_of_whole = sum(self._whole(number) for number in range(start, end))
            for axis, size in enumerate(self._dims(end)):
                for count in (count for count in _STRIP_COUNTS if count <= size):
                    cycles = sum(self._whole(number) for number in range(start, end - 1))
                    cycles += self._cut_alone(end, axis, count)
                    if cycles > _MAX_TIME_RATIO * cycles_of_whole:
                        break
                    yield cycles, start, axis, count

    def _cut_alone(self, end: int, axis: int, count: int) -> int:
        """Returns the array cycles of layer `end` - 1 alone, cut into `count` strips."""
        layer, dims = self.layers[end - 1], self._dims(end)
        key = "cut alone", dims, axis, count, self.machine
        if key not in layer.known:
            layer.known[key] = sum(part.cycles(self.machine) for (part,) in strips([layer], dims, axis, count))
        return layer.known[key]  # type: ignore[no-any-return]

    def _whole(self, number: int) -> int:
        tiles, m, _ = self.layers[number].product.rows.numbers.shape
        return int(tiles) * max(int(m), self.machine.rows)

    def _cut(self, chain: Chain, wanted: Mapping[Term, Wanted]) -> dict[Term, Wanted]:
        """Returns the live ranges if layers run strip by strip: operands and results are live throughout."""
        found = dict(wanted)
        for place, number in enumerate(range(chain.begin, chain.end - 1)):
            own = found[self.results[number]]
            found[self.results[number]] = replace(own, begin=chain.begin, end=chain.end - 1, cuts=chain.cuts[place])
        for term, own in found.items():
            since = chain.begin if own.begin == chain.end - 1 else own.begin
            until = max(own.end, chain.end - 1) if own.begin < chain.end and own.end >= chain.begin else own.end
            found[term] = replace(own, begin=since, end=until)
        return found
