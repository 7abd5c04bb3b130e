"""Which tensors may stay in the lanes, whatever mappings are chosen: whom that allows, and what room it takes."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from glenside.ir.term import Term
from glenside.npu.lowering.price import Priced
from glenside.npu.lowering.skewed import Reads
from glenside.npu.machine import Machine

_GAPS = 1.03
"""How many cells a tensor takes for each of its elements, near enough."""


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

    rows          of lanes that it takes
    since, until  the layers between which it is there, by number
    allows        of each layer that makes or reads it which of its mappings can do so, by number
    """

    rows: int
    since: int
    until: int
    allows: Mapping[str, Sequence[bool]]

    @property
    def readers(self) -> int:
        return len(self.allows)


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
            rows = -(-int(tensor.access.size * _GAPS) // machine.rows)
            found[tensor] = Stay(rows, since, max(numbers[name] for name in readers), allows)
    return found


def _takes(option: Streaming, tensor: Term) -> bool:
    return tensor in option.streams.values() or tensor in option.stays.values()


class _Reading:
    """Which mappings may stream a tensor from where it is held."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, tuple[int, ...]], bool] = {}

    def may(self, option: Streaming, tensor: Term) -> bool:
        if [*option.streams.values()] != [tensor] or any(other is not None for other in option.stays.values()):
            return False
        dims = tuple(tensor.access.dims)
        key = id(option.price), dims
        if key not in self.known:
            self.known[key] = Reads.of(option.price.layer, dims) is not None
        return self.known[key]
