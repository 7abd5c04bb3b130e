"""Which tensors may stay in the lanes, whatever mappings are chosen: whom that allows, and what room it takes."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Protocol

from glenside.ir.term import Term
from glenside.ir.threads import in_parallel
from glenside.npu.lowering.estimates import Estimate
from glenside.npu.lowering.holding import fit_together
from glenside.npu.lowering.price import Priced
from glenside.npu.lowering.skewed import Reads, Writes, skewed
from glenside.npu.lowering.strips import strips
from glenside.npu.lowering.tiles import Layer
from glenside.npu.machine import HALVES, Machine

_GAPS = 1.1
"""How many cells a tensor takes for each of its elements, near enough for those that take less than that part of the
lanes:
"""
_LARGE = 8
_STRIPS = 3
"""What part of a large tensor is there at a time where layers run strip by strip; and into how many these are cut,
by which their cycles are told:
"""
_CUTS = 4


class Streaming(Protocol):
    """A mapping of which is known what streams and what stays in the array; constants are None."""

    @property
    def price(self) -> Priced: ...
    @property
    def streams(self) -> Mapping[Term, Term | None]: ...
    @property
    def stays(self) -> Mapping[Term, Term | None]: ...


@dataclass(frozen=True)
class Stay:
    """A tensor that may stay.

    rows          of lanes that it takes as each mapping of each layer reads it, by number
    since, until  the layers between which it is there, by number
    allows        of each layer that makes or reads it which of its mappings can do so, by number
    slower        of each mapping of its reader the cycles of the array beside those of whole layers, where there is a
                  part of it at a time
    apart         mappings of two readers that have no strides in common; None: nobody has looked
    """

    rows: Mapping[str, Sequence[Estimate]]
    since: int
    until: int
    allows: Mapping[str, Sequence[bool]]
    slower: Mapping[str, Sequence[Estimate]] = field(default_factory=dict)
    apart: Sequence[tuple[tuple[str, int], tuple[str, int]]] | None = None

    @property
    def readers(self) -> int:
        return len(self.allows)

    def is_for(self, name: str, which: int, maker: str | None) -> bool:
        """Whether that layer alone reads it, and may do so as that mapping does."""
        return self.allows[name][which] and not self.allows.keys() - {name, maker}


def staying(
    options: Mapping[str, Sequence[Streaming]],
    results: Mapping[Term, str],
    requantised: Container[str],
    outside: Container[Term],
    machine: Machine,
) -> dict[Term, Stay]:
    """Of all tensors that are read, but for those that a host takes: `outside`. Layers are in order."""
    numbers = {name: number for number, name in enumerate(options)}
    reads = _Reading()
    reads.look(options)
    found = {}
    read = dict.fromkeys(t for own in options.values() for o in own for t in o.streams.values() if t is not None)
    for tensor in read:
        maker = results.get(tensor)
        if maker is not None and (tensor in outside or maker not in requantised):
            continue
        readers = [name for name, own in options.items() if any(_takes(option, tensor) for option in own)]
        allows = {name: [reads.may(option, tensor) for option in options[name]] for name in readers}
        since = 0
        if maker is not None:
            since = numbers[maker]
            allows[maker] = [bool((option.price.layer.elements > 0).all()) for option in options[maker]]
        if all(any(own) for own in allows.values()):
            made = None if maker is None else options[maker][allows[maker].index(True)].price.layer
            rows = {name: [reads.rows(option, tensor, made, machine) for option in options[name]] for name in readers}
            slower: dict[str, list[Estimate]] = {}
            large = HALVES * tensor.access.size > machine.depth * machine.rows
            if made is not None and large and [numbers[name] for name in readers] == [since + 1]:
                (name,) = readers
                alone = [len(option.streams) == 1 for option in options[name]]
                rows[name] = [_part(own) if one else own for own, one in zip(rows[name], alone, strict=True)]
                slower[name] = [
                    Estimate(
                        0.0, partial(_slower, made, option.price.layer, machine) if may and one else None, id(made)
                    )
                    for option, may, one in zip(options[name], allows[name], alone, strict=True)
                ]
            found[tensor] = Stay(rows, since, max(numbers[name] for name in readers), allows, slower)
    return found


def looked_at(own: Stay, tensor: Term, options: Mapping[str, Sequence[Streaming]], machine: Machine) -> Stay:
    """The same with what two mappings of its readers do not allow together: it takes a while to find out."""
    reads, dims = _Reading(), tuple(tensor.access.dims)
    each: dict[str, list[Reads | None]] = {}
    for name, allows in own.allows.items():
        if any(tensor in option.streams.values() for option in options[name]):
            found = [reads.of(o, tensor) if may else None for o, may in zip(options[name], allows, strict=True)]
            each[name] = [one if one is not None and fit_together(dims, [one], machine) else None for one in found]
    alone = {name: [one is not None for one in found] for name, found in each.items()}
    apart = [
        ((first, i), (second, j))
        for first, second in combinations(each, 2)
        for i, one in enumerate(each[first])
        for j, other in enumerate(each[second])
        if one is not None and other is not None and not fit_together(dims, [one, other], machine)
    ]
    return replace(own, allows={**own.allows, **alone}, apart=apart)


def _slower(made: Layer, read: Layer, machine: Machine) -> float:
    """Cycles that two layers take longer strip by strip, along the best axis."""
    dims, layers = tuple(read.elements.shape), (made, read)
    whole = sum(len(layer.product.rows.numbers) * layer.product.rows.numbers.shape[1] for layer in layers)
    found = [
        sum(part.cycles(machine) for strip in strips(layers, dims, axis, _CUTS) for part in strip)
        for axis, size in enumerate(dims)
        if size >= _CUTS
    ]
    return float(max(0, min(found, default=_CUTS * whole) - whole))


def _part(rows: Estimate) -> Estimate:
    """What a strip needs of so many."""

    def found() -> float:
        return -(-rows.close() // _STRIPS)

    return Estimate(-(-rows.value // _STRIPS), found if rows.is_open else None, rows.of)


def _takes(option: Streaming, tensor: Term) -> bool:
    return tensor in option.streams.values() or tensor in option.stays.values()


class _Reading:
    """Which mappings may stream a tensor from where it is held."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, Term], Reads | None] = {}
        self.sizes: dict[tuple[int, Term], Estimate] = {}

    def look(self, options: Mapping[str, Sequence[Streaming]]) -> None:
        """Find out of all mappings what they stream so, by all processors at a time."""
        jobs = {
            (id(option.price), leaf): (option.price.layer, tuple(tensor.access.dims), leaf)
            for own in options.values()
            for option in own
            for leaf, tensor in option.streams.items()
            if tensor is not None and self._alone(option, tensor)
        }

        def work(job: tuple[Layer, tuple[int, ...], Term], _: None) -> None:
            Reads.of(*job)

        in_parallel(work, jobs.values(), lambda _: None)

    def may(self, option: Streaming, tensor: Term) -> bool:
        return self._alone(option, tensor) and self.of(option, tensor) is not None

    def _alone(self, option: Streaming, tensor: Term) -> bool:
        """Whether it streams once, and nothing that is computed stays in the array."""
        others = [*option.streams.values()]
        return others.count(tensor) == 1 and None not in others and all(own is None for own in option.stays.values())

    def of(self, option: Streaming, tensor: Term) -> Reads | None:
        dims = tuple(tensor.access.dims)
        key = id(option.price), tensor
        if key not in self.known:
            leaf = next(leaf for leaf, other in option.streams.items() if other == tensor)
            self.known[key] = Reads.of(option.price.layer, dims, leaf)
        return self.known[key]

    def rows(self, option: Streaming, tensor: Term, made: Layer | None, machine: Machine) -> Estimate:
        """How many rows of lanes a tensor takes that this mapping reads, and that layer makes."""
        lanes, size = machine.rows, int(tensor.access.size * _GAPS)
        if not self.may(option, tensor) or size * _LARGE <= machine.depth * machine.rows:
            return Estimate(-(-size // lanes))
        key = id(option.price), tensor
        if key not in self.sizes:
            reads = self.of(option, tensor)
            assert reads is not None, "it may stream"
            self.sizes[key] = Estimate(-(-tensor.access.size // lanes), partial(_rows, reads, made, machine), key)
        return self.sizes[key]


def _rows(reads: Reads, made: Layer | None, machine: Machine) -> int:
    skew = skewed(reads.dims, [reads], None if made is None else Writes.of(made, reads.dims), machine)
    return machine.depth + 1 if skew is None else -(-(skew.size + machine.rows) // machine.rows)
