"""Tables of transposed convolutions: the elements of an input with gaps that contribute to each position of a result.

Windows of k elements, d apart, step by 1 to h positions over n elements, the first at `begin` and consecutive ones
`gap` apart.
"""

from __future__ import annotations

import math

from glenside.ir.types import Dims
from glenside.rewrites.facts import table


@table(first=int, count=int, taps=int, apart=int, tap=int, every=int)
def phase(gap: int, begin: int, d: int, k: int, h: int, p: int) -> tuple[int, int, int, int, int, int]:
    """Describes positions p, p + gap, ..: the first in the bare input, their number, and the taps that meet elements.

    There are `taps` such taps, from `tap` on at distance `every`; they meet elements of the bare input at distance
    `apart`. taps is 0 if no tap meets an element.
    """
    common = math.gcd(d, gap)
    every = gap // common
    tap = next((u for u in range(min(k, every)) if (p + u * d - begin) % gap == 0), None)
    count = -((p - h) // gap)
    if tap is None or count <= 0:
        return 0, 0, 0, 1, 0, 1
    return (p + tap * d - begin) // gap, count, -((tap - k) // every), d // common, tap, every


@table(first=int, count=int, out=int, start=int)
def scatter(gap: int, begin: int, n: int, d: int, h: int, k: int) -> tuple[int, int, int, int] | None:
    """Returns the first element of the bare input and their number, the size of the sum of windows, and where h
    starts.
    """
    first = max(0, -(begin // gap))
    count = min(n, (h - 1 + (k - 1) * d - begin) // gap + 1) - first
    if count <= 0:
        return None
    return first, count, gap * (count - 1) + (k - 1) * d + 1, (k - 1) * d - begin - gap * first


@table(order=Dims, back=Dims, operand=Dims)
def positions_last(rank: int, rows: int, rank_a: int, axes: Dims) -> tuple[Dims, Dims, Dims]:
    """Returns the order of axes for adding up windows along `axes`, its inverse, and the order for the operand a.

    The result has `rank` axes; the first `rows` of them are axes of a. `rank_a` is the number of axes of a. The order
    includes the axes of windows; its inverse does not.
    """
    front = [axis for axis in range(rank) if axis not in axes]
    order = (*front, *axes, *range(rank, rank + len(axes)))
    back = [(*front, *axes).index(axis) for axis in range(rank)]
    own = (*(axis for axis in front if axis < rows), *axes, *range(rows, rank_a))
    return Dims(order), Dims(back), Dims(own)
