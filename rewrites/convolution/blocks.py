"""The polyphase form of windows with a stride above 1: windows of stride 1 over blocks, which may be added up.

`root` is a product as in `transposed`. Its axis i has stride t over windows of k elements of an input without gaps,
which has n elements that start at `begin`. Over blocks of t elements the stride is 1.
"""

from __future__ import annotations

from typing import Any

from glenside.rewrites import examples as ex
from glenside.rewrites import operators as op
from glenside.rewrites.convolution import windows_over_gaps
from glenside.rewrites.convolution.transposed import ANALYSES, gap_axes, scattered, unfolding
from glenside.rewrites.declare import ROOT, Clauses, Example, V, analysis, let, set_, when
from glenside.rewrites.facts import ACCESS, INT, dims, relation, split, table
from glenside.rewrites.movement.sliding_windows import slides
from glenside.rewrites.terms import dot, is_dot, padded, reshaped, variables, vec_range

_PRODUCT: dict[str, Any] = {"product": ACCESS, "a": ACCESS, "b": ACCESS, "m": INT, "i": INT, "j": INT}
strided = relation("strided", **_PRODUCT, begin=INT, n=INT, t=INT, h=INT, k=INT, total=INT)


@table(first=int, count=int, out=int, start=int, lead=int, behind=int, wide=int)
def in_blocks(begin: int, n: int, t: int, h: int, k: int) -> tuple[int, int, int, int, int, int, int] | None:
    """Turns windows of k elements with stride t into windows of `wide` blocks of t elements, with zeros around the
    weights.

    Returns where the first block starts, the number of blocks, the size of their overlap-add, where the h results start
    in it, the zeros before and after the weights, and `wide`. It needs as few blocks of weights as possible, and then
    as few blocks of elements.
    """
    found = []
    for lead in range(t):
        wide = -((k + lead) // -t)
        low = max(0, (begin + lead) // t)
        count = min(h + wide - 2, (n - 1 + begin + lead) // t) - low + 1
        if count > 0:
            own = (t * low - begin - lead, count, count - 1 + wide, wide - 1 - low, lead, wide * t - k - lead, wide)
            found.append((wide, count, own))
    return min(found)[-1] if found else None


_STEPS = "(access-squeeze (access-windows (access {0} 1) (shape $c {1}) (shape 1 {2})) 1)"
_SHIFTED = "(access-pad (access-tensor x) zero-padding 2 {} 1)"


def _stepping(before: int, x: str, k: int, t: int) -> Example:
    """Returns an example with windows of k elements and stride t."""
    windows = _STEPS.format(_SHIFTED.format(before), k, t)
    return Example(ex.dot(windows, ex.W, 0), {"x": f"n c {x}", "w": f"o c {k}"}, (), {"scatter": 1})


a, b, m, i, j, begin, n, t, h, k, total = variables("a b m i j begin n t h k total")
inner, first, count, out, start = variables("inner first count out start")
_STRIDED = strided(ROOT, a, b, m, i, j, begin, n, t, h, k, total)
_BLOCKS = (begin, n, t, h, k)


@analysis(ANALYSES, _stepping(1, "7", 3, 2), _stepping(4, "9", 5, 3))
def blocks_of_results_are_made(
    opened: V, c: V, sa: V, da: V, w: V, db: V, sb: V, place: V, rest: V, order: V, lead: V, behind: V, wide: V
) -> Clauses:
    """dot(x in blocks of t x flip b in blocks of t): each block times b backwards, a window of dot(windows(x, t) x b).

    The polyphase form of windows of stride t: t elements of each are contracted at once, so that blocks step by 1. It
    makes e-nodes only for products of `strided`, and they equal no existing class. Sound because a product of other
    operands is another product.
    """
    of_blocks = in_blocks.facts(
        *_BLOCKS,
        **{"first": first, "count": count, "out": out, "start": start},
        **{"lead": lead, "behind": behind, "wide": wide},
    )
    weights, blocks, in_order = variables("weights blocks in-order")
    return (
        when(
            *(unfolding(ROOT, opened, total), is_dot(a, b, m), windows_over_gaps.zero_inserted(a, i, j, 1, begin, n)),
            *(slides(a, i, j, t, 1, c), t > 1, i >= opened, i >= m, sa == split(a), i < sa, j >= sa),
            *(da == dims(a), h == da[i], k == da[j], k > t),
        ).then(_STRIDED),
        when(unfolding(ROOT, 0, 1), _STRIDED).then(set_(gap_axes(ROOT, "overlap-add"), 0)),
        when(_STRIDED, in_blocks.facts(*_BLOCKS, first=first, count=count)).then(
            windows_over_gaps.want_subwindow(a, i, j, 1, begin, n, first, count, taps=t, apart=1)
        ),
        when(
            *(_STRIDED, of_blocks, w == windows_over_gaps.subwindow(a, i, j, 1, begin, n, first, count, t, 1)),
            *(db == dims(b), sb == split(b), sa == split(a), place == (sb + j) - sa),
            blocks == db.set(place, wide).insert(place + 1, t),
            rest == vec_range(blocks.length).remove(place),
            order == rest.insert(sb, place),
        ).then(
            let(in_order, reshaped(padded(b, place, behind, lead), blocks, sb)),
            let(weights, op.access(op.transpose(op.flip(in_order, place), order), sb + 1)),
            let(inner, dot(w, weights, m)),
            scattered(ROOT, inner, i, 1, 1, out, start, h),
            unfolding(inner, i + 1, total),
        ),
    )
