"""Where elements of an input with gaps and places of a result meet: the tables of transposed convolutions.

Windows of k elements, d apart, step by 1 to h places over n elements, the first at `begin` and `gap` from one to the
next.
"""

from __future__ import annotations

import math

from glenside.ir.types import Dims
from glenside.rewrites.facts import table


@table(first=int, count=int, taps=int, apart=int, tap=int, every=int)
def phase(gap: int, begin: int, d: int, k: int, h: int, p: int) -> tuple[int, int, int, int, int, int]:
    """Of the places p, p + gap, ..: where the first is in the bare input, how many, the taps that meet elements there.

    Those are `taps` from `tap` on, `every` so many, which are `apart` in the bare input; none where there is nothing.
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
    """Which elements of the bare input are in the input, how many, what their windows add up to, and where h begins."""
    first = max(0, -(begin // gap))
    count = min(n, (h - 1 + (k - 1) * d - begin) // gap + 1) - first
    if count <= 0:
        return None
    return first, count, gap * (count - 1) + (k - 1) * d + 1, (k - 1) * d - begin - gap * first


@table(order=Dims, back=Dims, operand=Dims)
def positions_last(rank: int, rows: int, rank_a: int, axes: Dims) -> tuple[Dims, Dims, Dims]:
    """Of a result of `rank` axes, its first `rows` those of the operand a, which has `rank_a` axes.

    The order in which its axes, and more for the windows, are to be added up, what undoes that without the windows, and
    the same order for a.
    """
    front = [axis for axis in range(rank) if axis not in axes]
    order = (*front, *axes, *range(rank, rank + len(axes)))
    back = [(*front, *axes).index(axis) for axis in range(rank)]
    own = (*(axis for axis in front if axis < rows), *axes, *range(rows, rank_a))
    return Dims(order), Dims(back), Dims(own)
