"""Finds the tensors that may stay in the scratchpad: the mappings that allow it, and the rows that they take."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Any, Protocol, TypeVar

from glenside.ir.term import Term
from glenside.ir.threads import in_parallel
from glenside.npu.lowering.allocation.scratchpad_allocation import fit_together
from glenside.npu.lowering.allocation.skewed_layout import Reads, Writes, skewed
from glenside.npu.lowering.selection.candidate_cost import Priced
from glenside.npu.lowering.selection.lazy_bounds import Estimate
from glenside.npu.lowering.tiling.layer_tiles import Layer
from glenside.npu.lowering.tiling.strip_mining import Pair
from glenside.npu.machine.model import HALVES, Machine

_CELLS_PER_ELEMENT = 1.1
"""Scratchpad cells per element of a tensor, for tensors smaller than 1/_LARGE of the scratchpad."""
_LARGE = 8
_STRIPS = 3
"""Share of a large tensor that is resident at a time if layers are strip-mined (1/_STRIPS), and the number of strips
that predicts their cycles (_CUTS).
"""
_CUTS = 4


Found = TypeVar("Found")


class Streaming(Protocol):
    """A candidate mapping: its cost, its streamed leaves and those that stay in the array; constants are None."""

    @property
    def price(self) -> Priced: ...
    @property
    def streams(self) -> Mapping[Term, Term | None]: ...
    @property
    def stays(self) -> Mapping[Term, Term | None]: ...


@dataclass(frozen=True)
class Stay:
    """A tensor that may stay in the scratchpad.

    rows          scratchpad rows that it takes, for each mapping of each layer that reads it
    since, until  numbers of the first and the last layer for which it is live
    allows        for each layer that computes or reads it, which of its mappings allow it
    slower        for each mapping of its reader, the extra array cycles if the layers are strip-mined
    apart         pairs of mappings of two readers without common strides, as far as examined
    """

    rows: Mapping[str, Sequence[Estimate]]
    since: int
    until: int
    allows: Mapping[str, Sequence[bool]]
    slower: Mapping[str, Sequence[Estimate]] = field(default_factory=dict)
    apart: Sequence[tuple[tuple[str, int], tuple[str, int]]] = ()

    @property
    def readers(self) -> int:
        return len(self.allows)

    def is_for(self, name: str, which: int, maker: str | None) -> bool:
        """True if that layer is the only reader and its mapping can read the resident layout."""
        return self.allows[name][which] and not self.allows.keys() - {name, maker}


class Staying:
    """Finds which tensors may stay, except for those in `outside`, which the host reads. Layers are in order. A mapping
    that is not tiled yet allows all its operands, at their least size.
    """

    def __init__(
        self,
        options: Mapping[str, Sequence[Streaming]],
        results: Mapping[Term, str],
        requantised: Container[str],
        outside: Container[Term],
        machine: Machine,
    ) -> None:
        self.options, self.results, self.machine = options, results, machine
        self._may_leave = {term for term, name in results.items() if name in requantised and term not in outside}
        self._reads, self._numbers = _Reading(machine), {name: number for number, name in enumerate(options)}
        self._looked, self._dropped = set[Term](), set[Term]()
        self._known: dict[object, Any] = {}
        self._every: tuple[int, Mapping[Term, Stay]] | None = None
        """The number of tiled mappings, and the candidates found with them."""

    def found(self) -> dict[Term, Stay]:
        """Returns the tensors that may stay and were not given up, with the estimates that were refined."""
        return {
            tensor: self._with_looks(own, tensor) if tensor in self._looked else own
            for tensor, own in self.every().items()
            if tensor not in self._dropped
        }

    def keep(self, tensors: Container[Term]) -> None:
        """Drops all other tensors."""
        self._dropped |= {tensor for tensor in self.every() if tensor not in tensors}

    def look(self, tensors: Iterable[Term]) -> None:
        """Examines which pairs of mappings of a tensor's readers are incompatible, which takes a while; drops tensors
        that were examined before, since they do not fit.
        """
        for tensor in tensors:
            (self._dropped if tensor in self._looked else self._looked).add(tensor)

    def every(self) -> Mapping[Term, Stay]:
        """Returns all candidates, examined or dropped ones included."""
        cut = sum(option.price.is_cut for own in self.options.values() for option in own)
        if self._every is None or self._every[0] != cut:  # all other inputs are constant
            self._every = cut, self._found_of_all()
        return self._every[1]

    def _found_of_all(self) -> dict[Term, Stay]:
        self._reads.look(self.options)
        found, options, numbers = {}, self.options, self._numbers
        read = dict.fromkeys(t for own in options.values() for o in own for t in o.streams.values() if t is not None)
        for tensor in read:
            maker = self.results.get(tensor)
            if maker is not None and tensor not in self._may_leave:
                continue
            readers = [name for name, own in options.items() if any(_takes(option, tensor) for option in own)]
            allows = {name: [self._reads.may(option, tensor) for option in options[name]] for name in readers}
            since = 0
            if maker is not None:
                since = numbers[maker]
                allows[maker] = [self._is_whole(option) for option in options[maker]]
            if all(any(own) for own in allows.values()):
                rows, slower = self._taken(tensor, maker, readers, allows)
                found[tensor] = Stay(rows, since, max(numbers[name] for name in readers), allows, slower)
        return found

    def _is_whole(self, option: Streaming) -> bool:
        """True if every cell of its results is an element."""
        return not option.price.is_cut or self._once(
            ("whole", id(option.price)), lambda: bool((option.price.layer.elements > 0).all())
        )

    def _once(self, key: object, find: Callable[[], Found]) -> Found:
        if key not in self._known:
            self._known[key] = find()
        found: Found = self._known[key]
        return found

    def _taken(
        self, tensor: Term, maker: str | None, readers: Sequence[str], allows: Mapping[str, Sequence[bool]]
    ) -> tuple[dict[str, list[Estimate]], dict[str, list[Estimate]]]:
        """Returns the rows of a tensor for each mapping, and the extra cycles if only a strip of it is resident."""
        options, made = self.options, None
        if maker is not None:
            own = (option for option, may in zip(options[maker], allows[maker], strict=True) if may)
            made = next((option.price.layer for option in own if option.price.is_cut), None)
        rows = {name: [self._reads.rows(option, tensor, made) for option in options[name]] for name in readers}
        slower: dict[str, list[Estimate]] = {}
        large = HALVES * tensor.access.size > self.machine.depth * self.machine.rows
        following = maker is not None and [self._numbers[name] for name in readers] == [self._numbers[maker] + 1]
        if made is not None and large and following:
            (name,) = readers
            alone = [len(option.streams) == 1 for option in options[name]]
            rows[name] = [
                own if not one else _part(own) if own.of is None else self._once(("part", own.of), partial(_part, own))
                for own, one in zip(rows[name], alone, strict=True)
            ]
            slower[name] = [
                self._slower(tensor, made, option) if may and one and option.price.is_cut else Estimate(0.0)
                for option, may, one in zip(options[name], allows[name], alone, strict=True)
            ]
        return rows, slower

    def _slower(self, tensor: Term, made: Layer, option: Streaming) -> Estimate:
        find = partial(_slower, made, option.price.layer, self.machine)
        return self._once(("slower", tensor, id(option.price)), lambda: Estimate(0.0, find, id(made)))

    def _with_looks(self, own: Stay, tensor: Term) -> Stay:
        """Adds the incompatible pairs of mappings of the tensor's readers."""
        options, dims = self.options, tuple(tensor.access.dims)
        each: dict[str, list[Reads | None]] = {}
        allows = {name: [*every] for name, every in own.allows.items()}
        for name, every in allows.items():
            if any(tensor in option.streams.values() for option in options[name]):
                found = [
                    self._reads.of(o, tensor) if may and o.price.is_cut else None
                    for o, may in zip(options[name], every, strict=True)
                ]
                each[name] = [one if one is not None and self._fit(dims, one) else None for one in found]
                allows[name] = [
                    one is not None or (may and not o.price.is_cut)
                    for one, o, may in zip(each[name], options[name], every, strict=True)
                ]
        apart = [
            ((first, i), (second, j))
            for first, second in combinations(each, 2)
            for i, one in enumerate(each[first])
            for j, other in enumerate(each[second])
            if one is not None and other is not None and not self._fit(dims, one, other)
        ]
        return replace(own, allows=allows, apart=apart)

    def _fit(self, dims: tuple[int, ...], *reads: Reads) -> bool:
        """True if common strides exist for all of them."""
        return self._once(("fit", *map(id, reads)), lambda: fit_together(dims, reads, self.machine))


def _slower(made: Layer, read: Layer, machine: Machine) -> float:
    """Returns the extra cycles of two strip-mined layers, along the best axis."""
    whole = sum(len(layer.product.rows.numbers) * layer.product.rows.numbers.shape[1] for layer in (made, read))
    pair = Pair(made, read, machine)
    found = [pair.cycles(axis, _CUTS) for axis, size in enumerate(read.elements.shape) if size >= _CUTS]
    return float(max(0, min(found, default=_CUTS * whole) - whole))


def _part(rows: Estimate) -> Estimate:
    """Returns the share of a strip in a number of rows."""

    def found() -> float:
        return -(-rows.close() // _STRIPS)

    return Estimate(-(-rows.value // _STRIPS), found if rows.is_open else None, rows.of)


def _takes(option: Streaming, tensor: Term) -> bool:
    return tensor in option.streams.values() or tensor in option.stays.values()


class _Reading:
    """Finds which mappings may stream a tensor from the scratchpad."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.known: dict[tuple[int, Term], Reads | None] = {}
        self.sizes: dict[tuple[int, Term], Estimate] = {}
        self.looked = set[tuple[int, Term]]()

    def look(self, options: Mapping[str, Sequence[Streaming]]) -> None:
        """Computes how all tiled mappings stream their tensors, on all processors."""
        jobs = {
            (id(option.price), leaf): (option.price.layer, tuple(tensor.access.dims), leaf)
            for own in options.values()
            for option in own
            for leaf, tensor in (option.streams.items() if option.price.is_cut else ())
            if tensor is not None and (id(option.price), leaf) not in self.looked and self._alone(option, tensor)
        }
        self.looked |= jobs.keys()

        def work(job: tuple[Layer, tuple[int, ...], Term], _: None) -> None:
            Reads.of(*job)

        in_parallel(work, jobs.values(), lambda _: None)

    def may(self, option: Streaming, tensor: Term) -> bool:
        return self._alone(option, tensor) and (not option.price.is_cut or self.of(option, tensor) is not None)

    def _alone(self, option: Streaming, tensor: Term) -> bool:
        """True if the tensor is streamed once, and only constants stay in the array."""
        others = [*option.streams.values()]
        return others.count(tensor) == 1 and None not in others and all(own is None for own in option.stays.values())

    def of(self, option: Streaming, tensor: Term) -> Reads | None:
        dims = tuple(tensor.access.dims)
        key = id(option.price), tensor
        if key not in self.known:
            leaf = next(leaf for leaf, other in option.streams.items() if other == tensor)
            self.known[key] = Reads.of(option.price.layer, dims, leaf)
        return self.known[key]

    def rows(self, option: Streaming, tensor: Term, made: Layer | None) -> Estimate:
        """Returns the scratchpad rows of a tensor that this mapping reads and that layer computes."""
        machine = self.machine
        lanes, size = machine.rows, int(tensor.access.size * _CELLS_PER_ELEMENT)
        if not self.may(option, tensor) or size * _LARGE <= machine.depth * machine.rows:
            return Estimate(-(-size // lanes))
        if not option.price.is_cut:
            return Estimate(-(-tensor.access.size // lanes))
        key = id(option.price), tensor
        if key not in self.sizes:
            reads = self.of(option, tensor)
            assert reads is not None, "it may stream"
            self.sizes[key] = Estimate(-(-tensor.access.size // lanes), partial(_rows, reads, made, machine), key)
        return self.sizes[key]


def _rows(reads: Reads, made: Layer | None, machine: Machine) -> int:
    skew = skewed(reads.dims, [reads], None if made is None else Writes.of(made, reads.dims), machine)
    return machine.depth + 1 if skew is None else -(-(skew.size + machine.rows) // machine.rows)
