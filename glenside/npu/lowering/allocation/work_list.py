"""The work list: each layer as a whole, or strip by strip if it is in a chain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from glenside.npu.lowering.allocation.strip_chains import Chain
from glenside.npu.lowering.tiling.strip_mining import Part
from glenside.quantization.layers import IntegerLayer


@dataclass(frozen=True)
class Piece:
    """A layer or one strip of it; `last` marks the last piece of the layer."""

    strip: int = 0
    part: Part | None = None
    last: bool = True


def pieces(layers: Sequence[IntegerLayer], chains: Sequence[Chain]) -> Iterator[tuple[IntegerLayer, Piece]]:
    """Yields layers in execution order; those of a chain strip by strip."""
    number = 0
    for chain in [*sorted(chains, key=lambda chain: chain.begin), None]:
        begin, end = (chain.begin, chain.end) if chain is not None else (len(layers), len(layers))
        yield from ((layer, Piece()) for layer in layers[number:begin])
        for strip, parts in enumerate(chain.parts if chain is not None else ()):
            last = chain is not None and strip == len(chain.parts) - 1
            for layer, part in zip(layers[begin:end], parts, strict=True):
                yield layer, Piece(strip, part, last)
        number = end
