"""Decoders for ranges of rows and of tokens before them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from glenside.builder.builder import Again
from glenside.ir.bounds import whole
from glenside.ir.open_program import OpenProgram, is_range, range_of
from glenside.ir.program import Program
from glenside.models.decoder import Decoder, growing_step, ring_step
from glenside.models.decoder_weights import Weights


def ring_decoder(
    name: str, shape: Decoder, weights: Callable[[dict[str, Again]], Weights], rows: int | Sequence[int]
) -> Program | OpenProgram:
    """Returns `ring_step` for a number of rows, or for a range. Raises BadInput."""
    values: dict[str, Again] = {}
    if not isinstance(rows, int | str):
        most = range_of("rows", rows)[1]
        ring_step(shape, weights(values), most, most)
        return OpenProgram(lambda sizes: ring_step(shape, weights(values), sizes["rows"], most), {"rows": rows}, name)
    count = whole("rows", rows, 1)
    return replace(ring_step(shape, weights(values), count, count), name=name)


def growing_decoder(
    name: str,
    shape: Decoder,
    weights: Callable[[dict[str, Again]], Weights],
    rows: int | Sequence[int],
    past: int | Sequence[int],
    require: Callable[[int], None] = lambda tokens: None,
) -> OpenProgram:
    """Returns `growing_step` for ranges of rows and of tokens before them.

    weights  a function of what its results share: the functions that compute constants, by name
    require  checks that the decoder has positions for a number of tokens; raises BadInput
    """
    given: dict[str, Any] = {"rows": rows, "past": past}
    ranges = {size: range_of(size, value) for size, value in given.items() if is_range(value)}
    fixed = {size: whole(size, value, 0) for size, value in given.items() if size not in ranges}
    context = sum({**fixed, **{size: own[1] for size, own in ranges.items()}}.values())
    require(context)
    values: dict[str, Again] = {}

    def make(sizes: Mapping[str, int]) -> Program:
        return growing_step(shape, weights(values), context=context, **{**fixed, **sizes})

    return OpenProgram(make, ranges, name)
