"""A product whose windows are added up a tile at a time, as a processor with little memory does it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from glenside.ir.contraction import blocks
from glenside.ir.operand import Array, Operand
from glenside.ir.operator import Kind, Operator, fields, register, require
from glenside.ir.operators.requirements import require_number, require_sizes, spelled
from glenside.ir.types import AccessType, Dims

_NAME = "overlap-add-product"


def _check(
    a: AccessType, b: AccessType, n: int, out: Dims, strides: Dims, dilations: Dims, starts: Dims, tile: int
) -> None:
    require_number(_NAME, a)
    axes = len(out)
    require(axes >= 1, _NAME, "at least one axis that is added up", spelled(out))
    most = min(a.split, b.split) - axes
    require(0 <= n <= most, _NAME, f"0 <= n <= {most} shared axes, before {axes} of positions and of windows", n)
    require(a.dims.take(n) == b.dims.take(n), _NAME, f"the first {n} axes to agree", f"{a} and {b}")
    require(a.item == b.item and a.dtype == b.dtype, _NAME, "items and dtypes to agree", f"{a} and {b}")
    same = len(strides) == len(dilations) == len(starts) == axes
    require(same, _NAME, f"{axes} strides, dilations and starts", " ".join(map(spelled, (strides, dilations, starts))))
    require_sizes(_NAME, "sizes", out)
    require_sizes(_NAME, "strides", strides, least=1)
    require_sizes(_NAME, "dilations", dilations, least=1)
    require(tile >= 1, _NAME, "a tile of at least 1 position", tile)


def _boxes(places: tuple[int, ...], tile: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Boxes of at most `tile` positions, from first to last along each axis, which cut them all."""
    for index in blocks(places, tile):
        box = [
            (part, part + 1) if isinstance(part, int) else (part.start, min(part.stop, size))
            for part, size in zip(index, places, strict=False)
        ]
        yield (*box, *((0, size) for size in places[len(box) :]))


def _reached(first: int, last: int, stride: int, offset: int, size: int) -> tuple[slice, slice]:
    """Of positions m from first to last - 1, those with a place m stride + offset from 0 to size - 1, and the places."""
    first_in = max(first, -(offset // stride))
    last_in = min(last, (size - 1 - offset) // stride + 1)
    if last_in <= first_in:
        return slice(0, 0), slice(0, 0)
    start = first_in * stride + offset
    return slice(first_in - first, last_in - first), slice(start, start + (last_in - first_in - 1) * stride + 1, stride)


def _evaluate(
    arithmetic: Any,
    a: Operand,
    b: Operand,
    n: int,
    out: Dims,
    strides: Dims,
    dilations: Dims,
    starts: Dims,
    tile: int,
) -> Array:
    """Beside the result there are the products of one tile: `tile` times what one position adds."""
    left, right, axes, item = a.array, np.ascontiguousarray(b.array), len(out), len(a.item_axes)
    before, after = a.split - axes, b.split - axes
    lead = (slice(None),) * before
    kept = arithmetic.contract(left[(*lead, slice(0, 0))], right, n, item).dtype  # what this arithmetic keeps sums in
    result = np.zeros((*left.shape[:before], *right.shape[n:after], *out), kept)
    window = right.shape[after : b.split]
    for box in _boxes(left.shape[before : a.split], tile):
        rows = left[(*lead, *(slice(*part) for part in box))]
        columns = arithmetic.contract(rows, right, n, item)  # (G, M, box, O, window)
        columns = np.moveaxis(columns, range(before, before + axes), range(-2 * axes, -axes))
        for tap in np.ndindex(*window):
            reached = [
                _reached(*part, t, u * d - start, size)
                for part, t, u, d, start, size in zip(box, strides, tap, dilations, starts, out, strict=True)
            ]
            target = result[(..., *(place for _, place in reached))]
            arithmetic.accumulate(target, columns[(..., *(position for position, _ in reached), *tap)])
        del columns
    return result


overlap_add_product = register(
    Operator(
        name=_NAME,
        fields=fields(
            a=Kind.TERM,
            b=Kind.TERM,
            n=Kind.INT,
            out=Kind.SHAPE,
            strides=Kind.SHAPE,
            dilations=Kind.SHAPE,
            starts=Kind.INTS,
            tile=Kind.INT,
        ),
        check=_check,
        result=lambda a, b, n, out, strides, dilations, starts, tile: (
            a.with_dims(a.dims.take(a.split - out.length).append(b.dims.take(b.split - out.length).drop(n)).append(out))
            .with_split(a.split + b.split - n - out.length)
            .widened()
        ),
        evaluate=_evaluate,
        doc="The dot-product of (G, A, positions)(I) and (G, B, window)(I), its windows added up: element u of the "
        "window of position m goes to place stride m + dilation u - start of the result (G, A, B, out)(), or nowhere. "
        "It is done for `tile` positions at a time.",
        movement=False,
        typed=True,
    )
)
